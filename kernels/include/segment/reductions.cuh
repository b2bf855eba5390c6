// The reductions of rows of a segment, and where rows are.
#pragma once
#include "math/exp.cuh"
#include "math/extrema.cuh"
#include "math/log.cuh"
#include "rows/pack.cuh"
#include "rows/shifted_sum.cuh"
#include "segment/bounds.cuh"
#include "core/index.cuh"

namespace segment {

// Byte offsets: of a column in x and in the gradient, and from a row of either to the next. RC = 0: columns are
// contiguous.
template <int RC> struct Rows {
  Dims<u32, RC, 2> columns;
  i64 step[2];

  template <class T> __device__ __forceinline__ void column(u32 column, i64 (&at)[2]) const {
    at[0] = at[1] = 0;
    if constexpr (RC > 0) columns.locate(column, at);
    else at[0] = at[1] = i64(column) * i64(sizeof(T));
  }
};

// The entries of segments: each row once, in order, or those that a list names, times their weights.
struct Every {
  using Weight = u32;
  const u32* listed;
  const Weight* weights;

  __device__ __forceinline__ u32 row(u32 i) const { return i; }
  template <class C> __device__ __forceinline__ C weight(u32) const { return C(1); }
};
template <class W, bool WEIGHTED> struct Listed {
  using Weight = W;
  const u32* listed;
  const Weight* weights;

  __device__ __forceinline__ u32 row(u32 i) const { return listed[i]; }
  template <class C> __device__ __forceinline__ C weight(u32 i) const {
    if constexpr (WEIGHTED) return convert<C>(weights[i]);
    return C(1);
  }
};

constexpr int DIGITS = 24;  // of exp and log, in full

// What a reduction's gradient, or a softmax, is made of: an array's row of the segment, its own row, or none.
enum Spread { SEGMENTS, ROWS, NOTHING };

// A reduction: the term of an element, of the segment's result and of the element of a second array, how terms are
// joined, and the result of `rows` of them, which is stored as Out; of its gradient, the part of an element.
struct Sum {
  static constexpr bool READS_RESULT = false, READS_GRADIENT = false, READS_SECOND = false;
  static constexpr bool READS_ELEMENT = false, READS_STATS = false;
  static constexpr Spread SPREADS = SEGMENTS;
  template <class T, class C> using Out = T;
  template <class C> static __device__ __forceinline__ C identity() { return C(0); }
  template <class C> static __device__ __forceinline__ C term(C x, C, C) { return x; }
  template <class C> static __device__ __forceinline__ C join(C a, C b) { return a + b; }
  template <class C> static __device__ __forceinline__ C result(C x, u32, C) { return x; }
  template <class C> static __device__ __forceinline__ C spread(C grad, u32, C, C, C) { return grad; }
};
struct Mean : Sum {
  template <class C> static __device__ __forceinline__ C spread(C grad, u32 rows, C, C, C) { return grad / C(rows); }
  template <class C> static __device__ __forceinline__ C result(C x, u32 rows, C) { return rows ? x / C(rows) : C(0); }
};
struct Max : Sum {
  template <class C> static __device__ __forceinline__ C identity() { return rows::minus_infinity<C>(); }
  template <class C> static __device__ __forceinline__ C join(C a, C b) { return math::maximum(a, b); }
};
struct MaxOrZero : Max {  // 0 of nothing
  template <class C> static __device__ __forceinline__ C result(C x, u32 rows, C) { return rows ? x : C(0); }
};
struct Min : Sum {
  template <class C> static __device__ __forceinline__ C identity() { return -rows::minus_infinity<C>(); }
  template <class C> static __device__ __forceinline__ C join(C a, C b) { return math::minimum(a, b); }
};
struct Product : Sum {
  template <class C> static __device__ __forceinline__ C identity() { return C(1); }
  template <class C> static __device__ __forceinline__ C join(C a, C b) { return a * b; }
};
// Of its gradient: how many elements are 0, and by that the product of the others, where one is, or of all.
struct Zeros : Sum {
  template <class C> static __device__ __forceinline__ C term(C x, C, C) { return C(x == C(0)); }
};
struct OtherFactors : Product {
  static constexpr bool READS_RESULT = true, READS_ELEMENT = true, READS_STATS = true;
  template <class T, class C> using Out = C;
  template <class C> static __device__ __forceinline__ C term(C x, C zeros, C) {
    return x == C(0) && zeros == C(1) ? C(1) : x;
  }
  template <class C> static __device__ __forceinline__ C spread(C grad, u32, C x, C zeros, C product) {
    if (x == C(0)) return grad * product;
    return grad * (zeros == C(0) ? product / x : product * C(0));
  }
};
// The gradient of an extremum divided by how many elements are equal to it, or NaN; each of these gets it.
struct Share : Sum {
  static constexpr bool READS_RESULT = true, READS_GRADIENT = true, READS_ELEMENT = true;
  template <class C> static __device__ __forceinline__ C spread(C grad, u32, C x, C extremum, C) {
    return counts(x, extremum) ? grad : C(0);
  }
  template <class C> static __device__ __forceinline__ bool counts(C x, C extremum) { return x == extremum || x != x; }
  template <class C> static __device__ __forceinline__ C term(C x, C extremum, C) { return C(counts(x, extremum)); }
  template <class C> static __device__ __forceinline__ C result(C ties, u32, C grad) { return grad / ties; }
};
// The sum of such shares over the bags that name a row, for each element that is the extremum of the bag.
struct Shares : Share {
  static constexpr bool READS_GRADIENT = false, READS_SECOND = true;
  template <class C> static __device__ __forceinline__ C term(C share, C x, C extremum) {
    return counts(x, extremum) ? share : C(0);
  }
  template <class C> static __device__ __forceinline__ C result(C x, u32, C) { return x; }
};
// The sum of exp(x - most) by the maximum, and a softmax by both.
struct Softmax : Sum {
  static constexpr bool READS_RESULT = true, READS_ELEMENT = true, READS_STATS = true;
  static constexpr Spread SPREADS = NOTHING;
  template <class T, class C> using Out = C;
  template <class C> static __device__ __forceinline__ C exp_from(C x, C most) {
    return math::exp<DIGITS>(x - rows::ShiftedSum<C, DIGITS>::shift(most));
  }
  template <class C> static __device__ __forceinline__ C term(C x, C most, C) { return exp_from(x, most); }
  template <class C> static __device__ __forceinline__ C spread(C, u32, C x, C most, C sum) {
    return exp_from(x, most) / sum;
  }
};
// Its gradient y * (grad - sum of grad * y): that sum, and the part of an element.
struct SoftmaxGradient : Sum {
  static constexpr bool READS_SECOND = true, READS_ELEMENT = true, READS_STATS = true;
  static constexpr Spread SPREADS = ROWS;
  template <class T, class C> using Out = C;
  template <class C> static __device__ __forceinline__ C term(C y, C, C grad) { return y * grad; }
  template <class C> static __device__ __forceinline__ C spread(C grad, u32, C y, C, C sum) { return y * (grad - sum); }
};
// log(sum of exp(x)) by the maximum, passed as the gradient; of its own gradient, grad * exp(x - result).
struct LogSumExp : Softmax {
  static constexpr bool READS_GRADIENT = true, READS_STATS = false;
  static constexpr Spread SPREADS = SEGMENTS;
  template <class T, class C> using Out = T;
  template <class C> static __device__ __forceinline__ C result(C sum, u32, C most) {
    return most == -rows::minus_infinity<C>() ? most : math::log<DIGITS>(sum) + most;
  }
  template <class C> static __device__ __forceinline__ C spread(C grad, u32, C x, C result, C) {
    return grad * exp_from(x, result);
  }
};

// Writes the result of a segment of `rows`.
template <class Op, class T, class Out, class C, int V>
__device__ __forceinline__ void finish(Out* out, const C (&value)[V], u32 rows, const u8* grad) {
  C result[V], given[V];
  if (Op::READS_GRADIENT) rows::fetch<T>(given, reinterpret_cast<const T*>(grad));
#pragma unroll
  for (int v = 0; v < V; ++v) result[v] = Op::result(value[v], rows, Op::READS_GRADIENT ? given[v] : C(0));
  rows::put(out, result);
}

}  // namespace segment
