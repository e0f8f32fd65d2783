// Integer arithmetic: bit tricks, wide division, dot products, hashing, atomics.

extern "C" __global__ void bit_tricks(const unsigned *a, const unsigned *b, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i], *o = out + 8 * i, r;
    o[0] = __popc(x) + __clz(y) * 100 + __ffs(x) * 10000;
    o[1] = __brev(x) ^ __byte_perm(x, y, 0x7531);
    o[2] = __funnelshift_l(x, y, y & 63) + __funnelshift_rc(x, y, x & 63);
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y & 31), "r"(y >> 8 & 31));
    o[3] = r;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(x), "r"(y), "r"(x & 31), "r"(y & 15));
    o[4] = r;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r) : "r"(x), "r"(y), "r"(x + y));
    o[5] = r;
    o[6] = __umulhi(x, y) + __sad((int)x, (int)y, 7u);
    o[7] = __dp4a((int)x, (int)y, 5) + __vaddus4(x, y);
}

extern "C" __global__ void wide_division(const long long *a, const long long *b, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    unsigned long long u = (unsigned long long)x, v = (unsigned long long)y;
    out[4 * i] = x / y;
    out[4 * i + 1] = x % y;
    out[4 * i + 2] = (long long)(u / v);
    out[4 * i + 3] = (long long)(u % v + __umul64hi(u, v) + (u / 1000000007ull) % 97);
}

// 128-bit products by carries.
extern "C" __global__ void wide_product(const unsigned long long *a, const unsigned long long *b, unsigned long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned __int128 p = (unsigned __int128)a[i] * b[i] + b[i];
    out[2 * i] = (unsigned long long)p;
    out[2 * i + 1] = (unsigned long long)(p >> 64);
}

// A floating-point maximum by compare-and-swap, and a linked list of keys by exchange.
extern "C" __global__ void cas_loop(const float *x, int *best, int *heads, int *next, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int seen = *(volatile int *)best, wanted = __float_as_int(x[i]);
    while (__int_as_float(seen) < __int_as_float(wanted)) {
        int found = atomicCAS(best, seen, wanted);
        if (found == seen) break;
        seen = found;
    }
    next[i] = atomicExch(&heads[i & 3], i);
}

// What a warp's lanes learn from one another.
extern "C" __global__ void warp_votes(const int *x, unsigned *out) {
    int lane = threadIdx.x & 31, v = x[threadIdx.x];
    unsigned odd = __ballot_sync(~0u, v & 1);
    unsigned same = __match_any_sync(~0u, v);
    int all;
    unsigned alike = __match_all_sync(~0u, v >> 8, &all);
    unsigned low = 0;
    if (lane < 16) {
        low = __reduce_max_sync(0xffffu, (unsigned)v) + __activemask();
        __syncwarp(0xffffu);
    }
    out[4 * threadIdx.x] = odd;
    out[4 * threadIdx.x + 1] = same;
    out[4 * threadIdx.x + 2] = alike + all;
    out[4 * threadIdx.x + 3] = low + __any_sync(~0u, v == 3) + 2 * __all_sync(~0u, v < 1000);
}
