// Rules of optimizers: what a step computes once (`prepare`, in f64, from the hyperparameters in the order of the op's
// table), and what it does to one element (`update`), which has `STATES` states beside the parameter.
#pragma once
#include "core/dtype.cuh"

namespace optim {

constexpr int FACTORS = 8;  // what `prepare` makes, at most

// What all elements of a step share.
template <class C> struct StepScalars {
  C skip;   // not 0: nothing is written
  C scale;  // of the gradient
  C factor[FACTORS];
};

// Adam (D. P. Kingma, J. Ba, ICLR 2015) with weight decay added to the gradient, or, DECOUPLED, taken from the
// parameter (AdamW; I. Loshchilov, F. Hutter, ICLR 2019); AMSGRAD divides by the greatest second moment so far.
// Hyperparameters: beta1, beta2, eps, weight_decay.
template <bool DECOUPLED, bool AMSGRAD> struct AdamRule {
  static constexpr int STATES = AMSGRAD ? 3 : 2;

  static __device__ void prepare(double lr, const double (&hyper)[5], double step, double (&factor)[FACTORS]) {
    factor[0] = DECOUPLED ? 1 - lr * hyper[3] : hyper[3];
    factor[1] = 1 - hyper[0];
    factor[2] = hyper[1];
    factor[3] = 1 - hyper[1];
    factor[4] = 1 / ::sqrt(1 - ::pow(hyper[1], step));
    factor[5] = hyper[2];
    factor[6] = lr / (1 - ::pow(hyper[0], step));
  }

  template <class C>
  static __device__ __forceinline__ C update(C p, C g, C (&state)[STATES], const C (&factor)[FACTORS]) {
    if constexpr (DECOUPLED) p *= factor[0];
    else g += factor[0] * p;
    state[0] += (g - state[0]) * factor[1];
    state[1] = factor[2] * state[1] + factor[3] * g * g;
    C second = state[1];
    if constexpr (AMSGRAD) second = state[2] = second > state[2] || second != second ? second : state[2];
    return p - factor[6] * (state[0] / (::sqrt(second) * factor[4] + factor[5]));
  }
};

}  // namespace optim
