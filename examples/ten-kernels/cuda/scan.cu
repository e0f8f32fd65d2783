// Inclusive prefix sums in one pass over memory, with decoupled look-back (Merrill and Garland, 2016).

constexpr unsigned THREADS = 256, VECTORS = 4, TILE = THREADS * VECTORS * 4;

// Sums of the lane's and all lower lanes' values.
__device__ unsigned warp_scan(unsigned value)
{
    for (unsigned step = 1; step < 32; step *= 2) {
        unsigned below = __shfl_up_sync(~0u, value, step);
        value += threadIdx.x % 32 >= step ? below : 0;
    }
    return value;
}

__device__ unsigned long long load_relaxed(const unsigned long long *from)
{
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}

__device__ void store_relaxed(unsigned long long *to, unsigned kind, unsigned sum)
{
    unsigned long long word = (unsigned long long)kind << 32 | sum;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// y[i] = x[0] + … + x[i]. `states` has a word per block and `ticket` one; all are zero before the first launch, and any
// number of launches with the same grid may follow.
//
// A block publishes the sum of its tile, then the sum of all tiles up to its own: the low half of its state. The high half
// is 2 × the launch's number, and one more for the sum of all.
extern "C" __global__ void __launch_bounds__(THREADS)
scan(const unsigned *__restrict__ x, unsigned *__restrict__ y, unsigned long long *states, unsigned *ticket)
{
    __shared__ unsigned warp_sums[THREADS / 32], shared[2];
    unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    if (thread == 0) {
        shared[0] = atomicAdd(ticket, 1);
    }
    __syncthreads();
    unsigned tile = shared[0] % gridDim.x, launch = shared[0] / gridDim.x * 2 + 2;
    size_t first = tile * TILE + warp * (VECTORS * 128) + lane * 4;
    uint4 sums[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        sums[i] = *(const uint4 *)&x[first + i * 128];
    }
    unsigned total = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        uint4 &four = sums[i];
        four.y += four.x, four.z += four.y, four.w += four.z;
        unsigned up_to_here = warp_scan(four.w);
        unsigned before = total + up_to_here - four.w;
        total += __shfl_sync(~0u, up_to_here, 31);
        four.x += before, four.y += before, four.z += before, four.w += before;
    }
    if (lane == 0) {
        warp_sums[warp] = total;
    }
    __syncthreads();
    unsigned before = 0;
    total = 0;
    for (unsigned other = 0; other < THREADS / 32; other++) {
        unsigned sum = warp_sums[other];
        before += warp > other ? sum : 0;
        total += sum;
    }
    if (warp == 0) {
        if (lane == 0 && tile > 0) {
            store_relaxed(&states[tile], launch, total);
        }
        unsigned prefix = 0, end = tile;
        bool found = tile == 0;
        while (!found) {
            // The 32 tiles before `end`, the nearest in lane 0; tiles before the first have the sum zero.
            unsigned long long word = (unsigned long long)(launch + 1) << 32;
            if (lane < end) {
                do {
                    word = load_relaxed(&states[end - 1 - lane]);
                } while ((unsigned)(word >> 32) < launch);
            }
            unsigned complete = __ballot_sync(~0u, (unsigned)(word >> 32) > launch);
            // Tiles up to the nearest with the sum of all before it.
            unsigned wanted = complete ^ (complete - 1);
            prefix += __reduce_add_sync(~0u, wanted >> lane & 1 ? (unsigned)word : 0);
            found = complete != 0;
            end -= 32;
        }
        if (lane == 0) {
            store_relaxed(&states[tile], launch + 1, prefix + total);
            shared[1] = prefix;
        }
    }
    __syncthreads();
    before += shared[1];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        uint4 four = sums[i];
        *(uint4 *)&y[first + i * 128] = make_uint4(four.x + before, four.y + before, four.z + before, four.w + before);
    }
}
