// LU decomposition of a batch of small f64 matrices with partial pivoting.

constexpr int THREADS = 128, N = 16;

__device__ double from_lane(double value, unsigned lane)
{
    return __shfl_sync(~0u, value, lane, N);
}

// Factors of each of `count` row-major matrices: U in the upper triangle, L below the diagonal, rows in the order of the
// pivots. `pivots[k]` of a matrix is the original row of pivot k.
//
// A lane holds a row in registers. Rows do not move: the lane of a pivot is told its final place.
extern "C" __global__ void __launch_bounds__(THREADS)
lu(const double *__restrict__ matrices, double *__restrict__ factors, unsigned *__restrict__ pivots, unsigned count)
{
    unsigned matrix = blockIdx.x * (THREADS / N) + threadIdx.x / N, row = threadIdx.x % N;
    // The lanes of absent matrices work on the last one and store nothing.
    const double *rows = &matrices[min(matrix, count - 1) * (N * N)];
    factors += (size_t)(matrix * (N * N));
    double a[N];
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        *(double2 *)&a[i] = *(const double2 *)&rows[row * N + i];
    }
    unsigned place = 0;
    bool is_free = true;
#pragma unroll
    for (int k = 0; k < N; k++) {
        double size = is_free ? fabs(a[k]) : -1.0;
        unsigned pivot = row;
#pragma unroll
        for (int step = N / 2; step > 0; step /= 2) {
            double other = __shfl_xor_sync(~0u, size, step, N);
            unsigned other_row = __shfl_xor_sync(~0u, pivot, step, N);
            bool better = other > size || (other == size && other_row < pivot);
            size = better ? other : size;
            pivot = better ? other_row : pivot;
        }
        place = row == pivot ? k : place;
        is_free = is_free && row != pivot;
        double reciprocal = 1.0 / from_lane(a[k], pivot);
        double factor = is_free ? a[k] * reciprocal : 0.0;
        a[k] = is_free ? factor : a[k];
#pragma unroll
        for (int j = k + 1; j < N; j++) {
            a[j] -= factor * from_lane(a[j], pivot);
        }
    }
    if (matrix < count) {
        pivots[matrix * N + place] = row;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            *(double2 *)&factors[place * N + i] = *(double2 *)&a[i];
        }
    }
}
