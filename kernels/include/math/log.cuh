// The natural logarithm.
#pragma once
#include "math/approx.cuh"

namespace math {

template <int digits> __device__ __forceinline__ float log(float x) {
  if constexpr (digits <= BF16) { float y; asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y * LN2; }
  return ::logf(x);
}
template <int> __device__ __forceinline__ double log(double x) { return ::log(x); }

}  // namespace math
