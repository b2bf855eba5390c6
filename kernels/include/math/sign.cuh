// The sign of any type.
#pragma once

namespace math {

// NumPy's sign: NaN stays NaN, both zeros give +0.
template <class C> __device__ __forceinline__ C sign(C x) {
  return x > C(0) ? C(1) : x < C(0) ? C(-1) : x == C(0) ? C(0) : x; }

}  // namespace math
