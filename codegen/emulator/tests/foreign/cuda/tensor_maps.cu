// Kernels that copy tiles through tensor maps: a transposition, and a product whose producer warp copies for the
// warpgroup that multiplies.
//
// tensor_maps.ptx: nvcc -std=c++17 -O3 -arch=sm_90a -ptx tensor_maps.cu (CUDA 13.0)

#include <cstdint>
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_fp16.h>

namespace ptx = cuda::ptx;

__device__ void wait(uint64_t *mbarrier, uint32_t parity) {
    while (!ptx::mbarrier_try_wait_parity(mbarrier, parity)) {
    }
}

__device__ void expect(uint64_t *mbarrier, uint32_t bytes) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, mbarrier, bytes);
}

__device__ void load(void *tile, const CUtensorMap &map, int column, int row, uint64_t *mbarrier) {
    const int32_t at[2] = {column, row};
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, at, mbarrier);
}

__device__ void store(const CUtensorMap &map, int column, int row, const void *tile) {
    const int32_t at[2] = {column, row};
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, at, tile);
    ptx::cp_async_bulk_commit_group();
}

// out = scale · inᵀ. A CTA transposes the 32 columns from 32 · blockIdx.x on, in tiles of 32 rows.
extern "C" __global__ void transpose(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out,
                                     float scale, int tiles) {
    constexpr int TILE = 32, STAGES = 2;
    alignas(128) __shared__ float loaded[STAGES][TILE][TILE];
    alignas(128) __shared__ float transposed[STAGES][TILE][TILE];
    __shared__ uint64_t full[STAGES];
    const bool leader = threadIdx.x == 0;
    const int column = blockIdx.x * TILE;
    const auto load_tile = [&](int tile) {
        expect(&full[tile % STAGES], sizeof loaded[0]);
        load(loaded[tile % STAGES], in, column, tile * TILE, &full[tile % STAGES]);
    };
    if (leader) {
        for (int stage = 0; stage < STAGES; ++stage) ptx::mbarrier_init(&full[stage], 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        for (int tile = 0; tile < min(tiles, STAGES); ++tile) load_tile(tile);
    }
    __syncthreads();
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % STAGES;
        wait(&full[stage], tile / STAGES % 2);
        // The store of this stage's previous tile has read it.
        if (leader) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<STAGES - 1>());
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * TILE; i += blockDim.x)
            transposed[stage][i % TILE][i / TILE] = scale * loaded[stage][i / TILE][i % TILE];
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (leader) {
            store(out, tile * TILE, column, transposed[stage]);
            if (tile + STAGES < tiles) load_tile(tile + STAGES);
        }
    }
    if (leader) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
}

// Descriptor of a tile whose rows have 128 bytes, with a swizzle of 128 bytes.
__device__ uint64_t descriptor(const void *tile) {
    const uint64_t address = __cvta_generic_to_shared(tile);
    return address >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ void multiply(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "l"(a), "l"(b));
}

// C = A · Bᵀ, with A of M × K and B of N × K elements. A CTA has 64 rows and 32 columns of C: four warps multiply, one
// thread of a fifth copies.
extern "C" __global__ void __launch_bounds__(160)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap c, int steps) {
    constexpr int ROWS = 64, COLUMNS = 32, DEPTH = 64, STAGES = 3;
    alignas(1024) __shared__ half tiles_a[STAGES][ROWS][DEPTH];
    alignas(1024) __shared__ half tiles_b[STAGES][COLUMNS][DEPTH];
    alignas(128) __shared__ float sums[ROWS][COLUMNS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int row = blockIdx.x * ROWS, column = blockIdx.y * COLUMNS, thread = threadIdx.x;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(&full[stage], 1);
            ptx::mbarrier_init(&empty[stage], 128);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (thread >= 128) {
        if (thread == 128) {
#pragma unroll 1
            for (int step = 0; step < steps; ++step) {
                const int stage = step % STAGES;
                // The first wait for each stage is for the phase before the first one.
                wait(&empty[stage], step / STAGES % 2 ^ 1);
                expect(&full[stage], sizeof tiles_a[0] + sizeof tiles_b[0]);
                load(tiles_a[stage], a, step * DEPTH, row, &full[stage]);
                load(tiles_b[stage], b, step * DEPTH, column, &full[stage]);
            }
        }
        return;
    }
    float d[16] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const int stage = step % STAGES;
        wait(&full[stage], step / STAGES % 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        const uint64_t left = descriptor(tiles_a[stage]), right = descriptor(tiles_b[stage]);
        for (int k = 0; k < DEPTH / 16; ++k) multiply(d, left + 2 * k, right + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        ptx::mbarrier_arrive(&empty[stage]);
    }
    for (int i = 0; i < 16; ++i)
        sums[thread / 32 * 16 + i / 2 % 2 * 8 + thread % 32 / 4][i / 4 * 8 + thread % 4 * 2 + i % 2] = d[i];
    ptx::fence_proxy_async(ptx::space_shared);
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (thread == 0) {
        store(c, column, row, sums);
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}
