// V adjacent elements of a row in registers, in their storage type.
#pragma once
#include "core/shift.cuh"

namespace rows {

// Loaded and stored by accesses of at most 16 bytes, each aligned to its size.
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
// UnalignedVec: a vector of a row [begin, end). ANYWHERE: loaded as the two aligned 16-byte words that contain it and
// funnel shifted; at the row's ends, where a word would exceed the row, by elements. Columns ignore the alignment.
template <class T, int V, bool ANYWHERE> struct Piece {
  Pack<T, V> pack;
  __device__ __forceinline__ void load(const T* from, const T*, const T*) { pack.load(from); }
  __device__ __forceinline__ Pack<T, V> whole(const T*, const T*, const T*) const { return pack; }
};
template <class T, int V> struct Piece<T, V, true> {
  static_assert(V * sizeof(T) == 16);
  uint4 low, high;

  __device__ __forceinline__ void load(const T* from, const T* begin, const T* end) {
    const u64 at = reinterpret_cast<u64>(from), word = at & ~u64(15);
    low = high = make_uint4(0, 0, 0, 0);
    if (word >= reinterpret_cast<u64>(begin)) low = *reinterpret_cast<const uint4*>(word);
    if (at != word && word + 32 <= reinterpret_cast<u64>(end)) high = *reinterpret_cast<const uint4*>(word + 16);
  }
  __device__ __forceinline__ Pack<T, V> whole(const T* from, const T* begin, const T* end) const {
    const u64 at = reinterpret_cast<u64>(from), word = at & ~u64(15);
    union Both { uint4 word; Pack<T, V> pack; __device__ Both() {} } both;
    both.word = shifted(low, high, u32(at - word));
    if (word < reinterpret_cast<u64>(begin) || (at != word && word + 32 > reinterpret_cast<u64>(end)))
#pragma unroll
      for (int v = 0; v < V; ++v) both.pack.part[0].at[v] = from[v];
    return both.pack;
  }
};

// x + y computed in C, rounded.
template <class C, class T, int V> __device__ __forceinline__ void add_rounded(Pack<T, V>& x, const Pack<T, V>& y) {
  C a[V], b[V];
  x.widen(a);
  y.widen(b);
#pragma unroll
  for (int v = 0; v < V; ++v) a[v] += b[v];
  x.round(a);
}
// Load and widen.
template <class T, class C, int V> __device__ __forceinline__ void fetch(C (&x)[V], const T* from) { loaded<T, V>(from).widen(x); }
// Round and store.
template <class T, class C, int V> __device__ __forceinline__ void put(T* to, const C (&x)[V]) {
  Pack<T, V> pack;
  pack.round(x);
  pack.store(to);
}

}  // namespace rows
