// Matrix products: tiles in shared memory, tensor cores, asynchronous copies; and a transpose.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

// C = A * B, all n x n, n a multiple of 16.
extern "C" __global__ void matmul_tiled(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[16][16], tb[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        ta[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        tb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// One warp a 16 x 16 tile of C; A is n x n by rows, B by columns.
extern "C" __global__ void matmul_wmma(const half *a, const half *b, float *c, int n) {
    using namespace nvcuda::wmma;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += 16) {
        fragment<matrix_a, 16, 16, 16, half, row_major> fa;
        fragment<matrix_b, 16, 16, 16, half, col_major> fb;
        load_matrix_sync(fa, a + blockIdx.y * 16 * n + k, n);
        load_matrix_sync(fb, b + blockIdx.x * 16 * n + k, n);
        mma_sync(sum, fa, fb, sum);
    }
    store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, mem_row_major);
}

// One warp a 16 x 8 tile, by ldmatrix and mma; A by rows, B by columns, 16 deep at a time.
extern "C" __global__ void matmul_mma(const half *a, const half *b, float *c, int n) {
    __shared__ __align__(16) half ta[16 * 16], tb[8 * 16];
    float d[4] = {0, 0, 0, 0};
    int lane = threadIdx.x;
    for (int k = 0; k < n; k += 16) {
        *(uint4 *)&ta[(lane / 2) * 16 + (lane % 2) * 8] = *(const uint4 *)&a[(blockIdx.y * 16 + lane / 2) * n + k + (lane % 2) * 8];
        if (lane < 16) *(uint4 *)&tb[(lane / 2) * 16 + (lane % 2) * 8] = *(const uint4 *)&b[(blockIdx.x * 8 + lane / 2) * n + k + (lane % 2) * 8];
        __syncwarp();
        unsigned fa[4], fb[2];
        unsigned pa = (unsigned)__cvta_generic_to_shared(&ta[(lane % 16) * 16 + (lane / 16) * 8]);
        unsigned pb = (unsigned)__cvta_generic_to_shared(&tb[(lane % 8) * 16 + (lane / 8 % 2) * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(pa));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(pb));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
        __syncwarp();
    }
    float *out = c + (blockIdx.y * 16 + lane / 4) * n + blockIdx.x * 8 + lane % 4 * 2;
    out[0] = d[0];
    out[1] = d[1];
    out[8 * n] = d[2];
    out[8 * n + 1] = d[3];
}

// Two stages in shared memory, filled by cp.async while the other is multiplied.
extern "C" __global__ void matmul_pipelined(const float *a, const float *b, float *c, int n) {
    __shared__ __align__(16) float ta[2][16][16], tb[2][16][16];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    auto fetch = [&](int stage, int k) {
        if (x < 4) {
            __pipeline_memcpy_async(&ta[stage][y][x * 4], &a[row * n + k + x * 4], 16);
            __pipeline_memcpy_async(&tb[stage][y][x * 4], &b[(k + y) * n + blockIdx.x * 16 + x * 4], 16);
        }
        __pipeline_commit();
    };
    fetch(0, 0);
    float sum = 0;
    for (int k = 0, stage = 0; k < n; k += 16, stage ^= 1) {
        if (k + 16 < n) {
            fetch(stage ^ 1, k + 16);
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += ta[stage][y][i] * tb[stage][i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void transpose(const float *in, float *out, int rows, int columns) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}
