// What the memory and the seams between launches allow a decode step: products with made-up weights of 2,304 bytes a row, in one
// captured graph of dependent launches with programmatic edges, beside a plain read of the same bytes. The input of a launch is
// what the launch before wrote; it is normalised and rounded to bytes by every CTA. No attention: a launch of two rows for each CTA
// stands for it. Sizes come from `skeleton.py`.
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o skeleton skeleton.cu
//   python3 skeleton.py BESPOKE SHAPE… > phases.txt && ./skeleton phases.txt
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#define CHECK(call)                                                                                                  \
  do {                                                                                                               \
    cudaError_t error = (call);                                                                                      \
    if (error != cudaSuccess) {                                                                                      \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                                                 \
      exit(1);                                                                                                       \
    }                                                                                                                \
  } while (0)

constexpr int WARPS = 8, ROW = 2304, STAGE = ROW * WARPS, MOST_INPUTS = 32768;

/// A launch: its rows of weights, and the number of its inputs.
struct Phase {
  const uint8_t* weights;
  int rows, inputs;
};

/// How a launch divides its work: stages in flight until the ring is full (0: all), and how many stages before its last load it lets
/// the next launch start (-1: at once).
struct Schedule {
  int in_flight, trigger;
};

template <int N>
struct Shared {
  alignas(128) uint8_t ring[N][STAGE];
  alignas(16) int8_t inputs[MOST_INPUTS];
  float sums[WARPS];
  uint64_t full[N], empty[N];
};

__device__ uint32_t address(const void* pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

__device__ void wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{.reg .pred done;\nAGAIN%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN%=;}"
      ::"r"(address(barrier)), "r"(parity) : "memory");
}

__device__ void consumers_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory"); }

/// RMSNorm of the inputs, rounded to bytes.
__device__ void load_inputs(const float* x, int count, int8_t* to, float* sums) {
  int thread = threadIdx.x, fours = count / 4;
  float squares = 0;
  float4 held[4];
  auto load = [&](int at) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"((const float4*)x + at));
    return v;
  };
#pragma unroll
  for (int i = 0; i < 4; i++) held[i] = thread + WARPS * 32 * i < fours ? load(thread + WARPS * 32 * i) : float4{};
#pragma unroll
  for (int i = 0; i < 4; i++) squares += held[i].x * held[i].x + held[i].y * held[i].y + held[i].z * held[i].z + held[i].w * held[i].w;
  for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
  if (thread % 32 == 0) sums[thread / 32] = squares;
  consumers_barrier();
  float total = 0;
  for (int i = 0; i < WARPS; i++) total += sums[i];
  float factor = rsqrtf(total / count + 1e-5f) * 20.f;
  auto store = [&](int at, float4 v) {
    ((char4*)to)[at] = {(char)(v.x * factor), (char)(v.y * factor), (char)(v.z * factor), (char)(v.w * factor)};
  };
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (thread + WARPS * 32 * i < fours) store(thread + WARPS * 32 * i, held[i]);
  // Down projections have more inputs and no norm.
#pragma unroll 4
  for (int at = thread + WARPS * 32 * 4; at < fours; at += WARPS * 32) store(at, load(at));
  consumers_barrier();
}

/// A row of 2,048 bytes of nibbles with 256 bytes of scales, by the integer units: as many instructions as the project's products.
__device__ float product(const uint8_t* row, const int (&x)[32], int lane) {
  uint2 scales = ((const uint2*)(row + 2048))[lane];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint4 v = ((const uint4*)row)[lane + 32 * i];
    uint32_t words[4] = {v.x, v.y, v.z, v.w};
    int low = 0, high = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      low = __dp4a((int)(words[j] & 0x0f0f0f0f), x[i * 8 + j], low);
      high = __dp4a((int)(words[j] >> 4 & 0x0f0f0f0f), x[i * 8 + 4 + j], high);
    }
    sum += (float)(scales.x >> 8 * i & 63) * (float)low + (float)(scales.y >> 8 * i & 63) * (float)high;
  }
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

template <int N>
__global__ void __launch_bounds__(WARPS * 32 + 32, 1) phase(Phase phase, const float* x, float* y, Schedule schedule) {
  extern __shared__ __align__(128) uint8_t raw[];
  Shared<N>& shared = *(Shared<N>*)raw;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < N; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&shared.full[i])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&shared.empty[i])), "n"(WARPS));
    }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (schedule.trigger < 0) asm volatile("griddepcontrol.launch_dependents;");
  int first = (long)phase.rows * blockIdx.x / gridDim.x, end = (long)phase.rows * (blockIdx.x + 1) / gridDim.x;
  int stage = 0, parity = 0;
  if (warp == WARPS) {
    if (lane) return;
    int stages = (end - first + WARPS - 1) / WARPS, last = max(0, stages - 1 - max(0, schedule.trigger));
    for (int n = 0; n < stages; n++) {
      if (schedule.trigger >= 0 && n == last) asm volatile("griddepcontrol.launch_dependents;");
      int row = first + n * WARPS, bytes = min(WARPS, end - row) * ROW;
      if (n >= N) wait(&shared.empty[stage], parity ^ 1);
      if (schedule.in_flight && n >= schedule.in_flight) {
        int before = n - schedule.in_flight;
        wait(&shared.full[before % N], before / N & 1);
      }
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&shared.full[stage])), "r"(bytes) : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
          ::"r"(address(shared.ring[stage])), "l"(phase.weights + (size_t)row * ROW), "r"(bytes),
          "r"(address(&shared.full[stage])), "l"(0x12F0000000000000ull) : "memory");
      if (++stage == N) stage = 0, parity ^= 1;
    }
    return;
  }
  asm volatile("griddepcontrol.wait;" ::: "memory");
  load_inputs(x, phase.inputs, shared.inputs, shared.sums);
  int held[32];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 8; j++) held[i * 8 + j] = ((const int*)(shared.inputs + (lane + 32 * i) * 32))[j];
  for (int row = first; row < end; row += WARPS) {
    wait(&shared.full[stage], parity);
    if (warp < end - row) {
      float sum = product(shared.ring[stage] + warp * ROW, held, lane);
      if (lane == 0) y[(row + warp) % MOST_INPUTS] = sum * 1e-3f;
    }
    __syncwarp();
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&shared.empty[stage])) : "memory");
    if (++stage == N) stage = 0, parity ^= 1;
  }
}

