// Vectors of elements and keys of a row, a part of a row, or listed indices.
#pragma once
#include "sort/probe.cuh"

namespace sort {

constexpr int SELECT_THREADS = 512;

template <class T> __device__ __forceinline__ typename Order<T>::Word at(const u8* row, i64 step, u32 place) {
  return *reinterpret_cast<const typename Order<T>::Word*>(row + place * step);
}

// Role of a CTA: a WHOLE row, a PART of one, or the indices that a row's parts have LISTED.
constexpr int WHOLE = 0, PART = 1, LISTED = 2;

template <class T, int V> struct Keys {
  using Key = typename Order<T>::Key;
  Key key[V];
  u32 valid;
};

template <class T, int ROLE, bool VECTOR> struct Source {
  static constexpr int V = VECTOR ? 16 / int(sizeof(T)) : 4;
  static constexpr int DEPTH = ROLE == LISTED || V * sizeof(T) > 16 ? 2 : 4;  // vectors in flight per thread
  using Key = typename Order<T>::Key;
  const u8* row;
  i64 step;
  const u32* list;
  u32 begin, length;
  Key flip;

  __device__ __forceinline__ u32 place(u32 i) const { return ROLE == LISTED ? list[i] : begin + i; }

  // V consecutive elements from `i`; all must exist.
  __device__ __forceinline__ Stored<T, V> stored(u32 i) const {
    Stored<T, V> some = {};
    if constexpr (VECTOR) {
      some = *reinterpret_cast<const Stored<T, V>*>(row + i64(begin + i) * sizeof(T));
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) some.put(v, at<T>(row, step, place(i + v)));
    }
    return some;
  }

  // V consecutive keys from `i`, of which `valid` exist.
  __device__ __forceinline__ Keys<T, V> keys(u32 i) const {
    Keys<T, V> found;
    found.valid = i >= length ? 0 : length - i < V ? length - i : V;
    if (VECTOR && found.valid == V) {
      const Stored<T, V> whole = stored(i);
#pragma unroll
      for (int v = 0; v < V; ++v) found.key[v] = Order<T>::key(whole.get(v)) ^ flip;
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v)
        found.key[v] = v < found.valid ? Order<T>::key(at<T>(row, step, place(i + v))) ^ flip : Key(0);
    }
    return found;
  }
};

}  // namespace sort
