// The inverses of sine, cosine and tangent. For bf16 our own minimax fits of odd polynomials, 2^-14.9 relative.
#pragma once
#include "math/approx.cuh"
#include "math/short_sqrt.cuh"

namespace math {

constexpr float HALF_PI = 1.57079632679f, PI = 3.14159265359f;

// asin(x) for |x| <= 1/2, atan(x) for |x| <= 1.
__device__ __forceinline__ float short_asin(float x) {
  return x * polynomial(x * x, {1.0000311f, 0.16453882f, 0.09598823f});
}
__device__ __forceinline__ float short_atan(float x) {
  return x * polynomial(x * x, {0.99997002f, -0.33170086f, 0.1852157f, -0.09192659f, 0.023863405f});
}

// Beyond 1/2, pi / 2 less twice the angle whose sine is sqrt((1 - |x|) / 2).
template <int digits> __device__ __forceinline__ float asin(float x) {
  if constexpr (digits > BF16) return ::asinf(x);
  const float a = fabsf(x);
  const bool small = a < 0.5f;
  const float y = short_asin(small ? a : short_sqrt(fmaf(a, -0.5f, 0.5f)));
  return copysignf(small ? y : fmaf(y, -2.0f, HALF_PI), x);
}
template <int> __device__ __forceinline__ double asin(double x) { return ::asin(x); }

template <int digits> __device__ __forceinline__ float acos(float x) {
  if constexpr (digits > BF16) return ::acosf(x);
  const float a = fabsf(x);
  const bool small = a < 0.5f;
  const float y = short_asin(small ? x : short_sqrt(fmaf(a, -0.5f, 0.5f)));
  return fmaf(y, small ? -1.0f : copysignf(2.0f, x), small ? HALF_PI : x < 0.0f ? PI : 0.0f);
}
template <int> __device__ __forceinline__ double acos(double x) { return ::acos(x); }

template <int digits> __device__ __forceinline__ float atan(float x) {
  if constexpr (digits > BF16) return ::atanf(x);
  const float a = fabsf(x);
  const bool small = a <= 1.0f;
  const float y = short_atan(small ? a : rcp_ftz(a));
  return copysignf(small ? y : HALF_PI - y, x);
}
template <int> __device__ __forceinline__ double atan(double x) { return ::atan(x); }

__device__ __forceinline__ float least_or_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
// Scaled, so that the larger number has a reciprocal; 0 over 0 is 0, infinity over infinity 1.
template <int digits> __device__ __forceinline__ float atan2(float y, float x) {
  if constexpr (digits > BF16) return ::atan2f(y, x);
  const float a = fabsf(x), b = fabsf(y), most = fmaxf(a, b), least = least_or_nan(a, b);
  const float scale = most < 0x1p-100f ? 0x1p30f : 0.25f;
  float ratio = least * scale * rcp_ftz(fmaxf(most * scale, 0x1p-126f));
  if (least > 0x1.fffffep127f) ratio = 1.0f;
  float angle = short_atan(ratio);
  if (b > a) angle = HALF_PI - angle;
  if (__float_as_int(x) < 0) angle = PI - angle;
  return copysignf(angle, y);
}
template <int> __device__ __forceinline__ double atan2(double y, double x) { return ::atan2(y, x); }

}  // namespace math
