#!/usr/bin/env python3
"""Launches a kernel of an emitted folder through the CUDA driver, with the standard library only, and checks its result:

    bespoke specialize llama-3.1-8b --target sm_90 --out kernels
    python3 examples/launch.py kernels

docs/emitted.md describes the folder. The kernel is the last one of a greedy decode step: it chooses the next token."""
import ctypes as c, json, os, pathlib, random, struct, sys
FORMATS = dict(u8="B", i8="b", u16="H", i16="h", u32="I", i32="i", u64="Q", i64="q", f16="e", f32="f", bool="?")
cuda = c.CDLL(os.environ.get("LIBCUDA", "libcuda.so.1"))

def call(name, *args, log=None):
    code, text = getattr(cuda, name)(*args), c.c_char_p()
    if code:
        cuda.cuGetErrorString(code, c.byref(text))
        sys.exit(f"{name}: error {code}: {(text.value or b'unknown').decode()} {log.value.decode() if log else ''}")

def upload(kind, values):
    data, address = struct.pack(f"<{len(values)}{FORMATS[kind]}", *values), c.c_uint64()
    call("cuMemAlloc_v2", c.byref(address), c.c_size_t(len(data)))
    call("cuMemcpyHtoD_v2", address, data, c.c_size_t(len(data)))
    return address.value

def download(kind, address, count):
    data = c.create_string_buffer(struct.calcsize(f"<{count}{FORMATS[kind]}"))
    call("cuMemcpyDtoH_v2", data, c.c_uint64(address), c.c_size_t(len(data)))
    return list(struct.unpack(f"<{count}{FORMATS[kind]}", data.raw))

# A device, and its compute capability.
device, major, minor, context = c.c_int(), c.c_int(), c.c_int(), c.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", c.byref(device), 0)
[call("cuDeviceGetAttribute", c.byref(value), attribute, device) for value, attribute in ((major, 75), (minor, 76))]
call("cuDevicePrimaryCtxRetain", c.byref(context), device)
call("cuCtxSetCurrent", context)

# The kernel, and its module for the newest target that the device runs; the driver assembles it.
folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__))
kernels = json.loads((folder / "kernels.json").read_text())["kernels"]
kernel = next(kernel for kernel in kernels if kernel["name"].startswith("choose_greedy"))
modules = {int(module["target"][len("sm_"):]): folder / module["ptx"] for module in kernel["modules"]}
target = max((target for target in modules if target <= 10 * major.value + minor.value), default=None)
ptx = modules[target].read_bytes() if target else sys.exit("the folder has no kernel for such an old device")
module, function, log = c.c_void_p(), c.c_void_p(), c.create_string_buffer(16384)
options, values = (c.c_int * 2)(5, 6), (c.c_void_p * 2)(c.addressof(log), len(log))  # CU_JIT_ERROR_LOG_BUFFER and its size
call("cuModuleLoadDataEx", c.byref(module), ptx, 2, options, values, log=log)
call("cuModuleGetFunction", c.byref(function), module, kernel["name"].encode())

# The arguments by name: addresses of buffers, values of scalars. The driver takes pointers to each argument's bytes.
logits, tokens = (random.sample(range(1 << 24), kernel["constants"]["candidates"]) for _ in range(2))
record = [0, 1, 3, 0, 0, 0, 0, 0]  # position, number of prompt tokens, flags: active and chooses, slot, first token and page
start = dict(values=logits, tokens=tokens, sequence=[7, 0], finished=[0, 0], state=record)
arguments = {p["name"]: upload(p["type"], start[p["name"]]) for p in kernel["parameters"]}
layout = [(p["name"], "Q" if p["pointer"] else FORMATS[p["type"]]) for p in kernel["parameters"]]
cells = [c.create_string_buffer(struct.pack("<" + kind, arguments[name])) for name, kind in layout]
params = (c.c_void_p * len(cells))(*map(c.addressof, cells))
call("cuLaunchKernel", function, *kernel["grid"], *kernel["block"], kernel["dynamic_shared"], None, params, None)
best = tokens[logits.index(max(logits))]
found = {name: download("u32", arguments[name], 2) for name in ("sequence", "finished", "state")}  # synchronises
print(f"{modules[target]}: {found}; expected token {best}")
sys.exit(found != dict(sequence=[7, best], finished=[0, best], state=[1, 1]))
