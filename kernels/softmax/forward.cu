// out = exp(x - m) / s along rows, or LOG: (x - m) - log(s), with m = max(x) and s = sum(exp(x - m)). Computed in C, rounded once.
//
// softmax_rows: LANES threads share a row (rows/row.cuh). Resident: the maximum, then the sum; exponentials stay in registers.
// Streamed: both in one pass, and a second one for the result.
// softmax_columns: the axis is not the innermost. A thread takes V neighbours of the inner axis and goes down the axis twice, WARPS
// of a CTA side by side, the second time mostly from L2.
// A row with +inf or NaN, or of -inf alone, is NaN. Shared memory: a value a warp; a state a column and warp. Bound: bandwidth.
#include "math/log.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"
#include "rows/shifted_sum.cuh"

enum Operand { OUT, X, OPERANDS };

template <class C, bool LOG> struct Finish {
  C scale;  // 1 / s, or log(s)
  __device__ __forceinline__ Finish(C sum) : scale(LOG ? math::log<24>(sum) : C(1) / sum) {}
  __device__ __forceinline__ C operator()(C shifted, C exponential) const { return LOG ? shifted - scale : exponential * scale; }
};

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
softmax_rows(I count, I length, rows::Places<I, R, RC, OPERANDS> places, T* out, const T* x) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  struct Loaded { rows::Pack<T, V> x; C exponential[V]; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) { return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, column)), {}}; };
  line.load(load);

  // m and s.
  Sum sum = Sum::none();
  if constexpr (RESIDENT) {
    line.pass(load, [&](Loaded& loaded, I, int) {
      C a[V];
      loaded.x.widen(a);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.most = math::maximum(sum.most, a[v]);
    });
    sum.most = rows::combine<LANES, 0>(sum.most, [](C a, C b) { return math::maximum(a, b); });
    line.pass(load, [&](Loaded& loaded, I, int) {
      C a[V];
      loaded.x.widen(a);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.sum += loaded.exponential[v] = math::exp<DIGITS>(a[v] - sum.most);
    });
    sum.sum = rows::sum<LANES, 1>(sum.sum);
  } else {
    line.pass(load, [&](Loaded& loaded, I, int) {
      C a[V];
      loaded.x.widen(a);
      sum.add(a);
    });
    sum = rows::combine<LANES, 0>(sum, Sum::join);
  }

  // The result.
  const Finish<C, LOG> finish(sum.sum);
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C y[V];
    loaded.x.widen(y);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C shifted = y[v] - sum.most;
      y[v] = finish(shifted, LOG ? C(0) : RESIDENT ? loaded.exponential[v] : math::exp<DIGITS>(shifted));
    }
    rows::put(places.template at<OUT>(out, at, column), y);
  });
}

// `places` has the inner axis as its columns; `step` are the bytes from one element of the axis to the next, of each operand.
template <class T, class C, int DIGITS, bool LOG, int V, int WARPS, int R, class I>
__global__ void __launch_bounds__(WARPS * 32)
softmax_columns(I count, I length, I extent, rows::Places<I, R, 0, OPERANDS> places, i64 out_step, i64 x_step, T* out, const T* x) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  __shared__ Sum sums[WARPS][V][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I blocks = (length + 32 * V - 1) / (32 * V), row = I(blockIdx.x) / blocks;
  const I column = ((I(blockIdx.x) - row * blocks) * 32 + lane) * V;
  const bool live = row < count && column < length;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const T* from = places.template at<X>(x, at, live ? column : 0);
  const I end = live ? extent : 0;
  const auto load = [&](I i) { return rows::loaded<T, V>(reinterpret_cast<const T*>(reinterpret_cast<const u8*>(from) + i64(i) * x_step)); };

  // m and s of every column, a part a warp.
  Sum sum[V];
#pragma unroll
  for (int v = 0; v < V; ++v) sum[v] = Sum::none();
#pragma unroll 4
  for (I i = warp; i < end; i += WARPS) {
    C a[V];
    load(i).widen(a);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v].add(reinterpret_cast<const C(&)[1]>(a[v]));
  }
#pragma unroll
  for (int v = 0; v < V; ++v) sums[warp][v][lane] = sum[v];
  __syncthreads();
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sum[v] = sums[0][v][lane];
#pragma unroll 1
    for (int w = 1; w < WARPS; ++w) sum[v] = Sum::join(sum[v], sums[w][v][lane]);
  }

  // The result.
  T* to = places.template at<OUT>(out, at, live ? column : 0);
#pragma unroll 4
  for (I i = warp; i < end; i += WARPS) {
    C y[V];
    load(i).widen(y);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C shifted = y[v] - sum[v].most;
      y[v] = Finish<C, LOG>(sum[v].sum)(shifted, LOG ? C(0) : math::exp<DIGITS>(shifted));
    }
    rows::put(reinterpret_cast<T*>(reinterpret_cast<u8*>(to) + i64(i) * out_step), y);
  }
}
