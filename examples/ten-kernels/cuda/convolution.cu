// 2-D convolution with halo.

#include <cuda_pipeline.h>

constexpr int TILE = 32, THREADS_Y = 8, FILTER = 5, HALO = FILTER / 2, PITCH = TILE + 2 * HALO;
constexpr int ROWS = TILE / THREADS_Y;
__device__ constexpr float filter[FILTER][FILTER] = {
    {1 / 256.0f, 4 / 256.0f, 6 / 256.0f, 4 / 256.0f, 1 / 256.0f},
    {4 / 256.0f, 16 / 256.0f, 24 / 256.0f, 16 / 256.0f, 4 / 256.0f},
    {6 / 256.0f, 24 / 256.0f, 36 / 256.0f, 24 / 256.0f, 6 / 256.0f},
    {4 / 256.0f, 16 / 256.0f, 24 / 256.0f, 16 / 256.0f, 4 / 256.0f},
    {1 / 256.0f, 4 / 256.0f, 6 / 256.0f, 4 / 256.0f, 1 / 256.0f},
};

// y[r][c] = Σ filter[i][j] · x[r + i − 2][c + j − 2], with zeros outside of the image. A thread computes four rows.
extern "C" __global__ void __launch_bounds__(TILE *THREADS_Y)
convolution(const float *__restrict__ x, float *__restrict__ y, unsigned width, unsigned height)
{
    __shared__ float tile[PITCH * PITCH];
    unsigned left = blockIdx.x * TILE, top = blockIdx.y * TILE;
    for (unsigned i = threadIdx.y * TILE + threadIdx.x; i < PITCH * PITCH; i += TILE * THREADS_Y) {
        // Below zero the numbers wrap, so one comparison finds both edges.
        unsigned row = top + i / PITCH - HALO, column = left + i % PITCH - HALO;
        bool inside = row < height && column < width;
        __pipeline_memcpy_async(&tile[i], &x[row * width + column], 4, inside ? 0 : 4);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    unsigned column = threadIdx.x, row = threadIdx.y * ROWS;
    float sums[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS + FILTER - 1; i++) {
        float pixels[FILTER];
#pragma unroll
        for (int j = 0; j < FILTER; j++) {
            pixels[j] = tile[(row + i) * PITCH + column + j];
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r <= i && i < r + FILTER) {
#pragma unroll
                for (int j = 0; j < FILTER; j++) {
                    sums[r] += pixels[j] * filter[i - r][j];
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (top + row + r < height && left + column < width) {
            y[(top + row + r) * width + left + column] = sums[r];
        }
    }
}
