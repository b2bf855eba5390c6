// Whether a number is negative, -0 included; a NaN is not.
#pragma once

namespace math {

template <class C> __device__ __forceinline__ bool signbit(C x) { return x < C(0); }
template <> __device__ __forceinline__ bool signbit(float x) { return x <= 0.0f && ::copysignf(1.0f, x) < 0.0f; }
template <> __device__ __forceinline__ bool signbit(double x) { return x <= 0.0 && ::copysign(1.0, x) < 0.0; }

}  // namespace math
