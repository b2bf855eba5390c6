// out[i] = x[i] as one of its neighbours in T, the one further from 0 with the probability that is x's place between.
//
// Grid:      strides over chunks of V elements, the words of whole Philox blocks.
// Word:      that of position offset + i of the stream (seed, subsequence): out if word < 2**32 * what T cuts off.
// Access:    of 16 bytes at most where both are contiguous and aligned to it, else of one element.
// Shared:    none.   Bound: DRAM, x read and out written.
#include "core/index.cuh"
#include "random/chunk.cuh"
#include "random/distributions.cuh"
#include "rows/pack.cuh"

constexpr int THREADS = 256;
constexpr u32 INFINITE = 0x7f800000, LEADING = 1u << 23, LEAST_F16 = 113u << 23;  // of f32; 2^-14

template <class T> __device__ __forceinline__ T stochastic(float x, u32 word) {
  constexpr bool HALF = Same<T, f16>::value;
  constexpr u32 CUT = HALF ? 13 : 16, TOP = HALF ? 0x7c00 : 0x7f80, QUIET = HALF ? 0x200 : 0x40;
  const u32 bits = __float_as_uint(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  if (size >= INFINITE) return T{u16(sign | TOP | (size > INFINITE ? QUIET : 0))};
  // 1. the bits from those of T's number nearer to 0 on, and how many are cut off
  u32 whole = HALF ? size - (LEAST_F16 - LEADING) : size, cut = CUT;
  if (HALF && size < LEAST_F16) {
    const u32 exponent = size >> 23;
    whole = exponent ? (size & (LEADING - 1)) | LEADING : size;
    cut = CUT + 113 - (exponent ? exponent : 1);
    cut = cut < 56 ? cut : 56;
  }
  // 2. one more with the probability of what is cut off, to 2^-32
  const u64 parts = u64(whole) << 32 >> cut;
  const u32 made = u32(parts >> 32) + (word < u32(parts) ? 1 : 0);
  return T{u16(sign | (made < TOP ? made : TOP))};
}

// dims: byte strides of out and x.
template <class I, class T, int V, int R>
__global__ void __launch_bounds__(THREADS)
    stochastic_cast(T* out, const float* x, I count, u64 seed, u64 offset, u64 subsequence, const u64* position,
                    Dims<I, R, 2> dims) {
  const u64 begin = offset + (position ? *position : 0);
  for (I first = (I(blockIdx.x) * THREADS + threadIdx.x) * V; first < count; first += I(gridDim.x) * THREADS * V) {
    const bool whole = R == 0 && first + V <= count;
    float value[V];
    if (whole) rows::loaded<float, V>(x + first).widen(value);
    u32 word[V];
    philox::draw_chunk<philox::RandomBits<u32>>(seed, begin + first, subsequence, philox::Numbers<u64>(), word);
    if (whole) {
      rows::Pack<T, V> made;
#pragma unroll
      for (int v = 0; v < V; ++v) made.part[v / made.WIDTH].at[v % made.WIDTH] = stochastic<T>(value[v], word[v]);
      made.store(out + first);
      continue;
    }
    // the end of contiguous arrays, and strides
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (first + v >= count) break;
      i64 at[2] = {R == 0 ? i64(first + v) * i64(sizeof(T)) : 0, R == 0 ? i64(first + v) * 4 : 0};
      if constexpr (R > 0) dims.locate(first + v, at);
      const float one = *reinterpret_cast<const float*>(reinterpret_cast<const char*>(x) + at[1]);
      *reinterpret_cast<T*>(reinterpret_cast<char*>(out) + at[0]) = stochastic<T>(one, word[v]);
    }
  }
}
