// code = index of the NF4 value nearest to x / absmax, absmax = max |x| of the block; and (double quantization) absmax
// minus its mean as 8-bit codes.
//
// nf4_quantize:   8 consecutive values per thread by accesses of V elements, LANES threads per block. Of 31 equal
//                 intervals of [-1, 1] each holds at most one of the 15 decision boundaries, so one comparison decides;
//                 lane i keeps the boundary of interval i, the others read it by shuffle.
// nf4_sum:        sums of 4096 absmax values in f64.
// nf4_magnitudes: one CTA per 256 absmax values, which share a scale; binary search in the map.
// Non-finite values count as 0.
// Shared:         256 bytes of intervals; the absmax map.
// Bound:          DRAM, values read once; about 10 instructions per value, of 16 that fit for bf16.
#include "ptx/overlap.cuh"
#include "quantized/nf4.cuh"
#include "rows/group.cuh"

constexpr int OF_SUM = 4096;

// The decision boundary of two neighbouring values: x above it gets the second code.
__device__ __forceinline__ float middle(const float* values, u32 code) {
  return 0.5f * __fadd_rn(values[code], values[code + 1]);
}

// The interval of x, 0 to 30, by rounding in the mantissa of 2^23. It is monotonic in x, so x and a boundary in
// different intervals compare like the intervals.
__device__ __forceinline__ u32 interval(float x) {
  return __float_as_uint(__fmaf_rn(x, 15.0f, 8388608.0f + 15.0f)) & 31;
}

template <class T, int V, int LANES, bool WORDS, int CTA, class I>
__global__ void __launch_bounds__(CTA) nf4_quantize(u8* codes, float* absmax, const T* x, I eights) {
  __shared__ float boundaries[32];
  __shared__ u32 below[32];
  const I eight = I(blockIdx.x) * CTA + threadIdx.x;
  const bool live = eight < eights;
  overlap::wait();
  // Eight values, non-finite ones as 0
  float a[8];
#pragma unroll
  for (int i = 0; i < 8; i += V) {
    Vec<T, V> some{};
    if (live) some = *reinterpret_cast<const Vec<T, V>*>(x + eight * 8 + i);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float each = convert<float>(some.at[k]);
      a[i + k] = fabsf(each) < __uint_as_float(0x7f800000) ? each : 0.0f;
    }
  }

  // 1. Interval table, while the loads are in flight: boundary inside, and number of boundaries below
  if (threadIdx.x < 32) {
    float boundary = __uint_as_float(0x7f800000);
    u32 passed = 0;
#pragma unroll
    for (u32 code = 0; code < 15; ++code) {
      const float next = middle(nf4::VALUES, code);
      passed += interval(next) < threadIdx.x;
      if (interval(next) == threadIdx.x) boundary = next;
    }
    boundaries[threadIdx.x] = boundary;
    below[threadIdx.x] = passed;
  }
  __syncthreads();
  const float own_boundary = boundaries[threadIdx.x % 32];
  const u32 own_below = below[threadIdx.x % 32];

  // 2. absmax of the block
  float most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(a[i]));
  most = rows::group_reduce<LANES>(most, [](float one, float other) { return fmaxf(one, other); });
  const nf4::Inverse normal(most);

  // 3. Codes: boundaries below the interval, plus one comparison
  u32 word = 0;
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const float each = normal(a[i]);
    const u32 at = interval(each), passed = __shfl_sync(~0u, own_below, at);
    const float boundary = __shfl_sync(~0u, own_boundary, at);
    word |= (passed + (each > boundary)) << nf4::place(i);
  }
  if (!live) return;
  if constexpr (WORDS) {
    *reinterpret_cast<u32*>(codes + eight * 4) = word;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[eight * 4 + i] = u8(word >> 8 * i);
  }
  if (threadIdx.x % LANES == 0) absmax[eight / LANES] = most;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS) nf4_sum(double* sums, const float* absmax, u32 blocks) {
  overlap::wait();
  double sum = 0;
#pragma unroll
  for (u32 i = 0; i < OF_SUM; i += THREADS) {
    const u32 block = blockIdx.x * OF_SUM + i + threadIdx.x;
    sum += block < blocks ? absmax[block] : 0.0f;
  }
  sum = rows::sum<THREADS>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
nf4_magnitudes(u8* codes, float* scales, float* offset, const float* absmax, const double* sums, u32 blocks) {
  __shared__ float map[THREADS];
  map[threadIdx.x] = nf4::mapped(threadIdx.x);
  overlap::wait();
  double sum = 0;
  for (u32 i = threadIdx.x; i < (blocks + OF_SUM - 1) / OF_SUM; i += THREADS) sum += sums[i];
  const float mean = float(rows::sum<THREADS>(sum) / blocks);  // its barrier also covers the map

  const u32 block = blockIdx.x * THREADS + threadIdx.x;
  const float x = block < blocks ? __fsub_rn(absmax[block], mean) : 0.0f;
  const float most = rows::group_reduce<THREADS>(fabsf(x), [](float one, float other) { return fmaxf(one, other); });
  const float each = nf4::Inverse(most)(x);

  // Binary search: number of boundaries below
  u32 code = 0;
#pragma unroll
  for (u32 step = 128; step; step /= 2) code += each > middle(map, code + step - 1) ? step : 0;
  if (block < blocks) codes[block] = u8(code);
  if (threadIdx.x == 0) scales[blockIdx.x] = most;
  if (block == 0) *offset = mean;
}
