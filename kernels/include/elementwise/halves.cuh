// 16-bit floats of doubles, rounded once: results that a kernel of several types gives in double.
#pragma once
#include "core/dtype.cuh"
#include "math/odd.cuh"

template <> struct Convert<f16, double> {
  static __device__ __forceinline__ f16 from(double x) { return convert<f16>(math::odd(x)); }
};
template <> struct Convert<bf16, double> {
  static __device__ __forceinline__ bf16 from(double x) { return convert<bf16>(math::odd(x)); }
};
