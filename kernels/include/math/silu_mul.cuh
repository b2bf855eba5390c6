// x sigmoid(x) y.
#pragma once
#include "math/exp.cuh"
#include "math/sigmoid.cuh"

namespace math {

// Below this exp(x) is near the subnormal range, and a large y would magnify the precision lost there.
template <class C> constexpr C LOW = C(-80);
template <> constexpr double LOW<double> = -700.0;

// No intermediate leaves the normal range unless the result does: s y first if x is small, exp(x) as four factors below
// the threshold.
template <int digits, class C> __device__ __forceinline__ C silu_mul(C x, C y) {
  if (x < LOW<C>) {
    if (x - x != C(0)) return C(-0.0) * y;  // -inf
    const C capped = x < LOW<C> * C(4) ? LOW<C> * C(4) : x, e = exp<digits>(capped * C(0.25));
    return capped * e * (y * e) * e * e;
  }
  const C s = sigmoid<digits>(x);
  return x > C(-1) && x < C(1) ? s * y * x : s * x * y;
}

}  // namespace math
