// Flat index to byte offsets: division by invariant integers, and dims structs passed by value.
#pragma once
#include "core/dtype.cuh"

// Division by an invariant divisor (T. Granlund and P. L. Montgomery, "Division by invariant integers using
// multiplication", PLDI 1994): floor(n / d) for n < 2^31 as one high multiply and a shift.
struct Divisor32 {
  u32 divisor, multiplier, shift, unused;
  __device__ __forceinline__ u32 divide(u32 n) const { return divisor == 1 ? n : __umulhi(n, multiplier) >> shift; }
};
struct Divisor64 {
  u64 divisor, unused;
  __device__ __forceinline__ u64 divide(u64 n) const { return n / divisor; }
};
template <class I> struct DivisorOf;
template <> struct DivisorOf<u32> { using type = Divisor32; };
template <> struct DivisorOf<u64> { using type = Divisor64; };

// R extents, innermost last, and the byte strides of N operands.
template <class I, int R, int N> struct Dims {
  typename DivisorOf<I>::type extent[R > 0 ? R : 1];
  i64 stride[N][R > 0 ? R : 1];

  // Adds to `offset` each operand's byte offset at flat index `i`.
  __device__ __forceinline__ void locate(I i, i64 (&offset)[N]) const {
#pragma unroll
    for (int axis = R - 1; axis >= 0; --axis) {
      I rest = axis > 0 ? extent[axis].divide(i) : 0;
      i64 at = axis > 0 ? i64(i - rest * extent[axis].divisor) : i64(i);
#pragma unroll
      for (int k = 0; k < N; ++k) offset[k] += at * stride[k][axis];
      i = rest;
    }
  }
};
