// out[b] += how many elements of x have bin b; x is read once. Integer atomics: the same counts at every call.
//
// Bins:    UNIFORM: min(floor((x - low) * (bins / (high - low))), bins - 1) for low <= x <= high, in f64; otherwise x
//          itself. Elements without a bin are left out, and set `status` if there is one.
// Grid:    a few CTAs per SM, which stride over vectors of 16 bytes, ITEMS in flight; or over elements (not VECTOR).
// Shared:  `copies` of all bins as u32 (SHARED), one per warp in turn, whose sums are added to out by 64-bit atomics;
//          without SHARED every element is an atomic in L2.
// Bound:   DRAM; shared atomics where elements are few bytes or most have the same bin.
#include "core/index.cuh"

constexpr int COUNT_THREADS = 512, ITEMS = 2;

// The bin of an element; negative if it has none.
template <bool UNIFORM> struct Bins {
  double low, high, scale;
  i64 bins;

  __device__ __forceinline__ Bins(double low, double high, i64 bins)
      : low(low), high(high), scale(UNIFORM ? double(bins) / (high - low) : 0), bins(bins) {}
  template <class T> __device__ __forceinline__ i64 of(T x) const {
    if constexpr (UNIFORM) {
      const double value = convert<double>(x);
      if (!(low <= value && value <= high)) return -1;
      const i64 bin = i64((value - low) * scale);
      return bin < bins ? bin : bins - 1;
    } else {
      return x >= 0 && i64(x) < bins ? i64(x) : -1;
    }
  }
};

template <class T, class I, int R, bool UNIFORM, bool VECTOR, bool SHARED>
__global__ void __launch_bounds__(COUNT_THREADS) count_bins(
    u64* out, i32* status, const u8* x, I count, i64 bins, u32 copies, double low, double high, Dims<I, R, 1> dims) {
  extern __shared__ u32 counters[];
  const Bins<UNIFORM> bin(low, high, bins);
  u32* const own = counters + (threadIdx.x / 32 % copies) * u32(bins);
  if constexpr (SHARED) {
    for (u32 i = threadIdx.x; i < copies * u32(bins); i += COUNT_THREADS) counters[i] = 0;
    __syncthreads();
  }
  bool left_out = false;
  const auto add = [&](T value) {
    const i64 to = bin.of(value);
    if (to < 0) left_out = true;
    else if constexpr (SHARED) atomicAdd(own + to, 1u);
    else atomicAdd(out + to, u64(1));
  };

  // 1. count
  constexpr int V = VECTOR ? 16 / int(sizeof(T)) : 1;
  const u64 vectors = u64(count) / V, step = u64(gridDim.x) * COUNT_THREADS;
  for (u64 i = u64(blockIdx.x) * COUNT_THREADS + threadIdx.x; i < vectors; i += step * ITEMS) {
    Vec<T, V> some[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
      if (i + j * step >= vectors) break;
      if constexpr (VECTOR) {
        some[j] = reinterpret_cast<const Vec<T, V>*>(x)[i + j * step];
      } else {
        i64 offset[1] = {0};
        dims.locate(I(i + j * step), offset);
        some[j].at[0] = *reinterpret_cast<const T*>(x + offset[0]);
      }
    }
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
      if (i + j * step >= vectors) break;
#pragma unroll
      for (int v = 0; v < V; ++v) add(some[j].at[v]);
    }
  }
  // the elements of no whole vector
  if (blockIdx.x == 0 && vectors * V + threadIdx.x < count)
    add(reinterpret_cast<const T*>(x)[vectors * V + threadIdx.x]);
  if (left_out && status) *status = 1;

  // 2. add to the result
  if constexpr (SHARED) {
    __syncthreads();
    for (u32 b = threadIdx.x; b < u32(bins); b += COUNT_THREADS) {
      u32 found = 0;
      for (u32 c = 0; c < copies; ++c) found += counters[c * u32(bins) + b];
      if (found) atomicAdd(out + b, u64(found));
    }
  }
}
