// out = inclusive prefix sum of x along an axis that is not innermost; `places` has the innermost axis as columns.
//
// Tiling:    one CTA per 32 V columns, tiles of WARPS * ITEMS elements; a thread has ITEMS rows of V adjacent columns.
// Scan:      thread-serial, then over warps in order through shared memory, then tile by tile (carry).
// Chunks:    long axes take three launches: TOTALS (one CTA per chunk) writes totals[chunks][results], WHOLE scans
//            these, CHUNKS reads x again and starts from the totals before. The extent fixes the order.
// Shared:    two sums per thread and column, at most 16 KB.   Bound: DRAM.
#include "rows/pack.cuh"
#include "rows/place.cuh"

enum Operand { OUT, X, OPERANDS };
enum Mode { WHOLE, TOTALS, CHUNKS };

template <class T> __device__ __forceinline__ T* stepped(T* base, i64 bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<u64>(base) + bytes);
}

template <class T, class O, class C, int V, int ITEMS, int WARPS, int MODE, int R, class I>
__global__ void __launch_bounds__(WARPS * 32) scan_columns(I count, I length, I extent, I chunk, I chunks,
    rows::Places<I, R, 0, OPERANDS> places, i64 out_step, i64 x_step, O* out, C* totals, const T* x) {
  __shared__ C slots[2][WARPS][V][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I blocks = (length + 32 * V - 1) / (32 * V), part = MODE == WHOLE ? 0 : I(blockIdx.x) % chunks;
  const I block = MODE == WHOLE ? I(blockIdx.x) : I(blockIdx.x) / chunks, row = block / blocks;
  const I column = ((block - row * blocks) * 32 + lane) * V;
  const bool live = row < count && column < length;
  i64 at[OPERANDS];
  places.enter(row < count ? row : 0, at);
  const T* from = places.template at<X>(x, at, live ? column : 0);
  O* to = places.template at<OUT>(out, at, live ? column : 0);
  const I first = MODE == WHOLE ? 0 : part * chunk;
  const I stop = MODE == WHOLE || extent - first < chunk ? extent : first + chunk, end = live ? stop : 0;
  C carry[V];
#pragma unroll
  for (int v = 0; v < V; ++v)
    carry[v] = MODE == CHUNKS && part > 0 && live ? totals[(i64(part - 1) * count + row) * length + column + v] : C(0);

  // 1. loop over tiles, double-buffered slots
  u32 buffer = 0;
  for (I tile = first; tile < stop; tile += WARPS * ITEMS, buffer ^= 1) {
    const I begin = tile + warp * ITEMS;
    // 1a. load
    C held[ITEMS][V];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (begin + i < end) {
        rows::fetch(held[i], stepped(from, i64(begin + i) * x_step));
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) held[i][v] = C(0);
      }
    }
    // 1b. thread-serial scan; totals to shared memory
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int i = 1; i < ITEMS; ++i) held[i][v] += held[i - 1][v];
      slots[buffer][warp][v][lane] = held[ITEMS - 1][v];
    }
    __syncthreads();
    // 1c. add the carry and the warps before
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C preceding = 0, total = 0;
#pragma unroll
      for (u32 w = 0; w < WARPS; ++w) {
        if (w == warp) preceding = total;
        total += slots[buffer][w][v][lane];
      }
      const C base = carry[v] + preceding;
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) held[i][v] += base;
      carry[v] += total;
    }
    // 1d. store
    if constexpr (MODE != TOTALS) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i)
        if (begin + i < end) rows::put(stepped(to, i64(begin + i) * out_step), held[i]);
    }
  }
  if (MODE == TOTALS && live && warp == 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) totals[(i64(part) * count + row) * length + column + v] = carry[v];
  }
}
