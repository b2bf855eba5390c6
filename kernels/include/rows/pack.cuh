// V neighbours of a row in registers, as they are stored.
#pragma once
#include "dtype.cuh"

namespace rows {

// Moved by accesses of at most 16 bytes, each aligned to its own size.
template <class T, int V> struct Pack {
  static constexpr int WIDTH = V * int(sizeof(T)) > 16 ? 16 / int(sizeof(T)) : V;
  using Part = Vec<T, WIDTH>;
  Part part[V / WIDTH];

  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < V / WIDTH; ++i) part[i] = reinterpret_cast<const Part*>(from)[i];
  }
  __device__ __forceinline__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < V / WIDTH; ++i) reinterpret_cast<Part*>(to)[i] = part[i];
  }
  template <class C> __device__ __forceinline__ void widen(C (&x)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = convert<C>(part[i / WIDTH].at[i % WIDTH]);
  }
  template <class C> __device__ __forceinline__ void round(const C (&x)[V]) {
#pragma unroll
    for (int i = 0; i < V / WIDTH; ++i) {
      C some[WIDTH];
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) some[k] = x[i * WIDTH + k];
      part[i] = round_to<T, WIDTH>(some);
    }
  }
};

template <class T, int V> __device__ __forceinline__ Pack<T, V> loaded(const T* from) {
  Pack<T, V> pack;
  pack.load(from);
  return pack;
}
// Loads and widens.
template <class T, class C, int V> __device__ __forceinline__ void fetch(C (&x)[V], const T* from) { loaded<T, V>(from).widen(x); }
// Rounds and stores.
template <class T, class C, int V> __device__ __forceinline__ void put(T* to, const C (&x)[V]) {
  Pack<T, V> pack;
  pack.round(x);
  pack.store(to);
}

}  // namespace rows
