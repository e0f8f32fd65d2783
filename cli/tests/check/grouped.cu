// Kernels whose buffers are in structures: compiled by nvcc 13.0 with -ptx -arch=sm_80 -lineinfo.

struct Params {
    int n;
    float scale;
    const float *x;
    float *y;
};

/// Scales a vector.
extern "C" __global__ void scale(const __grid_constant__ Params p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) p.y[i] = p.x[i] * p.scale;
}

/// Adds 1 to the first numbers of several vectors, one CTA each.
extern "C" __global__ void increment(float *const *vectors, const int *lengths) {
    if (threadIdx.x < lengths[blockIdx.x]) vectors[blockIdx.x][threadIdx.x] += 1.0f;
}

/// Reads a texture, which the emulator does not support.
extern "C" __global__ void sample(cudaTextureObject_t image, float *y) {
    y[threadIdx.x] = tex1D<float>(image, threadIdx.x);
}
