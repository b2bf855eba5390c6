// Sums and factors of a vector that is divided by its length: norm = sqrt(sum(x**2)), dot = sum(grad x). In C.
#pragma once
#include "core/dtype.cuh"

namespace norms {

template <class C, bool GRADIENT> struct UnitSums {
  C squares, dot;

  static __device__ __forceinline__ UnitSums none() { return {C(0), C(0)}; }
  __device__ __forceinline__ void add(C x, C grad) { squares += x * x, dot += grad * x; }
  __device__ __forceinline__ UnitSums operator+(const UnitSums& other) const {
    return {squares + other.squares, dot + other.dot};
  }
};
template <class C> struct UnitSums<C, false> {
  C squares;

  static __device__ __forceinline__ UnitSums none() { return {C(0)}; }
  __device__ __forceinline__ void add(C x, C) { squares += x * x; }
  __device__ __forceinline__ UnitSums operator+(const UnitSums& other) const { return {squares + other.squares}; }
};

// scale x / max(norm, eps), or its gradients; where norm < eps, that of x is scale grad / eps.
template <class C, bool GRADIENT> struct UnitFactors {
  C length, factor, along;

  __device__ __forceinline__ UnitFactors(const UnitSums<C, GRADIENT>& sums, C scale, C eps) : along(0) {
    const C norm = ::sqrt(sums.squares);
    length = norm < eps ? eps : norm, factor = scale / length;
    if constexpr (GRADIENT) along = norm < eps ? C(0) : sums.dot / sums.squares;
  }
  __device__ __forceinline__ C operator()(C x, C grad) const { return factor * (GRADIENT ? grad - x * along : x); }
  // The gradient of the scale.
  __device__ __forceinline__ C of_scale(const UnitSums<C, GRADIENT>& sums) const { return sums.dot / length; }
};

}  // namespace norms
