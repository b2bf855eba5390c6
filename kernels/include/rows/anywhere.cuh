// A long row (or a CTA's part of one) at any alignment in each of N inputs (UnalignedVec, here Piece of rows/pack.cuh),
// by a CTA of LANES threads with ITEMS vectors of all inputs in flight per thread.
//
// pass:  vectors count from the row's start, so that the order of sums does not depend on the alignment.
// write: vectors are aligned to the result; its unaligned head and tail go by elements. Columns are independent.
#pragma once
#include "rows/row.cuh"

namespace rows {

template <class T, class C, int V, int ITEMS, int LANES, class I, int N> struct Anywhere {
  using Columns = C[N][V];
  using Column = C[N];
  const T* from[N];
  I length;

  // each(Columns&) for V columns at a time; columns past the end are `none`.
  template <class Each> __device__ __forceinline__ void pass(C none, const Each& each) const {
    const I whole = length - length % V;
    vectors(0, whole, [&](Columns& columns, I) { each(columns); });
    if (whole < length && threadIdx.x == whole / V % LANES) {
      Columns columns;
#pragma unroll
      for (int v = 0; v < V; ++v)
#pragma unroll
        for (int k = 0; k < N; ++k) columns[k][v] = whole + v < length ? convert<C>(from[k][whole + v]) : none;
      each(columns);
    }
  }
  // Stores result(Column, index) for every column.
  template <class Result> __device__ __forceinline__ void write(T* to, const Result& result) const {
    const I head = min(length, I((16 - reinterpret_cast<u64>(to) % 16) % 16 / sizeof(T))), body = (length - head) / V * V;
    for (I i = threadIdx.x; i < length - body; i += LANES) {
      const I index = i < head ? i : i + body;
      Column column;
#pragma unroll
      for (int k = 0; k < N; ++k) column[k] = convert<C>(from[k][index]);
      to[index] = convert<T>(result(column, index));
    }
    vectors(head, body, [&](Columns& columns, I first) {
      C y[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        Column column;
#pragma unroll
        for (int k = 0; k < N; ++k) column[k] = columns[k][v];
        y[v] = result(column, first + v);
      }
      put(to + first, y);
    });
  }

 private:
  struct Loaded { Piece<T, V, true> piece[N]; };

  template <class Each> __device__ __forceinline__ void vectors(I first, I count, const Each& each) const {
    Row<false, Loaded, V, ITEMS / N, LANES, I> line(count, threadIdx.x);
    const auto load = [&](I column) {
      Loaded loaded;
#pragma unroll
      for (int k = 0; k < N; ++k) loaded.piece[k].load(from[k] + first + column, from[k], from[k] + length);
      return loaded;
    };
    line.pass(load, [&](Loaded& loaded, I column, int) {
      Columns columns;
#pragma unroll
      for (int k = 0; k < N; ++k) loaded.piece[k].whole(from[k] + first + column, from[k], from[k] + length).widen(columns[k]);
      each(columns, first + column);
    });
  }
};

}  // namespace rows
