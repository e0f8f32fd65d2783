#!/usr/bin/env python3
"""Times of cuBLAS's f16 product C = A·Bᵀ of square matrices, through PyTorch: beside `cargo run --release -p hopper-gemm`.

    python3 benches/cublas.py [SIZE …]

The matrices and the way of measuring are those of hopper-gemm: numbers between -1 and 1, four products in a graph, and the
median of nine measurements of about 20 ms.
"""

import sys

import torch

ROUNDS = 9
PEAK = 989.4  # Dense f16 products of an H100 SXM or H200 by its data sheet, in TFLOPS.

sizes = [int(size) for size in sys.argv[1:]] or [4096, 8192]
print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
print("| step | size | ms | TFLOPS | of the peak |")
for size in sizes:
    a, b = (torch.rand(size, size, device="cuda", dtype=torch.float32).mul(2).sub(1).half() for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.float16)
    for _ in range(3):
        torch.matmul(a, b.T, out=c)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            torch.matmul(a, b.T, out=c)

    def measure(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / replays / 4

    replays = max(1, round(5 / measure(3)))
    time = sorted(measure(replays) for _ in range(ROUNDS))[ROUNDS // 2]
    rate = 2 * size**3 / time / 1e9
    print(f"| cuBLAS | {size} | {time:.3f} | {rate:.0f} | {rate / PEAK:.1%} |")
