"""Kernels in Triton, and their compilation to PTX ahead of time (no GPU is needed).

Usage: python kernels.py  — writes the PTX files beside this file. Needs the `triton` package.
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


@triton.jit
def attention(q, k, v, o, T, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal attention of one head per program_id(1): softmax(scale · Q · Kᵀ) · V, with a running maximum."""
    start, head = tl.program_id(0) * BM, tl.program_id(1) * T * D
    rows, columns, at = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    tq = tl.load(q + head + rows[:, None] * D + at[None, :])
    highest = tl.full([BM], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    sums = tl.zeros([BM, D], dtype=tl.float32)
    for first in range(0, start + BM, BN):
        tk = tl.load(k + head + (first + columns)[None, :] * D + at[:, None])
        tv = tl.load(v + head + (first + columns)[:, None] * D + at[None, :])
        scores = tl.dot(tq, tk) * scale
        scores = tl.where(rows[:, None] >= (first + columns)[None, :], scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(highest - new)
        total = total * shrink + tl.sum(weights, axis=1)
        sums = tl.dot(weights.to(tl.float16), tv, sums * shrink[:, None])
        highest = new
    tl.store(o + head + rows[:, None] * D + at[None, :], sums / total[:, None])


@triton.jit
def quantised(a, b, scales, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A · (scale of each column · B): 8-bit weights become f16 in registers. B is stored by columns."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + columns[:, None] * K + depth[None, :]
    sums = tl.zeros([BN, BM], dtype=tl.float32)
    for _ in range(0, K, BK):
        weights = tl.load(pb).to(tl.float16)
        sums = tl.dot(weights, tl.trans(tl.load(pa)), sums)
        pa += BK
        pb += BK
    result = tl.trans(sums * tl.load(scales + columns)[:, None])
    tl.store(c + rows[:, None] * N + columns[None, :], result)


@triton.jit
def matmul_t(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr):
    """C = A · Bᵀ with sums of type ACC."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + columns[None, :] * K + depth[:, None]
    sums = tl.zeros([BM, BN], dtype=ACC)
    for _ in range(0, K, BK):
        sums = tl.dot(tl.load(pa), tl.load(pb), sums, out_dtype=ACC)
        pa += BK
        pb += BK
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def matmul_tma(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A · B through tensor maps."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros([BM, BN], dtype=tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(a.load([row, k]), b.load([k, column]), sums)
    c.store([row, column], sums.to(tl.float16))


@triton.jit
def rows_from(x, row, BLOCK: tl.constexpr, D: tl.constexpr, MAPS: tl.constexpr):
    """BLOCK rows of D elements from a row on, through a tensor map or a pointer."""
    if MAPS:
        return x.load([row, 0])
    else:
        return tl.load(x + (row + tl.arange(0, BLOCK))[:, None] * D + tl.arange(0, D)[None, :])


@triton.jit
def attention_delta(o, do, delta, BLOCK: tl.constexpr, D: tl.constexpr):
    """Sums of O · dO along rows."""
    row = tl.program_id(0) * BLOCK
    products = rows_from(o, row, BLOCK, D, False) * rows_from(do, row, BLOCK, D, False).to(tl.float32)
    tl.store(delta + row + tl.arange(0, BLOCK), tl.sum(products, axis=1))


@triton.jit
def attention_backward(
    q, k, v, do, logs, delta, dq, dk, dv, T, scale, BLOCK: tl.constexpr, D: tl.constexpr, MAPS: tl.constexpr
):
    """Gradients of causal attention of one head per program_id(1).

    A program computes dK and dV of BLOCK keys from the queries that attend to them, then dQ of BLOCK queries. `logs`
    has the logarithm of each row's sum of exponentials, `delta` the sum of O · dO.
    """
    head = tl.program_id(1) * T
    start = tl.program_id(0) * BLOCK
    columns, at = tl.arange(0, BLOCK), tl.arange(0, D)
    own = head + start + columns

    tk = rows_from(k, head + start, BLOCK, D, MAPS)
    tv = rows_from(v, head + start, BLOCK, D, MAPS)
    sums_k = tl.zeros([BLOCK, D], dtype=tl.float32)
    sums_v = tl.zeros([BLOCK, D], dtype=tl.float32)
    for first in range(start, T, BLOCK):
        tq = rows_from(q, head + first, BLOCK, D, MAPS)
        tdo = rows_from(do, head + first, BLOCK, D, MAPS)
        scores = tl.dot(tk, tl.trans(tq)) * scale
        weights = tl.exp(scores - tl.load(logs + head + first + columns)[None, :])
        weights = tl.where((start + columns)[:, None] <= (first + columns)[None, :], weights, 0.0)
        sums_v = tl.dot(weights.to(tl.float16), tdo, sums_v)
        slopes = tl.dot(tv, tl.trans(tdo)) - tl.load(delta + head + first + columns)[None, :]
        sums_k = tl.dot((weights * slopes).to(tl.float16), tq, sums_k)
    tl.store(dk + own[:, None] * D + at[None, :], sums_k * scale)
    tl.store(dv + own[:, None] * D + at[None, :], sums_v)

    tq = rows_from(q, head + start, BLOCK, D, MAPS)
    tdo = rows_from(do, head + start, BLOCK, D, MAPS)
    row_logs, row_delta = tl.load(logs + own)[:, None], tl.load(delta + own)[:, None]
    sums_q = tl.zeros([BLOCK, D], dtype=tl.float32)
    for first in range(0, start + BLOCK, BLOCK):
        tk = rows_from(k, head + first, BLOCK, D, MAPS)
        tv = rows_from(v, head + first, BLOCK, D, MAPS)
        weights = tl.exp(tl.dot(tq, tl.trans(tk)) * scale - row_logs)
        weights = tl.where((start + columns)[:, None] >= (first + columns)[None, :], weights, 0.0)
        slopes = tl.dot(tdo, tl.trans(tv)) - row_delta
        sums_q = tl.dot((weights * slopes).to(tl.float16), tk, sums_q)
    tl.store(dq + own[:, None] * D + at[None, :], sums_q * scale)


@triton.jit
def matmul_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A · B through tensor maps that the kernel makes."""
    ta = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    tb = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    tc = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    matmul_tma(ta, tb, tc, M, N, K, BM, BN, BK)


MAP = "tensordesc<fp16[64,64]>"
TILE = {"BM": 64, "BN": 32, "BK": 64}
ROWS = "tensordesc<fp16[64,32]> "
GRADIENTS = "*fp32 *fp32 *fp32 *fp32 *fp32 i32 fp32"
BACKWARD = {"BLOCK": 64, "D": 32, "MAPS": False}
# File, kernel, types of the arguments, constants, warps, target.
KERNELS = [
    ("softmax", softmax, "*fp32 *fp32 i32", {"BLOCK": 256}, 4, 80),
    ("softmax_sm90", softmax, "*fp32 *fp32 i32", {"BLOCK": 256}, 4, 90),
    ("layernorm", layernorm, "*fp32 *fp32 *fp32 *fp32 i32 fp32", {"BLOCK": 128}, 4, 80),
    ("layernorm_sm90", layernorm, "*fp32 *fp32 *fp32 *fp32 i32 fp32", {"BLOCK": 128}, 4, 90),
    ("matmul", matmul, "*fp16 *fp16 *fp16 i32 i32 i32", {"BM": 32, "BN": 32, "BK": 32}, 2, 80),
    ("matmul_sm90", matmul, "*fp16 *fp16 *fp16 i32 i32 i32", TILE, 4, 90),
    ("attention", attention, "*fp16 *fp16 *fp16 *fp32 i32 fp32", {"BM": 32, "BN": 32, "D": 32}, 2, 80),
    ("attention_sm90", attention, "*fp16 *fp16 *fp16 *fp32 i32 fp32", {"BM": 64, "BN": 32, "D": 32}, 4, 90),
    ("attention_delta", attention_delta, "*fp32 *fp16 *fp32", {"BLOCK": 32, "D": 32}, 2, 80),
    ("attention_delta_sm90", attention_delta, "*fp32 *fp16 *fp32", {"BLOCK": 32, "D": 32}, 2, 90),
    ("attention_backward", attention_backward, f"{'*fp16 ' * 4}{GRADIENTS}", BACKWARD | {"BLOCK": 32}, 2, 80),
    ("attention_backward_sm90", attention_backward, f"{'*fp16 ' * 4}{GRADIENTS}", BACKWARD, 4, 90),
    ("attention_backward_tma_sm90", attention_backward, f"{ROWS * 4}{GRADIENTS}", BACKWARD | {"MAPS": True}, 4, 90),
    ("quantised", quantised, "*fp16 *i8 *fp32 *fp32 i32 i32 i32", {"BM": 32, "BN": 32, "BK": 32}, 2, 80),
    ("quantised_sm90", quantised, "*fp16 *i8 *fp32 *fp32 i32 i32 i32", {"BM": 32, "BN": 64, "BK": 64}, 4, 90),
    ("fp8_sm90", matmul_t, "*fp8e4nv *fp8e4nv *fp32 i32 i32 i32", TILE | {"ACC": tl.float32}, 4, 90),
    ("int8_sm90", matmul_t, "*i8 *i8 *i32 i32 i32 i32", TILE | {"ACC": tl.int32}, 4, 90),
    ("matmul_tma_sm90", matmul_tma, f"{MAP} {MAP} {MAP} i32 i32 i32", TILE | {"BN": 64}, 4, 90),
    ("matmul_descriptors_sm90", matmul_descriptors, "*fp16 *fp16 *fp16 i32 i32 i32", TILE | {"BN": 64}, 4, 90),
    ("tf32_sm90", matmul_t, "*fp32 *fp32 *fp32 i32 i32 i32", TILE | {"BK": 32, "ACC": tl.float32}, 4, 90),
]


def compile_to_ptx(kernel, types, constants, warps, target):
    names = kernel.arg_names
    signature = dict(zip(names, types.split())) | {name: "constexpr" for name in constants}
    # Rows start at multiples of 16 elements: what a launch would find out by itself.
    attrs = {(names.index(n),): [["tt.divisibility", 16]] for n, t in signature.items() if t[0] == "*" or n in "MNKT"}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attrs)
    target = GPUTarget("cuda", target, 32)
    return triton.compile(source, target=target, options={"num_warps": warps, "num_stages": 3})


for name, *what in KERNELS:
    compiled = compile_to_ptx(*what)
    # Debug sections name the folder that this ran in; line numbers do not need them.
    ptx = re.sub(r"\t\.section\s+\.debug_\w+\s*\{.*?\n\t\}\n?", "", compiled.asm["ptx"], flags=re.S)
    ptx = re.sub(r'(\.file\s+\d+ )".*?"', r'\1"kernels.py"', ptx)
    (pathlib.Path(__file__).parent / f"{name}.ptx").write_text(ptx)
    print(name, "dynamic shared memory:", compiled.metadata.shared)
