// log(1 + exp(beta x)) / beta.
#pragma once

namespace math {

// exp(-|y|) of y = beta x as rounded, times 1 - r, with r the part of |y| that was rounded away.
template <class C> __device__ __forceinline__ C softplus(C x, C beta) {
  const C y = beta * x, size = ::fabs(y);
  if (y > C(750)) return x;  // which beta * x may have overflowed from
  const C r = ::copysign(C(1), y) * ::fma(beta, x, -y);
  const C e = ::exp(-size);
  return (::fmax(y, C(0)) + ::log1p(e == C(0) ? e : ::fma(-e, r, e)) + (y == y ? C(0) : y)) / beta;
}

}  // namespace math
