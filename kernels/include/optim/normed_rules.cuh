// Rules whose step size is an array's own, from the norms of its parameters and of their update: beside the members
// of the rules in rules.cuh, `direction` is the update of an element, and `step_size` what the array multiplies it by,
// which `update` reads as factor[STEP_SIZE]. An array of either norm 0 takes the learning rate itself.
#pragma once
#include "optim/rules.cuh"

namespace optim {

constexpr int STEP_SIZE = FACTORS - 1;  // the learning rate, until it is an array's step size

// LAMB (Y. You et al., ICLR 2020): Adam's update, weight decay added to it, times norm / its norm.
// Hyperparameters: beta1, beta2, eps, weight_decay.
struct LambRule {
  static constexpr int STATES = 2;

  static __device__ void prepare(double lr, const double (&hyper)[5], double step, double (&factor)[FACTORS]) {
    factor[0] = hyper[3];
    factor[1] = 1 - hyper[0];
    factor[2] = hyper[1];
    factor[3] = 1 - hyper[1];
    factor[4] = 1 / ::sqrt(1 - ::pow(hyper[1], step));
    factor[5] = hyper[2];
    factor[6] = 1 / (1 - ::pow(hyper[0], step));
    factor[STEP_SIZE] = lr;
  }

  template <class C> static __device__ double step_size(double norm, double of_update, const C (&factor)[FACTORS]) {
    const double lr = double(factor[STEP_SIZE]);
    return norm == 0 || of_update == 0 ? lr : lr * (norm / of_update);
  }

  template <class C>
  static __device__ __forceinline__ C direction(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    state[0] += (g - state[0]) * factor[1];
    state[1] = factor[2] * state[1] + factor[3] * g * g;
    const C moved = factor[6] * (state[0] / (::sqrt(state[1]) * factor[4] + factor[5]));
    return factor[0] != 0 ? moved + factor[0] * p : moved;
  }

  template <class C>
  static __device__ __forceinline__ C update(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    return p - factor[STEP_SIZE] * direction(p, g, state, factor);
  }
};

// LARS (Y. You, I. Gitman, B. Ginsburg, arXiv:1708.03888): the gradient, weight decay added to it, times
// trust_coefficient * norm / (its norm + eps), and a momentum of steps, or NESTEROV's.
// Hyperparameters: momentum, weight_decay, trust_coefficient, eps.
template <bool NESTEROV> struct LarsRule {
  static constexpr int STATES = 1;

  static __device__ void prepare(double lr, const double (&hyper)[5], double, double (&factor)[FACTORS]) {
    factor[0] = hyper[1];
    factor[1] = hyper[0];
    factor[2] = hyper[2];
    factor[3] = hyper[3];
    factor[STEP_SIZE] = lr;
  }

  template <class C> static __device__ double step_size(double norm, double of_update, const C (&factor)[FACTORS]) {
    const double lr = double(factor[STEP_SIZE]);
    const double share = double(factor[2]) * norm / (of_update + double(factor[3]));
    return norm == 0 || of_update == 0 ? lr : lr * share;
  }

  template <class C>
  static __device__ __forceinline__ C direction(C p, C g, C (&)[MOST_STATES], const C (&factor)[FACTORS]) {
    return factor[0] != 0 ? g + factor[0] * p : g;
  }

  template <class C>
  static __device__ __forceinline__ C update(C p, C g, C (&state)[MOST_STATES], const C (&factor)[FACTORS]) {
    const C moved = factor[STEP_SIZE] * direction(p, g, state, factor);
    state[0] = factor[1] * state[0] + moved;
    return p - (NESTEROV ? moved + factor[1] * state[0] : state[0]);
  }
};

}  // namespace optim
