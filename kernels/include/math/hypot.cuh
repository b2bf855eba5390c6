// The length of (a, b).
#pragma once
#include "math/approx.cuh"
#include "math/short_sqrt.cuh"

namespace math {

// For bf16 numbers are scaled where squares would leave the normal range. Infinity also beside NaN.
template <int digits> __device__ __forceinline__ float hypot(float a, float b) {
  if constexpr (digits > BF16) return ::hypotf(a, b);
  const float most = fmaxf(fabsf(a), fabsf(b));
  const bool large = most > 0x1p60f, small = most < 0x1p-50f;
  const float scale = large ? 0x1p-80f : small ? 0x1p80f : 1.0f;
  a *= scale, b *= scale;
  const float size = short_sqrt(fmaf(a, a, b * b)) * (large ? 0x1p80f : small ? 0x1p-80f : 1.0f);
  return most > 0x1.fffffep127f ? most : size;
}
template <int> __device__ __forceinline__ double hypot(double a, double b) { return ::hypot(a, b); }

}  // namespace math
