// Kernels whose lanes execute a `.sync` instruction together, with different member masks.

// Counts keys: the lanes with one key add their number with one atomic. places gets the index of each key among the equal ones
// of its order, sums the sum of the thread indices of the lanes with the same key.
extern "C" __global__ void aggregate(unsigned *counts, unsigned *places, unsigned *sums, const unsigned *keys, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned active = __ballot_sync(0xffffffff, i < n);
    if (i < n) {
        unsigned key = keys[i], lane = threadIdx.x % 32;
        unsigned peers = __match_any_sync(active, key);
        unsigned leader = __ffs(peers) - 1, base = 0;
        if (lane == leader) {
            base = atomicAdd(&counts[key], __popc(peers));
        }
        base = __shfl_sync(peers, base, leader);
        places[i] = base + __popc(peers & ((1u << lane) - 1));
        sums[i] = __reduce_add_sync(peers, threadIdx.x);
    }
}

// Sums of tiles of 8 lanes, as in tiled partitions of cooperative groups. The last tile of a warp has another sum.
extern "C" __global__ void tile_sums(float *out, const float *x) {
    unsigned lane = threadIdx.x % 32, tile = lane / 8;
    unsigned mask = 0xffu << (8 * tile);
    float sum = x[blockIdx.x * blockDim.x + threadIdx.x];
    if (tile < 3) {
        for (int offset = 4; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(mask, sum, offset, 8);
        }
    } else {
        __syncwarp(mask);
        sum = __any_sync(mask, sum > 40.0f) ? 1.0f : 0.0f;
    }
    if (lane % 8 == 0) {
        out[(blockIdx.x * blockDim.x + threadIdx.x) / 8] = sum;
    }
}