__global__ void read_all(const uint4* from, size_t count, unsigned* out) {
  size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
  unsigned all = 0;
  for (; at + 3 * step < count; at += 4 * step)
    for (int i = 0; i < 4; i++) {
      uint4 v = __ldcs(from + at + i * step);
      all ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  if (all == 0x12345) *out = all;
}

__global__ void fill(uint32_t* to, size_t count) {
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step) {
    uint32_t hash = (uint32_t)i * 2654435761u;
    hash = (hash ^ hash >> 15) * 2246822519u;
    to[i] = hash ^ hash >> 13;
  }
}

template <class F>
float median_ms(F run, cudaStream_t stream) {
  cudaEvent_t before, after;
  CHECK(cudaEventCreate(&before));
  CHECK(cudaEventCreate(&after));
  std::vector<float> times;
  for (int i = 0; i < 25; i++) {
    CHECK(cudaEventRecord(before, stream));
    run();
    CHECK(cudaEventRecord(after, stream));
    CHECK(cudaEventSynchronize(after));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, before, after));
    if (i >= 5) times.push_back(ms);
  }
  CHECK(cudaGetLastError());
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Model {
  std::string name;
  std::vector<Phase> phases;
};

template <int N>
float step_ms(const Model& model, Schedule schedule, int multiprocessors, float* x, float* y, cudaStream_t stream) {
  CHECK(cudaFuncSetAttribute(phase<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared<N>)));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemsetAsync(x, 0, MOST_INPUTS * 4, stream));
  for (size_t p = 0; p < model.phases.size(); p++) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = multiprocessors;
    config.blockDim = WARPS * 32 + 32;
    config.dynamicSmemBytes = sizeof(Shared<N>);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = p > 0;
    CHECK(cudaLaunchKernelEx(&config, phase<N>, model.phases[p], (const float*)(p % 2 ? y : x), p % 2 ? x : y, schedule));
  }
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  float ms = median_ms([&] { CHECK(cudaGraphLaunch(exec, stream)); }, stream);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return ms;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: skeleton PHASES\n");
    return 1;
  }
  std::ifstream file(argv[1]);
  std::vector<Model> models;
  // `model NAME`, then a line `BYTES INPUTS` for each launch.
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "model") {
      models.push_back({});
      words >> models.back().name;
    } else if (!first.empty() && !models.empty()) {
      int inputs = 0;
      words >> inputs;
      if (inputs > MOST_INPUTS) inputs = MOST_INPUTS;
      models.back().phases.push_back({nullptr, (int)(std::stoll(first) / ROW), inputs});
    }
  }
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int multiprocessors = properties.multiProcessorCount;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  printf("%s\n\n| model | launches | GB | read, ms | step, ms | of the read | ring, in flight, trigger |\n", properties.name);
  printf("| --- | ---: | ---: | ---: | ---: | ---: | --- |\n");
  for (Model& model : models) {
    size_t bytes = 0;
    for (const Phase& phase : model.phases) bytes += (size_t)phase.rows * ROW;
    uint8_t* weights;
    float *x, *y;
    unsigned* out;
    CHECK(cudaMalloc(&weights, bytes));
    CHECK(cudaMalloc(&x, MOST_INPUTS * 4));
    CHECK(cudaMalloc(&y, MOST_INPUTS * 4));
    CHECK(cudaMalloc(&out, 4));
    fill<<<1024, 256>>>((uint32_t*)weights, bytes / 4);
    CHECK(cudaMemset(y, 0, MOST_INPUTS * 4));
    CHECK(cudaDeviceSynchronize());
    size_t offset = 0;
    for (Phase& phase : model.phases) {
      phase.weights = weights + offset;
      offset += (size_t)phase.rows * ROW;
    }
    float read = median_ms([&] { read_all<<<multiprocessors * 8, 512, 0, stream>>>((uint4*)weights, bytes / 16, out); }, stream);
    float best = 1e9;
    std::string how;
    for (int in_flight : {0, 2, 3})
      for (int trigger : {-1, 0, 3}) {
        Schedule schedule = {in_flight, trigger};
        float times[] = {step_ms<6>(model, schedule, multiprocessors, x, y, stream),
                         step_ms<4>(model, schedule, multiprocessors, x, y, stream)};
        for (int i = 0; i < 2; i++)
          if (times[i] < best) {
            best = times[i];
            std::ostringstream text;
            text << (i ? 4 : 6) << ", " << in_flight << ", " << trigger;
            how = text.str();
          }
      }
    printf("| %s | %zu | %.3f | %.3f | %.3f | %.1f%% | %s |\n", model.name.c_str(), model.phases.size(), bytes / 1e9, read, best,
           100 * read / best, how.c_str());
    fflush(stdout);
    CHECK(cudaFree(weights));
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    CHECK(cudaFree(out));
  }
}
