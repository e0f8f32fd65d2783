// Kernels that print, assert, synchronise as a grid, allocate on the stack, and call functions through pointers.
//
// calls.ptx: nvcc -std=c++17 -arch=sm_90 -ptx calls.cu (CUDA 13.0)

#include <alloca.h>
#include <cassert>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>

namespace cg = cooperative_groups;

// Prints one line from each of the first two threads of every CTA.
extern "C" __global__ void report(const float *x, const char *name) {
    if (threadIdx.x < 2) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        printf("%s[%d] = %.3f (%s, %5u, %#llx)\n", name, i, x[i], "float", i * 7u, 1ull << (32 + threadIdx.x));
    }
    if (threadIdx.x == 0 && blockIdx.x == 1) {
        printf("100%% of CTA %d\n", blockIdx.x);
    }
}

// Replaces every element by the sum of all: partial sums of CTAs, a barrier of the grid, the sum of the partial sums.
extern "C" __global__ void grid_sum(float *x, float *partial, int n) {
    cg::grid_group grid = cg::this_grid();
    __shared__ float sums[128];
    float sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
        sum += x[i];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) {
            sums[threadIdx.x] += sums[threadIdx.x + step];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sums[0];
    }
    grid.sync();
    float total = 0;
    for (int cta = 0; cta < gridDim.x; cta++) {
        total += partial[cta];
    }
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
        x[i] = total;
    }
}

__device__ __noinline__ int reversed(const int *x, int count) {
    int *copy = static_cast<int *>(alloca(count * sizeof(int)));
    for (int i = 0; i < count; i++) {
        copy[i] = x[count - 1 - i];
    }
    int result = 0;
    for (int i = 0; i < count; i++) {
        result = result * 10 + copy[i];
    }
    return result;
}

// Reads the first threadIdx.x % 8 + 1 digits in reverse, twice, with a stack array of that length.
extern "C" __global__ void reverse(const int *x, int *y) {
    const int count = threadIdx.x % 8 + 1;
    y[threadIdx.x] = reversed(x, count) + reversed(x + 1, count);
}

typedef int (*Function)(int, int);

__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ __noinline__ int largest(int a, int b) { return a > b ? a : b; }
__device__ Function functions[3] = {add, multiply, largest};

// Calls a function of the table for each element.
extern "C" __global__ void apply(const int *which, const int *x, int *y) {
    const int i = threadIdx.x;
    y[i] = functions[which[i]](x[i], i);
}

struct Shape {
    __device__ virtual float area() const = 0;
    float a, b;
};
struct Rectangle : Shape {
    __device__ float area() const override { return a * b; }
};
struct Triangle : Shape {
    __device__ float area() const override { return a * b / 2; }
};

// Virtual functions: the objects are made in device memory.
extern "C" __global__ void areas(const float *x, float *y, void *memory) {
    const int i = threadIdx.x;
    Shape *shape = reinterpret_cast<Shape *>(static_cast<char *>(memory) + 32 * i);
    if (i % 3 == 0) {
        new (shape) Rectangle;
    } else {
        new (shape) Triangle;
    }
    shape->a = x[i];
    shape->b = i;
    __syncwarp();
    y[i] = shape->area();
}

// Doubles numbers, which must be less than 30.
extern "C" __global__ void asserts(const unsigned *x, unsigned *y) {
    __shared__ unsigned tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    assert(x[threadIdx.x] < 30 && "a small number");
    __syncthreads();
    y[threadIdx.x] = 2 * tile[threadIdx.x];
}

// Sums of 64 numbers by tiles of two warps, which use shared memory that is reserved for the system.
extern "C" __global__ void tile_sums(const unsigned *x, unsigned *y) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<64>(block);
    y[block.thread_rank()] = cg::reduce(tile, x[block.thread_rank()], cg::plus<unsigned>());
}
