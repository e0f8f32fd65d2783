// Reductions, scans and softmax: shuffles, shared memory, atomics.

__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

extern "C" __global__ void reduce_shuffle(const float *x, float *sums, int n) {
    __shared__ float partial[32];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = warp_sum(v);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? partial[lane] : 0.0f;
        v = warp_sum(v);
        if (lane == 0) sums[blockIdx.x] = v;
    }
}

extern "C" __global__ void reduce_shared(const int *x, int *sum, unsigned long long *count, int n) {
    extern __shared__ int tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) tile[threadIdx.x] += tile[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(sum, tile[0]);
        atomicAdd(count, 1ull);
    }
}

extern "C" __global__ void softmax_rows(const float *x, float *y, int columns) {
    __shared__ float scratch[32];
    const float *row = x + (size_t)blockIdx.x * columns;
    float *out = y + (size_t)blockIdx.x * columns;
    float m = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) m = fmaxf(m, row[i]);
    for (int s = 16; s; s >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, s));
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = m;
    __syncthreads();
    m = scratch[0];
    for (int i = 1; i < blockDim.x / 32; i++) m = fmaxf(m, scratch[i]);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - m);
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(~0u, sum, s);
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < blockDim.x / 32; i++) sum += scratch[i];
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = expf(row[i] - m) / sum;
}

// Inclusive scan of a block: warps by shuffles, then their totals.
extern "C" __global__ void prefix_scan(const int *x, int *y) {
    __shared__ int totals[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int v = x[threadIdx.x];
    for (int d = 1; d < 32; d *= 2) {
        int up = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += up;
    }
    if (lane == 31) totals[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int t = lane < blockDim.x / 32 ? totals[lane] : 0;
        for (int d = 1; d < 32; d *= 2) {
            int up = __shfl_up_sync(~0u, t, d);
            if (lane >= d) t += up;
        }
        totals[lane] = t;
    }
    __syncthreads();
    y[threadIdx.x] = v + (warp ? totals[warp - 1] : 0);
}

// Row-wise layer normalisation with double-precision moments.
extern "C" __global__ void layernorm(const float *x, const float *gain, const float *bias, float *y, int columns) {
    __shared__ double sums[2][32];
    const float *row = x + blockIdx.x * columns;
    double s = 0, q = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        double v = row[i];
        s += v;
        q += v * v;
    }
    for (int d = 16; d; d >>= 1) {
        s += __shfl_xor_sync(~0u, s, d);
        q += __shfl_xor_sync(~0u, q, d);
    }
    if ((threadIdx.x & 31) == 0) {
        sums[0][threadIdx.x >> 5] = s;
        sums[1][threadIdx.x >> 5] = q;
    }
    __syncthreads();
    s = q = 0;
    for (int w = 0; w < blockDim.x / 32; w++) {
        s += sums[0][w];
        q += sums[1][w];
    }
    double mean = s / columns, scale = rsqrt(q / columns - mean * mean + 1e-5);
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        y[blockIdx.x * columns + i] = (float)((row[i] - mean) * scale) * gain[i] + bias[i];
}

extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (local[i]) atomicAdd(&bins[i], local[i]);
}
