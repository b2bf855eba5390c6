// A long row (or a CTA's part of one) at any alignment in each of N inputs (UnalignedVec, here Piece of rows/pack.cuh),
// by a CTA of LANES threads with ITEMS vectors of all inputs in flight per thread.
//
// keep:  the first KEPT inputs are copied to shared memory, STAGES copies in flight, and read there from then on.
// pass:  vectors count from the row's start, so that the order of sums does not depend on the alignment.
// write: vectors are aligned to the result; its unaligned head and tail go by elements. Columns are independent.
#pragma once
#include "ptx/async_copy.cuh"
#include "rows/row.cuh"

namespace rows {

constexpr int STAGES = 4;  // in which kept inputs arrive
// Second launch bound of kernels that keep their inputs: small CTAs take turns, one reads while another writes.
template <class C, int LANES> constexpr int KEPT_CTAS = sizeof(C) == 8 || LANES > 256 ? 1 : 1024 / LANES;

template <class T, class C, int V, int ITEMS, int LANES, class I, int N> struct Anywhere {
  using Columns = C[N][V];
  using Column = C[N];
  const T* from[N];
  I length;

  // Columns of a stage.
  __device__ __forceinline__ I stage() const {
    constexpr I STEP = I(ITEMS / N) * LANES * V;
    return (length + STAGES * STEP - 1) / (STAGES * STEP) * STEP;
  }
  // Begins to copy inputs to dynamic shared memory, which has room for `most` columns of each and a word; `from` is there
  // afterwards, at the same place in a word. Whole words by cp.async, the ends of a row by elements.
  template <int KEPT> __device__ __forceinline__ void keep(I most) {
    if constexpr (KEPT > 0) {
      extern __shared__ __align__(16) u8 kept[];
      const T* own[KEPT];
      I head[KEPT], words[KEPT];
#pragma unroll
      for (int k = 0; k < KEPT; ++k) {
        const u32 shift = reinterpret_cast<u64>(from[k]) % 16;
        T* const to = reinterpret_cast<T*>(kept + k * ((u64(most) * sizeof(T) + 31) / 16 * 16) + shift);
        head[k] = min(length, I((16 - shift) % 16 / sizeof(T))), words[k] = (length - head[k]) / V;
        for (I i = threadIdx.x; i < length - words[k] * V; i += LANES) {
          const I index = i < head[k] ? i : i + words[k] * V;
          to[index] = from[k][index];
        }
        own[k] = from[k], from[k] = to;
      }
      I word = threadIdx.x;
#pragma unroll 1
      for (int s = 1; s <= STAGES; ++s) {
        for (const I end = stage() / V * s; word < end; word += LANES)
#pragma unroll
          for (int k = 0; k < KEPT; ++k)
            if (word < words[k]) copy_async<16>(shared_address(from[k] + head[k] + word * V), own[k] + head[k] + word * V, 16);
        commit_copies();
      }
    }
  }
  // each(Columns&) for V columns at a time, after `keep` as they arrive; columns past the end are `none`.
  template <int KEPT = 0, class Each> __device__ __forceinline__ void pass(C none, const Each& each) const {
    const I whole = length - length % V;
    if constexpr (KEPT == 0) vectors(0, whole, [&](Columns& columns, I) { each(columns); });
    else arriving<STAGES>(whole, each);
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

  // The last LEFT stages.
  template <int LEFT, class Each> __device__ __forceinline__ void arriving(I whole, const Each& each) const {
    if constexpr (LEFT > 0) {
      await_copies<LEFT - 1>();
      __syncthreads();
      const I first = min(whole, stage() * (STAGES - LEFT));
      vectors(first, min(stage(), whole - first), [&](Columns& columns, I) { each(columns); });
      arriving<LEFT - 1>(whole, each);
    }
  }

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
