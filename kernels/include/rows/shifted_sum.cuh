// The sum of exponentials as exp(max) * sum, so that it neither overflows nor vanishes; one pass over the terms (M. Milakov and
// N. Gimelshein, "Online normalizer calculation for softmax", 2018).
#pragma once
#include "math/exp.cuh"
#include "math/extrema.cuh"

namespace rows {

template <class C> __device__ __forceinline__ C minus_infinity() { return C(__uint_as_float(0xff800000)); }

// sum exp(x) = exp(most) sum. Nothing yet, or only -inf: most is -inf and sum 0.
template <class C, int DIGITS> struct ShiftedSum {
  C most, sum;
  static __device__ __forceinline__ ShiftedSum none() { return {minus_infinity<C>(), C(0)}; }
  // What is subtracted from an argument: 0 for -inf, whose exponential is then 0 and not NaN.
  static __device__ __forceinline__ C shift(C most) { return most == minus_infinity<C>() ? C(0) : most; }

  template <int V> __device__ __forceinline__ void add(const C (&x)[V]) {
    C next = most;
#pragma unroll
    for (int v = 0; v < V; ++v) next = math::maximum(next, x[v]);
    const C by = shift(next);
    sum *= math::exp<DIGITS>(shift(most) - by);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += math::exp<DIGITS>(x[v] - by);
    most = next;
  }
  static __device__ __forceinline__ ShiftedSum join(const ShiftedSum& a, const ShiftedSum& b) {
    const C most = math::maximum(a.most, b.most), by = shift(most);
    return {most, a.sum * math::exp<DIGITS>(shift(a.most) - by) + b.sum * math::exp<DIGITS>(shift(b.most) - by)};
  }
};

}  // namespace rows
