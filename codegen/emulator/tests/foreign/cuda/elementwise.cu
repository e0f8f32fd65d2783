// Element-wise kernels: plain, strided, vectorised, and over narrow types.

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy_strided(float a, const float *__restrict__ x, float *__restrict__ y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

// Four floats at a time through the read-only path.
extern "C" __global__ void scale_vectors(const float4 *__restrict__ x, float4 *y, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = __ldg(&x[i]);
    y[i] = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

// Bytes and shorts with both signs; saturates by hand.
extern "C" __global__ void narrow_types(const signed char *a, const unsigned char *b, const short *c,
                                        unsigned short *d, signed char *e, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = a[i] * b[i] + c[i];
    d[i] = (unsigned short)(sum ^ (c[i] >> 3));
    e[i] = (signed char)(sum > 127 ? 127 : sum < -128 ? -128 : sum);
}

// One-dimensional five-point stencil over a tile in shared memory.
extern "C" __global__ void stencil(const float *in, float *out, int n) {
    __shared__ float tile[128 + 4];
    int i = blockIdx.x * 128 + threadIdx.x;
    int at = threadIdx.x + 2;
    tile[at] = i < n ? in[i] : 0.0f;
    if (threadIdx.x < 2) {
        tile[threadIdx.x] = i >= 2 ? in[i - 2] : 0.0f;
        tile[at + 128] = i + 128 < n ? in[i + 128] : 0.0f;
    }
    __syncthreads();
    if (i < n) out[i] = (tile[at - 2] + tile[at + 2]) * 0.0625f + (tile[at - 1] + tile[at + 1]) * 0.25f + tile[at] * 0.375f;
}

// Transcendentals as the fast and the accurate library give them.
extern "C" __global__ void transcendental(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = __expf(v) + expf(v) + __logf(fabsf(v) + 1.0f) + log1pf(fabsf(v)) + sinf(v) + __cosf(v) + tanhf(v) +
           rsqrtf(fabsf(v) + 0.5f) + sqrtf(fabsf(v)) + v / (1.0f + v * v) + powf(fabsf(v) + 1.0f, 1.5f) + erff(v);
}
