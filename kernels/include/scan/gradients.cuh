// What gradients of running reductions put together: from the last element to the first, a state of all later elements.
// Op: Element (grad, x and y, or the y before it: OF_PRECEDING), State; none() of nothing, one(element), join(earlier,
// later), which is associative, and finish(element, later), the element's gradient.
#pragma once
#include "core/dtype.cuh"
#include "math/exp.cuh"
#include "rows/shifted_sum.cuh"

namespace scan {

template <class C> struct GradientElement { C grad, x, y; };

// grad_x[i] = y[i-1] (grad[i] + x[i+1] (grad[i+1] + x[i+2] (...))). `factor`: the product of the x of some elements;
// `sum`: what they pass on to the element before them. No division, so that zeros need no case of their own.
template <class C> struct ProductGradient {
  using Element = GradientElement<C>;
  struct State { C factor, sum; };
  static constexpr bool OF_PRECEDING = true;
  static __device__ __forceinline__ State none() { return {C(1), C(0)}; }
  static __device__ __forceinline__ State one(const Element& e) { return {e.x, e.x * e.grad}; }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    return {a.factor * b.factor, a.sum + a.factor * b.sum};
  }
  static __device__ __forceinline__ C finish(const Element& e, const State& later) {
    return e.y * (e.grad + later.sum);
  }
};

// grad_x[i] = the sum of grad from i until the next element that is the extremum up to it, where i is one, else 0.
// `sum`: that of the elements before the first such one; `open`: whether there is none.
template <class C> struct ExtremumGradient {
  using Element = GradientElement<C>;
  struct State { C sum; u32 open; };
  static constexpr bool OF_PRECEDING = false;
  static __device__ __forceinline__ bool wins(const Element& e) { return e.x == e.y || e.x != e.x; }
  static __device__ __forceinline__ State none() { return {C(0), 1}; }
  static __device__ __forceinline__ State one(const Element& e) {
    return wins(e) ? State{C(0), 0} : State{e.grad, 1};
  }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    return {a.open ? a.sum + b.sum : a.sum, a.open & b.open};
  }
  static __device__ __forceinline__ C finish(const Element& e, const State& later) {
    return wins(e) ? e.grad + later.sum : C(0);
  }
};

// grad_x[i] = sum over j >= i of grad[j] exp(x[i] - y[j]). `sum` of some elements: of grad[j] exp(at - y[j]), where
// `at` is the first y among them. y does not decrease, so that no exponential exceeds 1.
template <class C> struct LogSumExpGradient {
  using Element = GradientElement<C>;
  struct State { C at, sum; };
  static constexpr bool OF_PRECEDING = false;
  static __device__ __forceinline__ C weight(C a, C b) { return a == b ? C(1) : math::exp<24>(a - b); }
  static __device__ __forceinline__ State none() { return {-rows::minus_infinity<C>(), C(0)}; }
  static __device__ __forceinline__ State one(const Element& e) { return {e.y, e.grad}; }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    return {a.at, a.sum + weight(a.at, b.at) * b.sum};
  }
  static __device__ __forceinline__ C finish(const Element& e, const State& later) {
    return math::exp<24>(e.x - e.y) * join(one(e), later).sum;
  }
};

}  // namespace scan
