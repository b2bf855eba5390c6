// Floats as codes of 8-bit floats with a scale, and back: the conversions by which elementwise/map.cu stores and loads
// them, and the quotient.
#pragma once
#include "math/cast.cuh"

template <> struct Convert<e4m3, float> {
  static __device__ __forceinline__ e4m3 from(float x) { return math::cast<e4m3>(x); }
};
template <> struct Convert<e5m2, float> {
  static __device__ __forceinline__ e5m2 from(float x) { return math::cast<e5m2>(x); }
};
template <> struct Convert<float, e4m3> {
  static __device__ __forceinline__ float from(e4m3 x) { return math::plain(x); }
};
template <> struct Convert<float, e5m2> {
  static __device__ __forceinline__ float from(e5m2 x) { return math::plain(x); }
};

namespace math {

// x / scale, between the ends of the type's range; NaN stays.
__device__ __forceinline__ float divided_within(float x, float scale, float largest) {
  const float y = x / scale;
  return y != y ? y : ::fminf(::fmaxf(y, -largest), largest);
}

}  // namespace math
