// Gradients of norms. With n = (x - mean) rstd and g = grad weight, along a row
//   grad_x = rstd (g - mean(g) - n mean(g n)),  the first mean only where the norm is CENTERED,
// and over all rows grad_weight = sum(grad n), grad_bias = sum(grad).
#pragma once
#include "rows/place.cuh"

namespace norms {

enum With { WEIGHT = 1, BIAS = 2 };
enum Operand { GRAD_X, GRAD, X, MEAN, RSTD, SCALE, OPERANDS };

template <class I, int R, int RC> using Places = rows::Places<I, R, RC, OPERANDS>;

// mean and rstd that the forward op saved for a row.
template <bool CENTERED, class C> struct Statistics {
  C mean, rstd;
  template <class P>
  __device__ __forceinline__ Statistics(const P& places, const typename P::Row& at, const C* means, const C* rstds)
      : mean(CENTERED ? *places.template of_row<MEAN>(means, at) : C(0)),
        rstd(*places.template of_row<RSTD>(rstds, at)) {}
  __device__ __forceinline__ C normal(C x) const { return (x - mean) * rstd; }
};

// A stripe's rows of `partial`: [stripes][grad_weight and grad_bias, those requested][length].
template <int WITH, class C, class I> struct Partial {
  C *weight, *bias;
  __device__ __forceinline__ Partial(C* partial, u32 stripe, I length)
      : weight(partial + i64(stripe) * ((WITH & WEIGHT) + (WITH & BIAS) / 2) * length),
        bias(weight + (WITH & WEIGHT) * length) {}
};

}  // namespace norms
