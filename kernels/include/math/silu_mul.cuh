// x sigmoid(x) y.
#pragma once
#include "math/exp.cuh"
#include "math/sigmoid.cuh"

namespace math {

// Below this exp(x) is near the end of the normal range, and a large y would show what is lost there.
template <class C> constexpr C LOW = C(-80);
template <> constexpr double LOW<double> = -700.0;

// No intermediate leaves the normal range where the result does not: s y first where x is small, and exp(x) in four parts
// where that is.
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
