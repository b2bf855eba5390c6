// Online softmax normalizer: a sum of exponentials as exp(max) * sum, without overflow or underflow, in one pass (M.
// Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018).
#pragma once
#include "math/exp.cuh"
#include "math/extrema.cuh"
#include "rows/group.cuh"

namespace rows {

template <class C> __device__ __forceinline__ C minus_infinity() { return C(__uint_as_float(0xff800000)); }

// sum exp(x) = exp(most) * sum. Without terms, or with -inf only: most = -inf, sum = 0.
template <class C, int DIGITS> struct ShiftedSum {
  C most, sum;
  static __device__ __forceinline__ ShiftedSum none() { return {minus_infinity<C>(), C(0)}; }
  // The subtrahend for a maximum: 0 for -inf, so that exp(-inf - shift) is 0 and not NaN.
  static __device__ __forceinline__ C shift(C most) { return most == minus_infinity<C>() ? C(0) : most; }

  // exp(x); results below 2^-126 may flush to 0, because a sum contains a term of 1.
  static __device__ __forceinline__ C term(C x) {
    if constexpr (DIGITS <= math::F16) return math::ex2_ftz(x * math::LOG2E);
    else return math::exp<DIGITS>(x);
  }

  template <int V> __device__ __forceinline__ void add(const C (&x)[V]) {
    C next = most;
#pragma unroll
    for (int v = 0; v < V; ++v) next = math::maximum(next, x[v]);
    const C by = shift(next);
    sum *= term(most - by);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += term(x[v] - by);
    most = next;
  }
  static __device__ __forceinline__ ShiftedSum join(const ShiftedSum& a, const ShiftedSum& b) {
    const C most = math::maximum(a.most, b.most), by = shift(most);
    return {most, a.sum * term(a.most - by) + b.sum * term(b.most - by)};
  }
  // Of several states, the maximum first.
  template <int COUNT> static __device__ __forceinline__ ShiftedSum join_all(const ShiftedSum* all) {
    C most = all[0].most, sum = 0;
#pragma unroll
    for (int i = 1; i < COUNT; ++i) most = math::maximum(most, all[i].most);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum += all[i].sum * term(all[i].most - shift(most));
    return {most, sum};
  }
  // State of a group: the maximum first, so that every thread's sum is rescaled once.
  template <int LANES> static __device__ __forceinline__ ShiftedSum gather(const ShiftedSum& own) {
    const C most = group_reduce<LANES, 0>(own.most, [](C a, C b) { return math::maximum(a, b); });
    return {most, rows::sum<LANES, 1>(own.sum * term(own.most - shift(most)))};
  }
};

}  // namespace rows
