// A row shared by LANES threads: thread `lane` has vectors lane, lane + LANES, ... of V columns.
//
// Resident: the thread's ITEMS vectors stay in registers in storage type; all loads are in flight together.
// Streamed: rows of any length; every pass reads the row again (mostly from L2), ITEMS vectors in flight per thread.
// One kernel text serves both: `load`, then any number of `pass`.
#pragma once
#include "rows/pack.cuh"

namespace rows {

// Second launch bound (min CTAs per SM) of row kernels, 0 for none. Without it ptxas spills in some of them at half of
// the registers that a CTA may have.
template <bool RESIDENT, class C, int THREADS>
constexpr int LEAST_CTAS = THREADS <= 512 && (!RESIDENT || sizeof(C) == 8) ? 1 : 0;

template <bool RESIDENT, class Loaded, int V, int ITEMS, int LANES, class I> struct Row {
  static constexpr I STEP = I(ITEMS) * LANES * V;
  Loaded item[ITEMS];
  I length;
  u32 lane;

  __device__ __forceinline__ Row(I length, u32 lane) : length(length), lane(lane) {}

  // Resident: loads all vectors; from(column) loads one.
  template <class From> __device__ __forceinline__ void load(const From& from) {
    if constexpr (RESIDENT) load_from(0, from);
  }
  // each(Loaded&, column, item) for every vector of the thread, in order; streamed: loaded by `from`.
  template <class From, class Each> __device__ __forceinline__ void pass(const From& from, const Each& each) {
    if constexpr (RESIDENT) {
      over(0, each);
    } else {
#pragma unroll 1
      for (I base = 0; base < length; base += STEP) {
        load_from(base, from);
        over(base, each);
      }
    }
  }

 private:
  __device__ __forceinline__ I column(int i) const { return I(i * LANES + lane) * V; }

  template <class From> __device__ __forceinline__ void load_from(I base, const From& from) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (base + column(i) < length) item[i] = from(base + column(i));
  }
  template <class Each> __device__ __forceinline__ void over(I base, const Each& each) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
      if (base + column(i) < length) each(item[i], base + column(i), i);
  }
};

}  // namespace rows
