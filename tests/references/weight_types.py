#!/usr/bin/env python3
"""Makes the conformance models of single weight types and of a mixture: `../fixtures/llama-TYPE.gguf` and `.safetensors`.

    pip install gguf numpy safetensors && ./weight_types.py [TYPE | mixed ...]
    ./weight_types.py --llama-cpp xllamacpp.abi3.so

The files are written by `gguf.GGUFWriter` from random blocks. The logits are float64 arithmetic, in this file, over the
values that `gguf.quants.dequantize` gives for the blocks; nothing but the weights is quantised. `--llama-cpp` prints the
NMSE of llama.cpp's CPU engine against these logits: its argument is a shared library that exports llama.cpp's C functions,
such as the extension module of the package xllamacpp.
"""
import argparse
import ctypes
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import load_file, save_file

FOLDER = Path(__file__).parent.parent / "fixtures"
POSITIONS = 96
EPS = 1e-5
BASE = 10000.0

# Widths that are no multiple of 256 for types with blocks of 32.
SMALL = dict(hidden=160, layers=2, heads=5, kv_heads=1, head_dim=32, ffn=352, vocab=300)
SUPER = dict(hidden=256, layers=2, heads=4, kv_heads=1, head_dim=64, ffn=256, vocab=300)

# The names of tensors and their types; `other` is the type of all that are not named.
MODELS = {
    "iq4_nl": (SMALL, dict(other=T.IQ4_NL)),
    "mxfp4": (SMALL, dict(other=T.MXFP4)),
    "iq4_xs": (SUPER, dict(other=T.IQ4_XS)),
    "q3_k": (SUPER, dict(other=T.Q3_K)),
    "q2_k": (SUPER, dict(other=T.Q2_K)),
    "mixed": (SUPER, {
        "blk.0.attn_q": T.Q2_K, "blk.0.attn_k": T.IQ4_NL, "blk.0.attn_v": T.Q6_K, "blk.0.attn_output": T.IQ4_XS,
        "blk.0.ffn_gate": T.Q3_K, "blk.0.ffn_up": T.MXFP4, "blk.0.ffn_down": T.Q5_1,
        "blk.1.attn_q": T.Q4_K, "blk.1.attn_k": T.F16, "blk.1.attn_v": T.Q8_0, "blk.1.attn_output": T.Q2_K,
        "blk.1.ffn_gate": T.Q4_0, "blk.1.ffn_up": T.Q2_K, "blk.1.ffn_down": T.IQ4_NL,
        "token_embd": T.Q3_K, "output": T.MXFP4,
    }),
}

# Per type, the f16 fields of a block, and their factor for values of standard deviation 1: what remains of a block is
# random. Measured below, so that only the ratio of two fields of a type matters here.
HALVES = {
    T.Q4_0: {0: 1}, T.Q5_1: {0: 1, 2: -15.5}, T.Q8_0: {0: 1}, T.Q4_K: {0: 1, 2: 7.5}, T.Q6_K: {208: 1},
    T.Q2_K: {80: 1, 82: 1.5}, T.Q3_K: {108: 1}, T.IQ4_NL: {0: 1}, T.IQ4_XS: {0: 1}, T.MXFP4: {},
}


