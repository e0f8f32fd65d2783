// Control flow and address spaces: calls, stack arrays, jump tables, constants, generic pointers.

__constant__ float table[8] = {1.0f, -2.0f, 4.5f, 8.0f, 0.5f, -0.25f, 3.0f, 7.0f};
__constant__ short offsets[4] = {3, -1, 2, -4};
__device__ unsigned counter = 5;
__device__ unsigned long long seeds[2] = {0x9e3779b97f4a7c15ull, 3};

struct Pair {
    int low;
    long long high;
    char tag[5];
};

__device__ __noinline__ Pair combine(Pair a, int b) {
    Pair r = {a.low + b, a.high * b, {}};
    for (int i = 0; i < 5; i++) r.tag[i] = a.tag[4 - i] + 1;
    return r;
}

__device__ __noinline__ int weigh(int x) { return x < 0 ? -3 * x : x + counter; }

__device__ __noinline__ int twice(int x) { return weigh(x) + weigh(x - 7); }

extern "C" __global__ void calls(const int *x, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Pair p = {x[i], x[i] * 3ll, {1, 2, 3, 4, 5}};
    p = combine(p, twice(x[i]));
    if (x[i] & 1) p = combine(p, weigh(-x[i]));
    out[i] = p.low + p.high + p.tag[0] * 1000 + p.tag[4];
}

// An array on the stack that is indexed by what was loaded.
extern "C" __global__ void stack_array(const int *x, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int local[16];
    for (int k = 0; k < 16; k++) local[(k * 5) & 15] = x[i] + k;
    int at = x[i] & 15, sum = 0;
    for (int k = 0; k < 8; k++) {
        sum += local[at] * (k + 1);
        local[(at + 1) & 15] ^= sum;
        at = (at + local[at]) & 15;
    }
    out[i] = sum;
}

extern "C" __global__ void jump_table(const int *x, const float *f, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = f[i];
    switch (x[i]) {
    case 0: v = v * v; break;
    case 1: v = sqrtf(fabsf(v)); break;
    case 2: v = v + out[i]; // falls through
    case 3: v = -v; break;
    case 4: out[i] = 9.0f; return;
    case 5: for (int k = 0; k < x[i + n]; k++) v = v * 0.5f + 1.0f; break;
    case 6: v = floorf(v); break;
    case 7: v = v > 0 ? 1.0f / v : v - 3.0f; break;
    case 8: v = fminf(v, 2.0f) * 8.0f; break;
    default: v = 100.0f;
    }
    out[i] = v;
}

extern "C" __global__ void constants(const int *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = table[x[i] & 7] * offsets[x[i] & 3] + (float)(seeds[x[i] & 1] >> 60);
    if (i == 0) atomicAdd(&counter, 10u);
}

// A pointer that may be to shared, global or local memory.
__device__ __noinline__ int weighted(const int *p, int n) {
    int sum = 0;
    for (int k = 0; k < n; k++) sum += p[k] * (k + 1);
    return sum;
}

extern "C" __global__ void generic_pointers(const int *x, int *out, int n) {
    __shared__ int tile[96];
    int i = threadIdx.x;
    for (int k = 0; k < 3; k++) tile[3 * i + k] = x[3 * i + k] + 1;
    int local[3] = {x[i], i, x[i] ^ i};
    __syncthreads();
    const int *p = i % 3 == 0 ? x + 3 * i : i % 3 == 1 ? &tile[3 * i] : local;
    out[i] = weighted(p, n);
    out[i + 32] = *(volatile const int *)&tile[3 * i] + (__isShared(p) ? 100 : 0) + (__isGlobal(p) ? 1000 : 0);
}

// Loops with different trip counts, breaks and early exits.
extern "C" __global__ void collatz(const unsigned *x, unsigned *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = x[i];
    unsigned count = 0;
    while (v != 1) {
        if (v == 0) { steps[i] = ~0u; return; }
        v = v & 1 ? 3 * v + 1 : v >> 1;
        if (++count == 500) break;
    }
    steps[i] = count;
}
