// x - tanh(x).
#pragma once

namespace math {

// Near zero (x cosh(x) - sinh(x)) / cosh(x): the terms 2 k / (2 k + 1)! x^(2 k + 1) of the numerator have one sign.
template <class C> __device__ __forceinline__ C tanhshrink(C x) {
  if (!(::fabs(x) < C(2))) return x - ::tanh(x);
  constexpr int TERMS = sizeof(C) == 4 ? 8 : 14;
  const C s = x * x;
  C sum = C(0);
#pragma unroll
  for (int k = TERMS; k > 0; --k)  // the ratio of one term's coefficient to that of the one before
    sum = C(1) + sum * s * C(double(k + 1) / (double(k) * (2 * k + 2) * (2 * k + 3)));
  const C y = x * (s * sum) * C(1.0 / 3);
  return x == C(0) ? x : y / ::cosh(x);
}

}  // namespace math
