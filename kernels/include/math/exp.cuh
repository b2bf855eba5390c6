// e to the x.
#pragma once
#include "math/approx.cuh"

namespace math {

template <int digits> __device__ __forceinline__ float exp(float x) {
  return digits <= F16 ? ex2(x * LOG2E) : ::expf(x);
}
template <int> __device__ __forceinline__ double exp(double x) { return ::exp(x); }

}  // namespace math
