// Dot product, generic over the element.

constexpr unsigned THREADS = 256, WARPS = THREADS / 32;

template <typename T>
struct alignas(16) Vector {
    static constexpr unsigned SIZE = 16 / sizeof(T);
    T values[SIZE];
};

template <typename T>
__device__ T block_sum(T value)
{
    __shared__ T scratch[WARPS];
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(~0u, value, step);
    }
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = value;
    }
    __syncthreads();
    T total = scratch[0];
    for (int warp = 1; warp < WARPS; warp++) {
        total += scratch[warp];
    }
    return total;
}

// Each block's part of Σ xᵢ · yᵢ, in a fixed order. `length` is a multiple of the elements in 16 bytes.
template <typename T>
__global__ void __launch_bounds__(THREADS)
dot(const T *__restrict__ x, const T *__restrict__ y, T *__restrict__ parts, unsigned length)
{
    constexpr unsigned SIZE = Vector<T>::SIZE;
    T sum = 0;
    unsigned first = (blockIdx.x * THREADS + threadIdx.x) * SIZE;
    for (unsigned at = first; at < length; at += gridDim.x * THREADS * SIZE) {
        Vector<T> left = *(const Vector<T> *)&x[at], right = *(const Vector<T> *)&y[at];
        for (int i = 0; i < SIZE; i++) {
            sum += left.values[i] * right.values[i];
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
    }
}

// `compare` defines the element.
template __global__ void dot(const ELEMENT *, const ELEMENT *, ELEMENT *, unsigned);
