// Floats whose quotients and square roots are approximate: rcp.approx.ftz and sqrt.approx.ftz, of at most 2 unit
// roundoffs u each (PTX ISA, "Floating Point Instructions": 1 ulp; 2^-23). A rule that is computed in them keeps the
// bound of the IEEE operations, as it is counted in ops/optim/oracle/moments.py:
//   quotient with its factor, 5 u: reciprocal 2, product 1, factor 1, its product 1;
//   root over the correction, 3 u: root 2, correction 1. The product of both takes 1, and a root of a subnormal number,
//   which is 0 then, 1/32 (`approximates`): the subtraction of the step takes 1 of the 3 u that are counted of it.
#pragma once
#include "math/approx.cuh"

namespace optim {

struct Approximate {
  float x;

  Approximate() = default;
  __device__ __forceinline__ Approximate(float x) : x(x) {}
  __device__ __forceinline__ operator float() const { return x; }
  __device__ __forceinline__ void operator+=(float y) { x += y; }
  __device__ __forceinline__ void operator*=(float y) { x *= y; }
};

__device__ __forceinline__ Approximate operator/(Approximate a, float b) { return a.x * math::rcp_ftz(b); }

}  // namespace optim

// Found by the rules, which call ::sqrt: this header comes before theirs.
__device__ __forceinline__ optim::Approximate sqrt(optim::Approximate a) {
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(a.x));
  return root;
}

#include "optim/rules.cuh"

namespace optim {

// Where a rule that divides by root * correction + eps has these two among its factors; -1 where it has not.
template <class Rule> struct DivisorFactors { static constexpr int EPS = -1, CORRECTION = -1; };
template <bool DECOUPLED> struct DivisorFactors<AdamRule<DECOUPLED, false>> {
  static constexpr int EPS = 5, CORRECTION = 4;
};
template <> struct DivisorFactors<RmspropRule<false, false>> { static constexpr int EPS = 3, CORRECTION = -1; };
template <> struct DivisorFactors<AdagradRule> { static constexpr int EPS = 1, CORRECTION = -1; };

// Whether a rule that is computed in C may be computed in Approximate, for some eps; and for the one among `factor`: it
// outweighs the roots that are flushed, which are below 2^-63, and the divisor has a normal reciprocal, or is infinite
// or NaN.
template <class Rule, class C> __device__ constexpr bool approximable() {
  return DivisorFactors<Rule>::EPS >= 0 && Same<C, float>::value;
}
template <class Rule, class C> __device__ __forceinline__ bool approximates(const C (&factor)[FACTORS]) {
  constexpr int EPS = DivisorFactors<Rule>::EPS, CORRECTION = DivisorFactors<Rule>::CORRECTION;
  if constexpr (!approximable<Rule, C>()) return false;
  else if constexpr (CORRECTION < 0) return factor[EPS] >= 0x1p-34f && factor[EPS] <= 0x1p60f;
  else return factor[EPS] >= 0x1p-34f * factor[CORRECTION] && factor[EPS] <= 0x1p60f;
}

}  // namespace optim