def matrix(rng, ty, rows, cols, std):
    """Random weights of about the given standard deviation: the tensor's data."""
    if ty == T.F16:
        return (rng.standard_normal((rows, cols)) * std).astype(np.float16)
    elements, size = gguf.GGML_QUANT_SIZES[ty]
    blocks = rng.integers(0, 256, (rows, cols // elements, size), dtype=np.uint8)
    scale = rng.uniform(0.8, 1.2, blocks.shape[:2])

    def put(factor):
        for at, ratio in HALVES[ty].items():
            value = (scale * factor * ratio).astype(np.float16)
            blocks[:, :, at:at + 2] = value[..., None].view(np.uint8)
        if ty == T.MXFP4:
            blocks[:, :, 0] = np.clip(np.round(np.log2(scale * factor)) + 128 + rng.integers(0, 2, scale.shape), 0, 254)

    put(2.0 ** -6)
    measured = gguf.quants.dequantize(blocks.reshape(rows, -1), ty).std()
    put(2.0 ** -6 * std / measured)
    return blocks.reshape(rows, -1)


def write(name, path):
    """Writes the model `name`."""
    d, types = MODELS[name]
    rng = np.random.default_rng(sum(name.encode()))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random {name}")
    writer.add_block_count(d["layers"])
    writer.add_context_length(512)
    writer.add_embedding_length(d["hidden"])
    writer.add_feed_forward_length(d["ffn"])
    writer.add_head_count(d["heads"])
    writer.add_head_count_kv(d["kv_heads"])
    writer.add_key_length(d["head_dim"])
    writer.add_value_length(d["head_dim"])
    writer.add_rope_dimension_count(d["head_dim"])
    writer.add_rope_freq_base(BASE)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_vocab_size(d["vocab"])
    vocabulary(writer, d["vocab"])
    hidden, q, kv, ffn = d["hidden"], d["heads"] * d["head_dim"], d["kv_heads"] * d["head_dim"], d["ffn"]

    def add(tensor, rows, cols, std):
        ty = types.get(tensor, types.get("other"))
        data = matrix(rng, ty, rows, cols, std)
        writer.add_tensor(f"{tensor}.weight", data, raw_dtype=None if ty == T.F16 else ty)

    def norm(tensor):
        writer.add_tensor(f"{tensor}.weight", rng.uniform(0.7, 1.3, hidden).astype(np.float32))

    add("token_embd", d["vocab"], hidden, 1.0)
    for layer in range(d["layers"]):
        block = f"blk.{layer}"
        norm(f"{block}.attn_norm")
        add(f"{block}.attn_q", q, hidden, 1.4 * hidden ** -0.5)
        add(f"{block}.attn_k", kv, hidden, 1.4 * hidden ** -0.5)
        add(f"{block}.attn_v", kv, hidden, hidden ** -0.5)
        add(f"{block}.attn_output", hidden, q, q ** -0.5)
        norm(f"{block}.ffn_norm")
        add(f"{block}.ffn_gate", ffn, hidden, 1.4 * hidden ** -0.5)
        add(f"{block}.ffn_up", ffn, hidden, hidden ** -0.5)
        add(f"{block}.ffn_down", hidden, ffn, ffn ** -0.5)
    norm("output_norm")
    if "output" in types:
        add("output", d["vocab"], hidden, 2 * hidden ** -0.5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary(writer, count):
    """A byte-level vocabulary: the 256 bytes in GPT-2's spelling, then control tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled, other = {}, 256
    for byte in range(256):
        spelled[byte], other = (chr(byte), other) if byte in printable else (chr(other), other + 1)
    tokens = [spelled[byte] for byte in range(256)] + ["th"]
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds += [gguf.TokenType.CONTROL] * (count - len(tokens))
    tokens += [f"<|{number}|>" for number in range(count - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(count - 2)
    writer.add_eos_token_id(count - 1)


def reference(path, tokens):
    """Logits after each token, float64 [positions, vocab]."""
    reader = gguf.GGUFReader(path)
    values = {}
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values[tensor.name] = data.astype(np.float64).reshape(tensor.shape[::-1].tolist())

    def key(name):
        return reader.fields[f"llama.{name}"].contents()

    heads, kv_heads, dim = key("attention.head_count"), key("attention.head_count_kv"), key("attention.key_length")
    eps, count = np.float64(np.float32(EPS)), len(tokens)
    angles = np.arange(count)[:, None] * BASE ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def norm(x, weights):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weights

    def rope(x):
        first, second = x[..., 0::2], x[..., 1::2]
        return np.stack([first * cos - second * sin, first * sin + second * cos], -1).reshape(x.shape)

    x = values["token_embd.weight"][tokens]
    future = np.triu(np.ones((count, count), bool), 1)
    for layer in range(key("block_count")):
        w = {name: values[f"blk.{layer}.{name}.weight"] for name in (
            "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
        h = norm(x, w["attn_norm"])
        q = rope((h @ w["attn_q"].T).reshape(count, heads, dim))
        k = rope((h @ w["attn_k"].T).reshape(count, kv_heads, dim))
        v = (h @ w["attn_v"].T).reshape(count, kv_heads, dim)
        k, v = (np.repeat(part, heads // kv_heads, 1) for part in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim)
        scores[:, future] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", weights, v).reshape(count, -1) @ w["attn_output"].T
        h = norm(x, w["ffn_norm"])
        gate = h @ w["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
    return norm(x, values["output_norm.weight"]) @ values.get("output.weight", values["token_embd.weight"]).T


def llama_cpp(library, path, tokens, vocab):
    """Logits of llama.cpp, float32 [positions, vocab]."""
    class Opaque(ctypes.Structure):
        # llama.cpp's parameters, which are passed by value: larger than any version's.
        _fields_ = [("bytes", ctypes.c_char * 1024)]

    class Batch(ctypes.Structure):
        _fields_ = [
            ("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
            ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
            ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8)),
        ]

    lib = ctypes.CDLL(library)
    for name, result, arguments in [
        ("llama_backend_init", None, []),
        ("llama_model_default_params", Opaque, []), ("llama_context_default_params", Opaque, []),
        ("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Opaque]),
        ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Opaque]),
        ("llama_batch_init", Batch, [ctypes.c_int32] * 3), ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
        ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
        ("llama_log_set", None, [ctypes.c_void_p, ctypes.c_void_p]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lib.llama_log_set(silent, None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
    assert model, f"llama.cpp does not load {path}"
    context = lib.llama_init_from_model(model, lib.llama_context_default_params())
    batch = lib.llama_batch_init(1, 0, 1)
    batch.n_tokens, batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 1, 0, 1
    logits = []
    # A token at a time, as generation does.
    for position, token in enumerate(tokens):
        batch.token[0], batch.pos[0] = int(token), position
        assert lib.llama_decode(context, batch) == 0
        logits.append(np.ctypeslib.as_array(lib.llama_get_logits_ith(context, 0), (vocab,)).copy())
    return np.array(logits)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], default=[])
    parser.add_argument("--llama-cpp", metavar="LIBRARY")
    args = parser.parse_args()
    for name in args.models or MODELS:
        path = FOLDER / f"llama-{name}.gguf"
        if args.llama_cpp:
            stored = load_file(path.with_suffix(".safetensors"))
            expected = stored["logits"].astype(np.float64)
            theirs = llama_cpp(args.llama_cpp, path, stored["tokens"], expected.shape[1])
            print(f"{name} {((theirs - expected) ** 2).sum() / (expected ** 2).sum():.3e}")
            continue
        write(name, path)
        tokens = np.random.default_rng(7).integers(0, MODELS[name][0]["vocab"], POSITIONS).astype(np.int32)
        logits = reference(path, tokens).astype(np.float32)
        save_file({"tokens": tokens, "logits": logits}, path.with_suffix(".safetensors"))
        print(f"{name}: {path.stat().st_size} bytes, logits of standard deviation {logits.std():.2f}")


if __name__ == "__main__":
    main()
