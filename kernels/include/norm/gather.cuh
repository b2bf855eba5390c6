// V columns of operand K of a row, from `column`. WHOLE: by one vector access; otherwise by elements.
#pragma once
#include "rows/place.cuh"
#include "rows/row.cuh"

namespace norms {

template <bool WHOLE, int K, int V, class T, class Places, class Row, class I>
__device__ __forceinline__ rows::Pack<T, V> gather(const Places& places, const T* base, const Row& at, I column) {
  if constexpr (WHOLE) {
    return rows::loaded<T, V>(places.template at<K>(base, at, column));
  } else {
    rows::Pack<T, V> pack;
#pragma unroll
    for (int v = 0; v < V; ++v)
      pack.part[v / pack.WIDTH].at[v % pack.WIDTH] = *places.template at<K>(base, at, column + v);
    return pack;
  }
}
template <bool WHOLE, int K, int V, class T, class Places, class Row, class I>
__device__ __forceinline__ void scatter(
    const Places& places, T* base, const Row& at, I column, const rows::Pack<T, V>& pack) {
  if constexpr (WHOLE) {
    pack.store(places.template at<K>(base, at, column));
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v)
      *places.template at<K>(base, at, column + v) = pack.part[v / pack.WIDTH].at[v % pack.WIDTH];
  }
}

}  // namespace norms
