// Histogram with a run-time number of bins.

constexpr unsigned THREADS = 256;

// Adds to `counts` the number of samples in each of `bins` equal parts of the numbers from 0 to 1; samples outside count in the
// first and the last. `length` is a multiple of 4. Each block counts in dynamic shared memory.
extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const float *__restrict__ x, unsigned *__restrict__ counts, unsigned length, unsigned bins)
{
    extern __shared__ unsigned own[];
    for (unsigned bin = threadIdx.x; bin < bins; bin += THREADS) {
        own[bin] = 0;
    }
    __syncthreads();
    unsigned first = (blockIdx.x * THREADS + threadIdx.x) * 4;
    for (unsigned at = first; at < length; at += gridDim.x * THREADS * 4) {
        float4 four = *(const float4 *)&x[at];
        atomicAdd(&own[min(__float2uint_rz(four.x * (float)bins), bins - 1)], 1);
        atomicAdd(&own[min(__float2uint_rz(four.y * (float)bins), bins - 1)], 1);
        atomicAdd(&own[min(__float2uint_rz(four.z * (float)bins), bins - 1)], 1);
        atomicAdd(&own[min(__float2uint_rz(four.w * (float)bins), bins - 1)], 1);
    }
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < bins; bin += THREADS) {
        atomicAdd(&counts[bin], own[bin]);
    }
}
