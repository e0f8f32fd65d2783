// Arithmetic of halves, brain floats and eight-bit floats.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void half_pairs(const half2 *a, const half2 *b, half2 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    half2 x = a[i], y = b[i];
    half2 s = __hfma2(x, y, __hadd2(x, __hneg2(y)));
    s = __hmax2(s, __hmul2(x, __float2half2_rn(0.25f)));
    if (__hgt(__low2half(x), __high2half(y))) s = __lowhigh2highlow(s);
    out[i] = __hmin2(s, __habs2(y));
}

extern "C" __global__ void brain_pairs(const __nv_bfloat162 *a, const __nv_bfloat162 *b, __nv_bfloat162 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat162 s = __hfma2(a[i], b[i], a[i]);
    out[i] = __hsub2(__hmul2(s, b[i]), __hmax2(a[i], b[i]));
}

extern "C" __global__ void conversions(const float *x, half *h, __nv_bfloat16 *b, int *q, unsigned char *u, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    h[i] = __float2half_rn(x[i]);
    b[i] = __float2bfloat16_rz(x[i]);
    q[i] = __float2int_rn(x[i]) + __half2int_rz(h[i]) + (int)llrintf(x[i] * 0.5f) + (int)__bfloat162float(b[i]);
    u[i] = (unsigned char)fminf(fmaxf(x[i], 0.0f), 255.0f);
}

extern "C" __global__ void eight_bits(const float *x, unsigned char *e4, unsigned char *e5, float *back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_fp8_e4m3 p(x[i]);
    __nv_fp8_e5m2 q(x[i]);
    e4[i] = p.__x;
    e5[i] = q.__x;
    back[i] = float(p) + float(q);
}
