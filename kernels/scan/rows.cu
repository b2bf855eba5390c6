// out = inclusive prefix sum of x along rows. Row length and element type alone fix the order of additions.
//
// Tiling:    WARPS warps per row (or LANES lanes of one, with several rows per CTA); a tile is WARPS segments of ITEMS
//            vectors per lane, adjacent lanes adjacent vectors.
// Scan:      V elements serially, lanes by a shuffle tree, then vectors, warps and tiles in order. A prefix is only
//            added, never subtracted, so that infinities do not turn into NaN.
// Chunks:    long rows take three launches: TOTALS (one CTA per chunk) writes totals[rows][chunks], WHOLE scans these,
//            CHUNKS reads the row again and starts from the totals before.
// Shared:    two slots per warp.   Bound: DRAM.
#include "rows/pack.cuh"
#include "rows/place.cuh"

enum Operand { OUT, X, OPERANDS };
enum Mode { WHOLE, TOTALS, CHUNKS };

// Inclusive scan over the lanes of a group.
template <int LANES, class C> __device__ __forceinline__ C sum_up_to(C x, u32 lane) {
#pragma unroll
  for (u32 step = 1; step < LANES; step *= 2) {
    const C other = __shfl_up_sync(~0u, x, step, LANES);
    if (lane >= step) x += other;
  }
  return x;
}

template <class T, class O, class C, int V, int ITEMS, int LANES, int WARPS, int THREADS, bool VECTOR, int MODE, int R,
    int RC, class I>
__global__ void __launch_bounds__(THREADS) scan_rows(
    I count, I length, I chunk, I chunks, rows::Places<I, R, RC, OPERANDS> places, O* out, C* totals, const T* x) {
  constexpr int GROUP = LANES * WARPS, SEGMENT = LANES * V * ITEMS;
  __shared__ C slots[2][WARPS];
  const u32 lane = threadIdx.x % LANES, warp = WARPS > 1 ? threadIdx.x / 32 : 0;
  const I part = MODE == WHOLE ? 0 : I(blockIdx.x) % chunks,
          block = MODE == WHOLE ? I(blockIdx.x) : I(blockIdx.x) / chunks;
  const I row = block * (THREADS / GROUP) + threadIdx.x / GROUP;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const I first = MODE == WHOLE ? 0 : part * chunk;
  const I stop = MODE == WHOLE || length - first < chunk ? length : first + chunk, end = live ? stop : 0;
  C carry = MODE == CHUNKS && part > 0 && live ? totals[i64(row) * chunks + part - 1] : C(0);

  // 1. loop over tiles, double-buffered slots
  u32 buffer = 0;
  for (I tile = first; tile < stop; tile += SEGMENT * WARPS, buffer ^= 1) {
    const I begin = tile + warp * SEGMENT + lane * V;
    C held[ITEMS][V], preceding[ITEMS], run = 0;
    // 1a. load: all vectors in flight
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const I column = begin + i * (LANES * V);
      if (VECTOR && column + V <= end) {
        rows::fetch(held[i], places.template at<X>(x, at, column));
        continue;
      }
#pragma unroll
      for (int v = 0; v < V; ++v)
        held[i][v] = column + v < end ? convert<C>(*places.template at<X>(x, at, column + v)) : C(0);
    }
    // 1b. scan within the segment
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
      for (int v = 1; v < V; ++v) held[i][v] += held[i][v - 1];
      const C sum = sum_up_to<LANES>(held[i][V - 1], lane);
      const C preceding_lanes = __shfl_up_sync(~0u, sum, 1, LANES);
      preceding[i] = lane ? run + preceding_lanes : run;
      run += __shfl_sync(~0u, sum, LANES - 1, LANES);
    }
    // 1c. totals of the segments before
    C segments = 0, total = run;
    if constexpr (WARPS > 1) {
      if (lane == 0) slots[buffer][warp] = run;
      __syncthreads();
      total = 0;
#pragma unroll
      for (u32 w = 0; w < WARPS; ++w) {
        if (w == warp) segments = total;
        total += slots[buffer][w];
      }
    }
    // 1d. add the prefix, store
    if constexpr (MODE != TOTALS) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        const I column = begin + i * (LANES * V);
        const C base = carry + (segments + preceding[i]);
#pragma unroll
        for (int v = 0; v < V; ++v) held[i][v] += base;
        if (VECTOR && column + V <= end) {
          rows::put(places.template at<OUT>(out, at, column), held[i]);
          continue;
        }
#pragma unroll
        for (int v = 0; v < V; ++v)
          if (column + v < end) *places.template at<OUT>(out, at, column + v) = convert<O>(held[i][v]);
      }
    }
    carry += total;
  }
  if (MODE == TOTALS && live && threadIdx.x % GROUP == 0) totals[i64(row) * chunks + part] = carry;
}
