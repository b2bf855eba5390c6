// Quotients.
#pragma once
#include "math/approx.cuh"

namespace math {

template <int> __device__ __forceinline__ double divide(double a, double b) { return a / b; }
template <int digits> __device__ __forceinline__ float divide(float a, float b) {
  if constexpr (digits <= F16) { float y; asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
  return a / b;
}

}  // namespace math
