// The square root and its reciprocal.
#pragma once
#include "math/approx.cuh"

namespace math {

template <int digits> __device__ __forceinline__ float sqrt(float x) {
  if constexpr (digits <= F16) { float y; asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
  return ::sqrtf(x);
}
template <int> __device__ __forceinline__ double sqrt(double x) { return ::sqrt(x); }

template <int> __device__ __forceinline__ float rsqrt(float x) { return ::rsqrtf(x); }
template <int> __device__ __forceinline__ double rsqrt(double x) { return ::rsqrt(x); }

}  // namespace math
