// The larger and the smaller of two.
#pragma once

namespace math {

// NumPy's maximum and minimum: a NaN on either side is the result.
template <class C> __device__ __forceinline__ C maximum(C a, C b) { return a > b || a != a ? a : b; }
template <class C> __device__ __forceinline__ C minimum(C a, C b) { return a < b || a != a ? a : b; }
template <> __device__ __forceinline__ float maximum(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
template <> __device__ __forceinline__ float minimum(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

}  // namespace math
