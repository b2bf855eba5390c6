// out[i] = (word[offset + i] < threshold ? 0 : x[i] * scale) + residual[i], words of the stream (seed, subsequence).
//
// Grid:      strides over chunks of V elements, the words of whole Philox blocks.
// Mask:      is not stored; the gradient is the same function of the gradient.
// Access:    of 16 bytes where all operands are contiguous and aligned to it, else of one element.
// Zeros:     dropped elements are 0 whatever x is there, NaN and infinities included.
// Shared:    none.   Bound: DRAM, x and residual read and out written.
#include "core/index.cuh"
#include "random/chunk.cuh"
#include "random/distributions.cuh"
#include "rows/pack.cuh"

constexpr int THREADS = 256;

template <class T, class C>
__device__ __forceinline__ T dropped(T x, T residual, bool with_residual, bool kept, C scale) {
  if (!with_residual) return kept ? convert<T>(convert<C>(x) * scale) : convert<T>(C(0));
  const C rest = convert<C>(residual);
  return kept ? convert<T>(::fma(convert<C>(x), scale, rest)) : residual;
}

template <class I, class T, class C, int V, int R, bool RESIDUAL>
__global__ void __launch_bounds__(THREADS)
    dropout(T* out, const T* x, const T* residual, I count, u64 seed, u64 offset, u64 subsequence, const u64* position,
            u64 threshold, C scale, Dims<I, R, 3> dims) {
  const u64 begin = offset + (position ? *position : 0);
  const u32 least = u32(threshold);      // of a word that keeps its element
  const bool any = threshold >> 32 == 0;  // is kept
  for (I first = (I(blockIdx.x) * THREADS + threadIdx.x) * V; first < count; first += I(gridDim.x) * THREADS * V) {
    const bool whole = R == 0 && first + V <= count;
    rows::Pack<T, V> in, rest;
    if (whole) {
      in.load(x + first);
      if constexpr (RESIDUAL) rest.load(residual + first);
    }
    u32 word[V];
    philox::draw_chunk<philox::RandomBits<u32>>(seed, begin + first, subsequence, philox::Numbers<u64>(), word);
    if (whole) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        T& one = in.part[v / in.WIDTH].at[v % in.WIDTH];
        one = dropped(one, rest.part[v / in.WIDTH].at[v % in.WIDTH], RESIDUAL, any && word[v] >= least, scale);
      }
      in.store(out + first);
      continue;
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (first + v >= count) break;
      i64 at[3];
#pragma unroll
      for (int k = 0; k < 3; ++k) at[k] = R == 0 ? i64(first + v) * i64(sizeof(T)) : 0;
      if constexpr (R > 0) dims.locate(first + v, at);
      const T one = *reinterpret_cast<const T*>(reinterpret_cast<const char*>(x) + at[1]);
      T other = one;
      if constexpr (RESIDUAL) other = *reinterpret_cast<const T*>(reinterpret_cast<const char*>(residual) + at[2]);
      *reinterpret_cast<T*>(reinterpret_cast<char*>(out) + at[0]) =
          dropped(one, other, RESIDUAL, any && word[v] >= least, scale);
    }
  }
}
