// Rules of optimizers: what a step computes once (`prepare`, in f64, from the hyperparameters in the order of the op's
// table), and what it does to one element (`update`), which has `STATES` states beside the parameter. Weight decay of 0
// reads no parameter.
#pragma once
#include "core/dtype.cuh"

namespace optim {

constexpr int FACTORS = 8;      // what `prepare` makes, at most
constexpr int MOST_STATES = 3;  // of any rule

// What all elements of a step share.
template <class C> struct StepScalars {
  C skip;   // not 0: nothing is written
  C scale;  // of the gradient
  C step;   // its number
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
  static __device__ __forceinline__ C update(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    if constexpr (DECOUPLED) p *= factor[0];
    else if (factor[0] != 0) g += factor[0] * p;
    state[0] += (g - state[0]) * factor[1];
    state[1] = factor[2] * state[1] + factor[3] * g * g;
    C second = state[1];
    if constexpr (AMSGRAD) second = state[2] = second > state[2] || second != second ? second : state[2];
    return p - factor[6] * (state[0] / (::sqrt(second) * factor[4] + factor[5]));
  }
};

// SGD, with MOMENTUM, or Nesterov's (I. Sutskever et al., ICML 2013), whose first step takes the gradient alone.
// Hyperparameters: momentum, dampening, weight_decay.
template <bool MOMENTUM, bool NESTEROV> struct SgdRule {
  static constexpr int STATES = MOMENTUM;

  static __device__ void prepare(double lr, const double (&hyper)[5], double step, double (&factor)[FACTORS]) {
    factor[0] = hyper[2];
    factor[1] = hyper[0];
    factor[2] = 1 - hyper[1];
    factor[3] = step == 1;
    factor[4] = lr;
  }

  template <class C>
  static __device__ __forceinline__ C update(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    if (factor[0] != 0) g += factor[0] * p;
    if constexpr (MOMENTUM) {
      state[0] = factor[3] != 0 ? g : factor[1] * state[0] + factor[2] * g;
      g = NESTEROV ? g + factor[1] * state[0] : state[0];
    }
    return p - factor[4] * g;
  }
};

// RMSprop (T. Tieleman, G. Hinton, 2012); CENTERED divides by the root of the variance (A. Graves, 2013).
// Hyperparameters: alpha, eps, weight_decay, momentum.
template <bool CENTERED, bool MOMENTUM> struct RmspropRule {
  static constexpr int STATES = 1 + CENTERED + MOMENTUM;

  static __device__ void prepare(double lr, const double (&hyper)[5], double, double (&factor)[FACTORS]) {
    factor[0] = hyper[2];
    factor[1] = hyper[0];
    factor[2] = 1 - hyper[0];
    factor[3] = hyper[1];
    factor[4] = hyper[3];
    factor[5] = lr;
  }

  template <class C>
  static __device__ __forceinline__ C update(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    if (factor[0] != 0) g += factor[0] * p;
    state[0] = factor[1] * state[0] + factor[2] * g * g;
    C square = state[0];
    if constexpr (CENTERED) {
      state[1] += (g - state[1]) * factor[2];
      square -= state[1] * state[1];
    }
    C moved = g / (::sqrt(square) + factor[3]);
    if constexpr (MOMENTUM) moved = state[1 + CENTERED] = factor[4] * state[1 + CENTERED] + moved;
    return p - factor[5] * moved;
  }
};

// Adagrad (J. Duchi, E. Hazan, Y. Singer, JMLR 12, 2011). Hyperparameters: lr_decay, weight_decay, eps.
struct AdagradRule {
  static constexpr int STATES = 1;

  static __device__ void prepare(double lr, const double (&hyper)[5], double step, double (&factor)[FACTORS]) {
    factor[0] = hyper[1];
    factor[1] = hyper[2];
    factor[2] = lr / (1 + (step - 1) * hyper[0]);
  }

  template <class C>
  static __device__ __forceinline__ C update(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    if (factor[0] != 0) g += factor[0] * p;
    state[0] += g * g;
    return p - factor[2] * (g / (::sqrt(state[0]) + factor[1]));
  }
};

// Lion (X. Chen et al., NeurIPS 2023). Hyperparameters: beta1, beta2, weight_decay.
struct LionRule {
  static constexpr int STATES = 1;

  static __device__ void prepare(double lr, const double (&hyper)[5], double, double (&factor)[FACTORS]) {
    factor[0] = 1 - lr * hyper[2];
    factor[1] = hyper[0];
    factor[2] = 1 - hyper[0];
    factor[3] = hyper[1];
    factor[4] = 1 - hyper[1];
    factor[5] = lr;
  }

  template <class C>
  static __device__ __forceinline__ C update(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    const C between = factor[1] * state[0] + factor[2] * g;
    const C sign = between > 0 ? C(1) : between < 0 ? C(-1) : between;
    state[0] = factor[3] * state[0] + factor[4] * g;
    return p * factor[0] - factor[5] * sign;
  }
};

}  // namespace optim
