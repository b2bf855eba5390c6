// x tanh(log(1 + exp(x))).
#pragma once

namespace math {

// x n / (n + 2) with n = e^x (e^x + 2); the factor is 1 long before exp overflows.
template <class C> __device__ __forceinline__ C mish(C x) {
  const C e = ::exp(x > C(40) ? C(40) : x);
  const C n = e * (e + C(2));
  return n == C(0) ? C(-0.0) : x * (n / (n + C(2)));
}

}  // namespace math
