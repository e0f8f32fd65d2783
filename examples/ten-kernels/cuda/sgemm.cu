// Tiled product of f32 matrices.

constexpr int THREADS = 256, TILE = 128, DEPTH = 8, PITCH = TILE + 4;

// C = A·B of row-major matrices. The tiles are double-buffered; a thread has 8 × 8 sums.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
sgemm(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, unsigned n, unsigned k)
{
    __shared__ __align__(16) float a_tiles[2][DEPTH][PITCH];
    __shared__ __align__(16) float b_tiles[2][DEPTH][TILE];
    unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    unsigned a_row = thread / 2, a_column = thread % 2 * 4;
    a += (size_t)((blockIdx.y * TILE + a_row) * k + a_column);
    b += (size_t)(warp * n + blockIdx.x * TILE + lane * 4);
    unsigned row = (warp / 2 * 4 + lane / 8) * 4, column = (warp % 2 * 8 + lane % 8) * 4;
    float4 next_a = *(const float4 *)a;
    float4 next_b = *(const float4 *)b;
    float sums[8][8] = {};
    for (unsigned step = 0; step < k; step += DEPTH) {
        unsigned stage = step / DEPTH % 2;
        a_tiles[stage][a_column][a_row] = next_a.x;
        a_tiles[stage][a_column + 1][a_row] = next_a.y;
        a_tiles[stage][a_column + 2][a_row] = next_a.z;
        a_tiles[stage][a_column + 3][a_row] = next_a.w;
        *(float4 *)&b_tiles[stage][warp][lane * 4] = next_b;
        __syncthreads();
        if (step + DEPTH < k) {
            next_a = *(const float4 *)&a[step + DEPTH];
            next_b = *(const float4 *)&b[(step + DEPTH) * n];
        }
#pragma unroll
        for (int p = 0; p < DEPTH; p++) {
            float left[8], right[8];
            *(float4 *)&left[0] = *(const float4 *)&a_tiles[stage][p][row];
            *(float4 *)&left[4] = *(const float4 *)&a_tiles[stage][p][row + TILE / 2];
            *(float4 *)&right[0] = *(const float4 *)&b_tiles[stage][p][column];
            *(float4 *)&right[4] = *(const float4 *)&b_tiles[stage][p][column + TILE / 2];
#pragma unroll
            for (int i = 0; i < 8; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    sums[i][j] += left[i] * right[j];
                }
            }
        }
    }
    c += (size_t)((blockIdx.y * TILE + row) * n + blockIdx.x * TILE + column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float *out = &c[n * (i / 4 * (TILE / 2) + i % 4)];
        *(float4 *)&out[0] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        *(float4 *)&out[TILE / 2] = make_float4(sums[i][4], sums[i][5], sums[i][6], sums[i][7]);
    }
}
