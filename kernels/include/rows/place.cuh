// Addresses of rows and columns in N operands.
#pragma once
#include "core/index.cuh"

namespace rows {

// R row axes and RC column axes, collapsed, with byte strides for N operands. RC = 0: columns are contiguous.
template <class I, int R, int RC, int N> struct Places {
  Dims<I, R, N> rows;
  Dims<I, RC, N> columns;
  using Row = i64[N];

  __device__ __forceinline__ void enter(I row, Row& offset) const {
#pragma unroll
    for (int k = 0; k < N; ++k) offset[k] = 0;
    if constexpr (R > 0) rows.locate(row, offset);
  }
  // The address of `column` in operand K of the current row.
  template <int K, class T> __device__ __forceinline__ T* at(T* base, const Row& row, I column) const {
    using Byte = typename Bytes<T>::type;
    Byte* from = reinterpret_cast<Byte*>(base) + row[K];
    if constexpr (RC == 0) return reinterpret_cast<T*>(from) + column;
    Row offset = {};
    columns.locate(column, offset);
    return reinterpret_cast<T*>(from + offset[K]);
  }
  // The address in operands with one value per row.
  template <int K, class T> __device__ __forceinline__ T* of_row(T* base, const Row& row) const {
    return reinterpret_cast<T*>(reinterpret_cast<typename Bytes<T>::type*>(base) + row[K]);
  }
  template <class T> struct Bytes { using type = u8; };
  template <class T> struct Bytes<const T> { using type = const u8; };
};

}  // namespace rows
