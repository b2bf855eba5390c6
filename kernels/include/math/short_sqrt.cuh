// The square root of a number in the normal range, or of 0, for 16-bit results.
#pragma once

namespace math {

__device__ __forceinline__ float short_sqrt(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace math
