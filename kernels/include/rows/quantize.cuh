// Symmetric quantization to 8 bits: scale = max(absmax / MOST, 2^-126), or 1 for a row of zeros; code = x * (1 /
// scale), rounded to nearest even and saturated to +-MOST. absmax ignores inf and NaN; NaN is stored as 0 (i8) or NaN
// (e4m3). All in f32.
#pragma once
#include "math/cast.cuh"
#include "rows/group.cuh"
#include "rows/pack.cuh"

namespace cache {

enum Scaling { STORED, MADE, GIVEN };  // no quantization; scale computed and stored; scale per head given

template <class P> struct Code;
template <> struct Code<i8> {
  static constexpr float MOST = 127.0f;
  static __device__ __forceinline__ i8 of(float x) { return i8(min(max(__float2int_rn(x), -127), 127)); }
};
template <> struct Code<e4m3> {
  static constexpr float MOST = 448.0f;
  static __device__ __forceinline__ e4m3 of(float x) { return e4m3{math::code<3, 7, 0x7f>(x, 0x7e, 0x7f)}; }
};

// max(most, |x|); inf and NaN are ignored.
__device__ __forceinline__ float larger(float most, float x) {
  const float size = fabsf(x);
  return size > most && size < __uint_as_float(0x7f800000) ? size : most;
}

template <int LANES> __device__ __forceinline__ float largest_of(float x) {
  return rows::group_reduce<LANES>(x, [](float a, float b) { return fmaxf(a, b); });
}

template <class P> __device__ __forceinline__ float scale_of(float largest) {
  return largest > 0.0f ? fmaxf(largest / Code<P>::MOST, 1.17549435e-38f) : 1.0f;
}

template <class P, int V, class Row> __device__ __forceinline__ void put_codes(P* to, const Row& row, float inverse) {
  float x[V];
  row.widen(x);
  Vec<P, V> codes;
#pragma unroll
  for (int k = 0; k < V; ++k) codes.at[k] = Code<P>::of(x[k] * inverse);
  *reinterpret_cast<Vec<P, V>*>(to) = codes;
}

}  // namespace cache
