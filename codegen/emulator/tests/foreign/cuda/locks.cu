// Kernels whose threads wait for others of their warp: locks that each thread takes, and turns.

// A lock that a thread takes with a compare-and-swap, and releases with an exchange.
struct Lock {
    unsigned *word;

    __device__ void acquire() {
        while (atomicCAS(word, 0u, 1u) != 0u) {
        }
        __threadfence();
    }

    __device__ void release() {
        __threadfence();
        atomicExch(word, 0u);
    }
};

// Adds x to *sum under a lock, one thread at a time.
extern "C" __global__ void locked_sum(unsigned *lock, float *sum, const float *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        Lock l{lock};
        l.acquire();
        *sum = *sum + x[i];
        l.release();
    }
}

struct Entry {
    unsigned key;
    unsigned next;
};

// Adds each key to the list of its bucket. heads and next hold the index of an entry plus 1, or 0. All threads of the CTA
// then count the entries.
extern "C" __global__ void insert(unsigned *locks, volatile unsigned *heads, volatile Entry *entries, const unsigned *keys,
                                  unsigned n, unsigned buckets, unsigned *counts) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned bucket = keys[i] % buckets;
        Lock l{locks + bucket};
        l.acquire();
        entries[i].key = keys[i];
        entries[i].next = heads[bucket];
        heads[bucket] = i + 1;
        l.release();
    }
    int inserted = __syncthreads_count(i < n);
    if (threadIdx.x == 0) {
        counts[blockIdx.x] = inserted;
    }
}

// The threads of a CTA append their values in the reverse of their order: each waits for its turn.
extern "C" __global__ void in_turns(unsigned *turn, volatile float *out, const float *x) {
    unsigned last = blockDim.x - 1;
    while (atomicAdd(turn, 0u) != last - threadIdx.x) {
    }
    __threadfence();
    out[*(volatile unsigned *)turn] = x[threadIdx.x];
    __threadfence();
    atomicAdd(turn, 1u);
    __syncwarp();
    float next = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1);
    out[blockDim.x + threadIdx.x] = next;
}

// A thread waits for a flag that no thread sets.
extern "C" __global__ void never(unsigned *flag, float *out) {
    if (threadIdx.x == 3) {
        while (atomicAdd(flag, 0u) == 0u) {
        }
    }
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}
