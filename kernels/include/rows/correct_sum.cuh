// Sums that, rounded once more, are the exact sums rounded once.
#pragma once
#include "dtype.cuh"

namespace rows {

// a + b for a result of type T. For 16-bit T the f32 sum is rounded to odd: an inexact one whose last digit is even gives way to
// its neighbour on the exact sum's side (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE TC 57(4),
// 2008). The error of a + b is exact in f32 (D. Knuth, TAOCP vol. 2, section 4.2.2).
template <class T, class C> __device__ __forceinline__ C sum_for(C a, C b) {
  const C sum = a + b;
  if constexpr (sizeof(T) < sizeof(C)) {
    const C by_b = __fsub_rn(sum, a), error = __fadd_rn(__fsub_rn(a, __fsub_rn(sum, by_b)), __fsub_rn(b, by_b));
    const u32 bits = __float_as_uint(sum);
    if ((error > 0 || error < 0) && !(bits & 1)) return __uint_as_float((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
  }
  return sum;
}

}  // namespace rows
