// x / (1 + exp(-y)).
#pragma once

namespace math {

// exp(-|y| / 2) is multiplied twice, so that neither step leaves the range if the result does not.
template <class C> __device__ __forceinline__ C glu(C x, C y) {
  if (x == x && x - x != C(0) && y - y == C(0)) return x;
  const C e = ::exp(C(-0.5) * ::fabs(y));
  return (y < C(0) ? x * e * e : x) / (C(1) + e * e);
}

}  // namespace math
