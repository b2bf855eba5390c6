// V adjacent elements of an array: in accesses of 16 bytes at most (ALIGNED), or those of them that there are.
#pragma once
#include "optim/pieces.cuh"

namespace optim {

// `count` elements are there, none or V at least if ALIGNED; others read as 0.
template <bool ALIGNED, class T, class C, int V>
__device__ __forceinline__ void load_run(const T* from, u32 count, C (&x)[V]) {
  if constexpr (ALIGNED) {
    ElementRun<T, V> held;
    if (count) held.load(reinterpret_cast<u64>(from));
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = count ? convert<C>(held.at(v)) : C(0);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = v < count ? convert<C>(from[v]) : C(0);
  }
}

template <bool ALIGNED, class T, class C, int V>
__device__ __forceinline__ void store_run(T* to, u32 count, const C (&x)[V]) {
  if constexpr (ALIGNED) {
    if (count) ElementRun<T, V>::store(reinterpret_cast<u64>(to), x);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (v < count) to[v] = convert<T>(x[v]);
  }
}

}  // namespace optim
