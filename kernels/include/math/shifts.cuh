// Shifts by any number: one that is negative or not below the width leaves no bit but the sign.
#pragma once
#include "core/dtype.cuh"

namespace math {

template <class C> __device__ __forceinline__ C left_shift(C a, C b) {
  return u64(b) < 8 * sizeof(C) ? C(u64(a) << u64(b)) : C(0);
}
template <class C> __device__ __forceinline__ C right_shift(C a, C b) {
  return u64(b) < 8 * sizeof(C) ? C(a >> int(b)) : a < C(0) ? C(-1) : C(0);
}

}  // namespace math
