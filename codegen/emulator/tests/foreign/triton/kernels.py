"""Kernels in Triton, and their compilation to PTX ahead of time (no GPU is needed).

Usage: python kernels.py  — writes NAME.ptx beside this file. Needs the `triton` package.
"""

import pathlib
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


@triton.jit
def layernorm(x, gain, bias, y, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    mean = tl.sum(mean, axis=0) / columns
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = tl.where(at < columns, tl.load(x + row * columns + at, mask=at < columns, other=0.0) - mean, 0.0)
        square += d * d
    scale = 1.0 / tl.sqrt(tl.sum(square, axis=0) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        v = tl.load(x + row * columns + at, mask=mask)
        g, b = tl.load(gain + at, mask=mask), tl.load(bias + at, mask=mask)
        tl.store(y + row * columns + at, (v - mean) * scale * g + b, mask=mask)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + depth[:, None] * N + columns[None, :]
    sums = tl.zeros([BM, BN], dtype=tl.float32)
    for k in range(0, K, BK):
        ta = tl.load(pa, mask=depth[None, :] < K - k, other=0.0)
        tb = tl.load(pb, mask=depth[:, None] < K - k, other=0.0)
        sums = tl.dot(ta, tb, sums)
        pa += BK
        pb += BK * N
    tl.store(c + rows[:, None] * N + columns[None, :], sums.to(tl.float16))


KERNELS = [
    (softmax, "*fp32 *fp32 i32", {"BLOCK": 256}, 4),
    (layernorm, "*fp32 *fp32 *fp32 *fp32 i32 fp32", {"BLOCK": 128}, 4),
    (matmul, "*fp16 *fp16 *fp16 i32 i32 i32", {"BM": 32, "BN": 32, "BK": 32}, 2),
]


def compile_to_ptx(kernel, types, constants, warps):
    names = kernel.arg_names
    signature = dict(zip(names, types.split())) | {name: "constexpr" for name in constants}
    # Rows start at multiples of 16 elements: what a launch would find out by itself.
    attrs = {(names.index(n),): [["tt.divisibility", 16]] for n, t in signature.items() if t[0] == "*" or n in "MNK"}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attrs)
    target = GPUTarget("cuda", 80, 32)
    return triton.compile(source, target=target, options={"num_warps": warps, "num_stages": 3}).asm["ptx"]


for kernel, types, constants, warps in KERNELS:
    ptx = compile_to_ptx(kernel, types, constants, warps)
    # Debug sections name the folder that this ran in; line numbers do not need them.
    ptx = re.sub(r"\t\.section\s+\.debug_\w+\s*\{.*?\n\t\}\n?", "", ptx, flags=re.S)
    ptx = re.sub(r'(\.file\s+\d+ )".*?"', r'\1"kernels.py"', ptx)
    (pathlib.Path(__file__).parent / f"{kernel.__name__}.ptx").write_text(ptx)
