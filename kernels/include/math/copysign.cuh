// |a| with the sign of b.
#pragma once

namespace math {

__device__ __forceinline__ float copysign(float a, float b) { return ::copysignf(a, b); }
__device__ __forceinline__ double copysign(double a, double b) { return ::copysign(a, b); }

}  // namespace math
