// Where each element of a result is in the source: one rule per axis, all of the same form.
#pragma once
#include "core/index.cuh"

// Index i of the result is at t = (clamp(i, first, last) + offset) mod period; t below `source` is in the source, at
// t / repeat. Above, it is at mirror - t, or nowhere where `mirror` is 0. Identity, shift, reversal, every way of
// padding, tiles and repeats are values of these numbers. `stride` counts bytes.
template <class I> struct Rule {
  typename DivisorOf<I>::type extent, period, repeat;
  I first, last, offset, source, mirror, unused;
  i64 stride;

  __device__ __forceinline__ I place(I i) const {
    i = i < first ? first : i;
    i = (i > last ? last : i) + offset;
    return i - period.divide(i) * period.divisor;
  }
  // The source's index for place t; false where there is none.
  __device__ __forceinline__ bool find(I& t) const {
    const bool there = t < source || mirror;
    t = t < source ? repeat.divide(t) : mirror - t;
    return there;
  }
};

// The rules of R axes, innermost last.
template <class I, int R> struct Rules {
  Rule<I> axis[R];

  // Adds the offset of row `rest` (the flat index over all axes but the last) in the source; false where it has none.
  // `row` is the index along the last but one axis.
  __device__ __forceinline__ bool find_row(I rest, i64& at, I& row) const {
    bool there = true;
    row = 0;
#pragma unroll
    for (int a = R - 2; a >= 0; --a) {
      const I next = a > 0 ? axis[a].extent.divide(rest) : 0;
      const I i = a > 0 ? rest - next * axis[a].extent.divisor : rest;
      if (a == R - 2) row = i;
      I t = axis[a].place(i);
      there &= axis[a].find(t);
      at += i64(t) * axis[a].stride;
      rest = next;
    }
    return there;
  }
};
