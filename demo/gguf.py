"""Writes a GGUF file of F32 tensors: ggml's `docs/gguf.md`, version 3."""

import struct

import numpy as np

ALIGNMENT = 32
UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
F32 = 0


def string(text):
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value(item):
    """(kind, bytes) of a metadata value; integers are u32, in lists i32."""
    if isinstance(item, bool):
        return BOOL, struct.pack("<?", item)
    if isinstance(item, int):
        return UINT32, struct.pack("<I", item)
    if isinstance(item, float):
        return FLOAT32, struct.pack("<f", item)
    if isinstance(item, str):
        return STRING, string(item)
    kind = STRING if isinstance(item[0], str) else INT32
    elements = b"".join(string(i) if kind == STRING else struct.pack("<i", i) for i in item)
    return ARRAY, struct.pack("<IQ", kind, len(item)) + elements


def write(path, metadata, tensors):
    """`tensors`: arrays by name; a matrix has its rows (outputs) first, as in numpy."""
    out = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, item in metadata.items():
        kind, encoded = value(item)
        out += string(key) + struct.pack("<I", kind) + encoded
    data = b""
    for name, tensor in tensors.items():
        dims = tensor.shape[::-1]
        out += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, F32, len(data))
        data += np.ascontiguousarray(tensor, "<f4").tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(out + bytes(-len(out) % ALIGNMENT) + data)
