// Histogram of the bytes of a text, as a tokenizer's first step counts them.

constexpr unsigned THREADS = 256, WARPS = THREADS / 32;

// Adds the number of each byte value in `text` to `counts`. `length` is a multiple of 16. Each warp counts in its own 256
// words of shared memory, because many letters of a text are equal; a thread reads 16 bytes at a time.
extern "C" __global__ void __launch_bounds__(THREADS)
bytes(const unsigned char *__restrict__ text, unsigned *__restrict__ counts, unsigned length)
{
    __shared__ unsigned all[WARPS][256];
    unsigned *own = all[threadIdx.x / 32];
    for (unsigned warp = 0; warp < WARPS; warp++) {
        all[warp][threadIdx.x] = 0;
    }
    __syncthreads();
    unsigned first = (blockIdx.x * THREADS + threadIdx.x) * 16;
    for (unsigned at = first; at < length; at += gridDim.x * THREADS * 16) {
        uint4 words = *(const uint4 *)&text[at];
        for (unsigned word : {words.x, words.y, words.z, words.w}) {
            for (int i = 0; i < 4; i++) {
                atomicAdd(&own[word >> 8 * i & 255], 1);
            }
        }
    }
    __syncthreads();
    unsigned count = 0;
    for (unsigned warp = 0; warp < WARPS; warp++) {
        count += all[warp][threadIdx.x];
    }
    atomicAdd(&counts[threadIdx.x], count);
}
