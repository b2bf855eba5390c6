// W elements of an array, in accesses of 16 bytes at most.
#pragma once
#include "core/dtype.cuh"

namespace optim {

template <class T, int W> struct ElementRun {
  static constexpr int ACCESS = W * sizeof(T) > 16 ? 16 / sizeof(T) : W;
  static constexpr u32 ALIGN = ACCESS * sizeof(T);
  Vec<T, ACCESS> part[W / ACCESS];

  __device__ __forceinline__ T at(int i) const { return part[i / ACCESS].at[i % ACCESS]; }
  __device__ __forceinline__ void load(u64 address) {
#pragma unroll
    for (int k = 0; k < W / ACCESS; ++k) part[k] = reinterpret_cast<const Vec<T, ACCESS>*>(address)[k];
  }
  template <class C> static __device__ __forceinline__ void store(u64 address, const C (&x)[W]) {
#pragma unroll
    for (int k = 0; k < W / ACCESS; ++k) {
      C own[ACCESS];
#pragma unroll
      for (int i = 0; i < ACCESS; ++i) own[i] = x[k * ACCESS + i];
      reinterpret_cast<Vec<T, ACCESS>*>(address)[k] = round_to<T, ACCESS>(own);
    }
  }
};

}  // namespace optim
