// x sigmoid(x).
#pragma once
#include "math/sigmoid.cuh"

namespace math {

template <int digits, class C> __device__ __forceinline__ C silu(C x) {
  C s = sigmoid<digits>(x);
  return s == C(0) ? C(-0.0) : x * s;  // not -inf * 0
}

}  // namespace math
