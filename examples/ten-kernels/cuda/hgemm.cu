// Product of f16 matrices on tensor cores by `mma`.

constexpr unsigned THREADS = 256, TILE = 128, DEPTH = 32, STAGES = 4;
// Bytes between rows in shared memory; eight consecutive rows are in different banks.
constexpr unsigned A_PITCH = DEPTH * 2 + 16, B_PITCH = TILE * 2 + 16;
constexpr unsigned A_BYTES = TILE * A_PITCH, STAGE_BYTES = A_BYTES + DEPTH * B_PITCH;

__device__ void copy_async(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ void load_matrices(unsigned (&r)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

__device__ void load_matrices_transposed(unsigned (&r)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

__device__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ unsigned pack(float low, float high)
{
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Starts the copies of a step's tiles to its stage.
__device__ void copy(unsigned shared, const unsigned short *a, const unsigned short *b, unsigned n, unsigned k,
                     unsigned step)
{
    unsigned stage = shared + step % STAGES * STAGE_BYTES;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        unsigned piece = threadIdx.x + i * THREADS, row = piece / 4, at = piece % 4 * 8;
        copy_async(stage + row * A_PITCH + at * 2, &a[row * k + step * DEPTH + at]);
        row = piece / 16, at = piece % 16 * 8;
        copy_async(stage + A_BYTES + row * B_PITCH + at * 2, &b[(step * DEPTH + row) * n + at]);
    }
}

// C = A·B of row-major matrices with f32 sums. A warp has 64 × 32 sums.
extern "C" __global__ void __launch_bounds__(THREADS)
hgemm(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b, unsigned short *__restrict__ c,
      unsigned n, unsigned k)
{
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    unsigned shared = __cvta_generic_to_shared(dynamic_shared);
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    a += (size_t)(blockIdx.y * TILE * k);
    b += (size_t)(blockIdx.x * TILE);
    for (unsigned step = 0; step < STAGES - 1; step++) {
        copy(shared, a, b, n, k, step);
        commit_copies();
    }
    unsigned row = warp / 4 * 64, column = warp % 4 * 32;
    float sums[4][4][4] = {};
    for (unsigned step = 0; step < k / DEPTH; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        if ((step + STAGES - 1) * DEPTH < k) {
            copy(shared, a, b, n, k, step + STAGES - 1);
        }
        commit_copies();
        unsigned stage = shared + step % STAGES * STAGE_BYTES;
#pragma unroll
        for (unsigned p = 0; p < DEPTH; p += 16) {
            unsigned a_tile = stage + row * A_PITCH + p * 2 + lane % 16 * A_PITCH + lane / 16 * 16;
            unsigned b_tile = stage + A_BYTES + p * B_PITCH + column * 2 + lane % 16 * B_PITCH + lane / 16 * 16;
            unsigned left[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                load_matrices(left[i], a_tile + i * 16 * A_PITCH);
            }
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                unsigned right[4];
                load_matrices_transposed(right, b_tile + j * 16);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    mma(sums[i % 4][j + i / 4], left[i % 4], &right[i / 4 * 2]);
                }
            }
        }
    }
    c += (size_t)((blockIdx.y * TILE + row + lane / 4) * n + blockIdx.x * TILE + column + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            *(unsigned *)&c[i * 16 * n + j * 8] = pack(sums[i][j][0], sums[i][j][1]);
            *(unsigned *)&c[(i * 16 + 8) * n + j * 8] = pack(sums[i][j][2], sums[i][j][3]);
        }
    }
}
