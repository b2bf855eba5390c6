// Running sums along an axis, where another one is the innermost: `places` has that one as its columns and the rest as rows.
//
// A CTA goes down 32 * V columns by tiles of WARPS * ITEMS elements; a thread takes ITEMS of V neighbouring columns, whose sums
// come together in shared memory, warp after warp. Many elements go in chunks, a CTA each: TOTALS writes what each holds,
// [chunks][results], WHOLE adds those up, and CHUNKS reads x again and begins with the totals before. The order of additions
// follows from the extent alone. Shared memory: two sums a thread and column, 16 KB at most. Bound: bandwidth.
#include "rows/pack.cuh"
#include "rows/place.cuh"

enum Operand { OUT, X, OPERANDS };
enum Mode { WHOLE, TOTALS, CHUNKS };

template <class T> __device__ __forceinline__ T* stepped(T* base, i64 bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<u64>(base) + bytes);
}

template <class T, class O, class C, int V, int ITEMS, int WARPS, int MODE, int R, class I>
__global__ void __launch_bounds__(WARPS * 32)
scan_columns(I count, I length, I extent, I chunk, I chunks, rows::Places<I, R, 0, OPERANDS> places, i64 out_step, i64 x_step, O* out,
             C* totals, const T* x) {
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

  u32 turn = 0;
  for (I tile = first; tile < stop; tile += WARPS * ITEMS, turn ^= 1) {
    const I begin = tile + warp * ITEMS;
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
    // Sums of the thread's own, and of the warps before
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int i = 1; i < ITEMS; ++i) held[i][v] += held[i - 1][v];
      slots[turn][warp][v][lane] = held[ITEMS - 1][v];
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C before = 0, total = 0;
#pragma unroll
      for (u32 w = 0; w < WARPS; ++w) {
        if (w == warp) before = total;
        total += slots[turn][w][v][lane];
      }
      const C base = carry[v] + before;
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) held[i][v] += base;
      carry[v] += total;
    }
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
