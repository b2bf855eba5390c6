// log(exp(x) + exp(y)).
#pragma once

namespace math {

// The larger, and log1p of the exponential of minus the difference; of equal infinities that would be NaN.
template <class C> __device__ __forceinline__ C log_add_exp(C x, C y) {
  return x == y ? x + C(0.6931471805599453094) : ::fmax(x, y) + ::log1p(::exp(-::fabs(x - y)));
}

}  // namespace math
