// A long row (or a CTA's part of one) at any alignment in each of N inputs (UnalignedVec),
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

template <class T, class C, int V, int ITEMS, int LANES, class I, int N> struct UnalignedRow {
  using Columns = C[N][V];
  using Column = C[N];
  const T* from[N];
  I length;

  // Columns of a stage.
  __device__ __forceinline__ I stage() const {
    constexpr I STEP = I(ITEMS / N) * LANES * V;
    return (length + STAGES * STEP - 1) / (STAGES * STEP) * STEP;
  }
  // Begins to copy inputs to dynamic shared memory, which has room for `most` columns of each and a word; `from` is
  // there afterwards, at the same place in a word. Whole words by cp.async, the ends of a row by elements.
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
#pragma unroll 1
      for (int s = 0; s < STAGES; ++s) {
        const I first = stage() / V * s;
#pragma unroll
        for (int k = 0; k < KEPT; ++k) {
          const u32 to = shared_address(from[k] + head[k]);
          const u8* const whole = reinterpret_cast<const u8*>(own[k] + head[k]);
          const I end = min(words[k], first + stage() / V);
#pragma unroll 4
          for (I word = first + threadIdx.x; word < end; word += LANES)
            copy_async<16>(to + 16 * word, whole + 16 * word, 16);
        }
        commit_copies();
      }
    }
  }
  // each(Columns&) for V columns at a time, the first time after `keep` as they ARRIVE; columns past the end are
  // `none`.
  template <int KEPT, bool ARRIVE = false, class Each>
  __device__ __forceinline__ void pass(C none, const Each& each) const {
    const I whole = length - length % V;
    const I part = ARRIVE && KEPT > 0 ? stage() : whole;
#pragma unroll 1
    for (int s = 0; s < (ARRIVE && KEPT > 0 ? STAGES : 1); ++s) {
      if constexpr (ARRIVE && KEPT > 0) await_stage(s);
      const I first = min(whole, part * s);
      vectors<KEPT>(first, min(part, whole - first), [&](Columns& columns, I) { each(columns); });
    }
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
  template <int KEPT, class Result> __device__ __forceinline__ void write(T* to, const Result& result) const {
    const I head = min(length, I((16 - reinterpret_cast<u64>(to) % 16) % 16 / sizeof(T))),
            body = (length - head) / V * V;
    for (I i = threadIdx.x; i < length - body; i += LANES) {
      const I index = i < head ? i : i + body;
      Column column;
#pragma unroll
      for (int k = 0; k < N; ++k) column[k] = convert<C>(from[k][index]);
      to[index] = convert<T>(result(column, index));
    }
    vectors<KEPT>(head, body, [&](Columns& columns, I first) {
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
  // Stage s of what this CTA keeps is there.
  static __device__ __forceinline__ void await_stage(int s) {
    static_assert(STAGES == 4);
    if (s == 0) await_copies<3>();
    else if (s == 1) await_copies<2>();
    else if (s == 2) await_copies<1>();
    else await_copies<0>();
    __syncthreads();
  }

  template <int KEPT, class Each> __device__ __forceinline__ void vectors(I first, I count, const Each& each) const {
    using Own = UnalignedVec<T, V, true>;
    constexpr int DEPTH = ITEMS / N;
    constexpr I VECTOR_STRIDE = I(LANES) * V;
    const uint4* words[N];
    u32 late[N];
#pragma unroll
    for (int k = 0; k < N; ++k) words[k] = Own::word(from[k] + first), late[k] = Own::behind(from[k] + first);
#pragma unroll 1
    for (I base = threadIdx.x * V; base < count; base += DEPTH * VECTOR_STRIDE) {
      const I left = count - base, at = first + base;
      Own vec[DEPTH][N];
#pragma unroll
      for (int i = 0; i < DEPTH; ++i)
        if (i * VECTOR_STRIDE < left)
#pragma unroll
          for (int k = 0; k < N; ++k) {
            const uint4* const word = words[k] + base / V + i * LANES;
            if (k < KEPT) vec[i][k].template load<true>(word, late[k], at + i * VECTOR_STRIDE, length);
            else vec[i][k].template load<false>(word, late[k], at + i * VECTOR_STRIDE, length);
          }
#pragma unroll
      for (int i = 0; i < DEPTH; ++i) {
        if (i * VECTOR_STRIDE >= left) break;
        Columns columns;
#pragma unroll
        for (int k = 0; k < N; ++k)
          if (k < KEPT)
            widen_words(vec[i][k].template whole<true>(from[k], late[k], at + i * VECTOR_STRIDE, length), columns[k]);
          else
            widen_words(vec[i][k].template whole<false>(from[k], late[k], at + i * VECTOR_STRIDE, length), columns[k]);
        each(columns, at + i * VECTOR_STRIDE);
      }
    }
  }
};

}  // namespace rows
