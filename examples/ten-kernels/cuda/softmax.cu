// Softmax of rows with a run-time width.

#include <math_constants.h>

constexpr unsigned THREADS = 256, WARPS = THREADS / 32;

__device__ float block_max(float value)
{
    __shared__ float scratch[WARPS];
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
    }
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float largest = scratch[0];
    for (int warp = 1; warp < WARPS; warp++) {
        largest = fmaxf(largest, scratch[warp]);
    }
    return largest;
}

__device__ float block_sum(float value)
{
    __shared__ float scratch[WARPS];
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(~0u, value, step);
    }
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float total = scratch[0];
    for (int warp = 1; warp < WARPS; warp++) {
        total += scratch[warp];
    }
    return total;
}

// y = exp(x − max(x)) / Σ exp(x − max(x)) of each row; `width` is a multiple of 4. One block per row.
extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const float *__restrict__ x, float *__restrict__ y, unsigned width)
{
    x += (size_t)(blockIdx.x * width);
    y += (size_t)(blockIdx.x * width);
    float largest = -CUDART_INF_F;
    for (unsigned column = threadIdx.x * 4; column < width; column += 4 * THREADS) {
        float4 v = *(const float4 *)&x[column];
        largest = fmaxf(fmaxf(fmaxf(fmaxf(largest, v.x), v.y), v.z), v.w);
    }
    largest = block_max(largest);
    float sum = 0.0f;
    for (unsigned column = threadIdx.x * 4; column < width; column += 4 * THREADS) {
        float4 v = *(const float4 *)&x[column];
        sum += __expf(v.x - largest);
        sum += __expf(v.y - largest);
        sum += __expf(v.z - largest);
        sum += __expf(v.w - largest);
    }
    float scale = 1.0f / block_sum(sum);
    for (unsigned column = threadIdx.x * 4; column < width; column += 4 * THREADS) {
        float4 v = *(const float4 *)&x[column];
        v.x = __expf(v.x - largest) * scale;
        v.y = __expf(v.y - largest) * scale;
        v.z = __expf(v.z - largest) * scale;
        v.w = __expf(v.w - largest) * scale;
        *(float4 *)&y[column] = v;
    }
}
