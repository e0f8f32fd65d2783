// The largest `K` numbers of each row, one warp per row.

#include <math_constants.h>

// Stores the `K` largest of `length` finite numbers of each row, largest first, with their columns. Of equal numbers the one
// in the lower column is first. `length` is at least `K` and a multiple of 4.
//
// Each lane keeps the `K` best of its columns, sorted, in registers. Then the warp takes the best head of all lanes `K` times.
template <int K>
__global__ void __launch_bounds__(32)
top_k(const float *__restrict__ x, float *__restrict__ values, unsigned *__restrict__ columns, unsigned length)
{
    unsigned lane = threadIdx.x;
    x += (size_t)(blockIdx.x * length);
    values += (size_t)(blockIdx.x * K);
    columns += (size_t)(blockIdx.x * K);
    float best[K];
    unsigned at[K];
#pragma unroll
    for (int i = 0; i < K; i++) {
        best[i] = -CUDART_INF_F;
        at[i] = ~0u;
    }
    for (unsigned column = lane * 4; column < length; column += 128) {
        float4 four = *(const float4 *)&x[column];
        float numbers[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float number = numbers[j];
            unsigned own = column + j;
            if (number > best[K - 1]) {
                // A column never precedes an equal number of a lower column.
#pragma unroll
                for (int i = 0; i < K; i++) {
                    bool larger = number > best[i];
                    float down = larger ? best[i] : number;
                    unsigned column_down = larger ? at[i] : own;
                    best[i] = larger ? number : best[i];
                    at[i] = larger ? own : at[i];
                    number = down;
                    own = column_down;
                }
            }
        }
    }
#pragma unroll
    for (int rank = 0; rank < K; rank++) {
        float largest = best[0];
        for (int step = 16; step > 0; step /= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
        }
        unsigned first = __reduce_min_sync(~0u, best[0] == largest ? at[0] : ~0u);
        if (at[0] == first) {
            values[rank] = best[0];
            columns[rank] = first;
#pragma unroll
            for (int i = 1; i < K; i++) {
                best[i - 1] = best[i];
                at[i - 1] = at[i];
            }
            best[K - 1] = -CUDART_INF_F;
            at[K - 1] = ~0u;
        }
    }
}

template __global__ void top_k<8>(const float *, float *, unsigned *, unsigned);
