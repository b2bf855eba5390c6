// out = exp(x - m) / s, or LOG: (x - m) - log(s); m = max(x), s = sum(exp(x - m)) along an axis. Computed in C.
//
// softmax_rows:     LANES threads per row (rows/row.cuh). Resident: max, then sum; exponentials stay in registers.
//                   Streamed: online softmax (max and sum in one pass), then a second pass for the result.
// softmax_unaligned: one CTA per long row at any alignment, streamed (rows/unaligned.cuh; variant "unaligned").
// *_cluster:        streamed; the CTAs of a cluster share a row (rows/cluster_reduce.cuh).
// softmax_kept_cluster: as softmax_unaligned_cluster; x is read once and stays in shared memory (variant "kept").
// softmax_columns:  the axis is not innermost. V adjacent columns per thread; WARPS warps split the axis, DEPTH loads
//                   in flight; two passes. Sums are rescaled once per GROUP terms, so that V does not change bits.
// Special:          a row with +inf or NaN, or with -inf only, is NaN.
// *_columns_cluster: the CTAs of a cluster share a long axis, which takes one CTA too long where columns are few.
// Shared:           one value per warp; columns: one state per column and warp.   Bound: DRAM.
#include "math/log.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/unaligned.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"
#include "rows/shifted_sum.cuh"

enum Operand { OUT, X, OPERANDS };

template <class C, bool LOG> struct Finish {
  C scale;  // 1 / s, or log(s)
  __device__ __forceinline__ Finish(C sum) : scale(LOG ? math::log<24>(sum) : C(1) / sum) {}
  __device__ __forceinline__ C operator()(C shifted, C exponential) const {
    return LOG ? shifted - scale : exponential * scale;
  }
};

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I, int CTAS>
__device__ __forceinline__ void softmax_row(
    I count, I length, const rows::Places<I, R, RC, OPERANDS>& places, T* out, const T* x) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  struct Loaded { rows::Pack<T, V> x; C exponential[V]; };
  const rows::Part<CTAS, I> part(length, V, THREADS / LANES, threadIdx.x / LANES);
  const bool live = part.row < count;
  i64 at[OPERANDS];
  places.enter(live ? part.row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? part.length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, part.first + column)), {}};
  };
  line.load(load);

  // 1. m and s
  Sum sum = Sum::none();
  if constexpr (RESIDENT) {
    line.pass(load, [&](Loaded& loaded, I, int) {
      C a[V];
      loaded.x.widen(a);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.most = math::maximum(sum.most, a[v]);
    });
    sum.most = rows::group_reduce<LANES, 0>(sum.most, [](C a, C b) { return math::maximum(a, b); });
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
    sum = rows::cluster_reduce<CTAS, 0>(Sum::template gather<LANES>(sum), Sum::join);
  }

  // 2. result
  const Finish<C, LOG> finish(sum.sum);
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C y[V];
    loaded.x.widen(y);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C shifted = y[v] - sum.most;
      y[v] = finish(shifted, LOG ? C(0) : RESIDENT ? loaded.exponential[v] : math::exp<DIGITS>(shifted));
    }
    rows::put(places.template at<OUT>(out, at, part.first + column), y);
  });
  rows::cluster_barrier<CTAS>();
}

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    softmax_rows(I count, I length, rows::Places<I, R, RC, OPERANDS> places, T* out, const T* x) {
  softmax_row<T, C, DIGITS, LOG, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, 1>(count, length, places, out, x);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    softmax_rows_cluster(I count, I length, rows::Places<I, R, RC, OPERANDS> places, T* out, const T* x) {
  softmax_row<T, C, DIGITS, LOG, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, CTAS>(count, length, places, out, x);
}
#endif

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int R, class I, int CTAS, int KEPT>
__device__ __forceinline__ void softmax_part(
    I length, const rows::Places<I, R, 0, OPERANDS>& places, T* out, const T* x) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  const rows::Part<CTAS, I> part(length, V, 1, 0);
  i64 at[OPERANDS];
  places.enter(part.row, at);
  rows::UnalignedRow<T, C, V, ITEMS, LANES, I, 1> line{{places.template at<X>(x, at, part.first)}, part.length};
  line.template keep<KEPT>(part.columns(length, V));

  // 1. m and s
  Sum sum = Sum::none();
  line.template pass<KEPT, true>(rows::minus_infinity<C>(), [&](C (&a)[1][V]) { sum.add(a[0]); });
  sum = Sum::template gather<LANES>(sum);
  if constexpr (KEPT) sum = Sum::template join_all<CTAS>(rows::fetched<CTAS, 0>(sum));
  else sum = rows::cluster_reduce<CTAS, 0>(sum, Sum::join);

  // 2. result
  const Finish<C, LOG> finish(sum.sum);
  line.template write<KEPT>(places.template at<OUT>(out, at, part.first), [&](const C (&a)[1], I) {
    const C shifted = a[0] - sum.most;
    return finish(shifted, LOG ? C(0) : math::exp<DIGITS>(shifted));
  });
  rows::cluster_barrier<CTAS>();
}

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int R, class I>
__global__ void __launch_bounds__(LANES)
softmax_unaligned(I length, rows::Places<I, R, 0, OPERANDS> places, T* out, const T* x) {
  softmax_part<T, C, DIGITS, LOG, V, ITEMS, LANES, R, I, 1, 0>(length, places, out, x);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int R, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, 1)
softmax_unaligned_cluster(I length, rows::Places<I, R, 0, OPERANDS> places, T* out, const T* x) {
  softmax_part<T, C, DIGITS, LOG, V, ITEMS, LANES, R, I, CTAS, 0>(length, places, out, x);
}

template <class T, class C, int DIGITS, bool LOG, int V, int ITEMS, int LANES, int R, class I, int KEPT, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, (rows::KEPT_CTAS<C, LANES>))
softmax_kept_cluster(I length, rows::Places<I, R, 0, OPERANDS> places, T* out, const T* x) {
  softmax_part<T, C, DIGITS, LOG, V, ITEMS, LANES, R, I, CTAS, KEPT>(length, places, out, x);
}
#endif

// `places` has the inner axis as columns; `*_step`: byte stride of the softmax axis.
template <class T, class C, int DIGITS, bool LOG, int V, int WARPS, int R, class I, int CTAS>
__device__ __forceinline__ void softmax_strip(I count, I length, I extent,
    const rows::Places<I, R, 0, OPERANDS>& places, i64 out_step, i64 x_step, T* out, const T* x) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  using Pack = rows::Pack<T, V>;
  constexpr int GROUP = 4, DEPTH = V * int(sizeof(C)) > 8 ? GROUP : 2 * GROUP;
  constexpr I STEP = I(DEPTH) * WARPS;
  __shared__ Sum sums[WARPS][V][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I strip = I(blockIdx.x) / CTAS, rank = I(blockIdx.x) % CTAS;
  const I blocks = (length + 32 * V - 1) / (32 * V), row = strip / blocks;
  const I column = ((strip - row * blocks) * 32 + lane) * V;
  const I part = (extent + CTAS - 1) / CTAS, first = min(extent, part * rank);
  const bool live = row < count && column < length;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const T* from = places.template at<X>(x, at, live ? column : 0);
  const I end = live ? min(extent, first + part) : 0;
  const auto load = [&](I base, Pack (&pack)[DEPTH]) {  // DEPTH loads in flight
#pragma unroll
    for (int k = 0; k < DEPTH; ++k)
      if (base + k * WARPS < end)
        pack[k].load(reinterpret_cast<const T*>(reinterpret_cast<const u8*>(from) + i64(base + k * WARPS) * x_step));
  };

  // 1. m and s of every column
  // Each warp has a part; the parts are combined in warp order.
  Sum sum[V];
#pragma unroll
  for (int v = 0; v < V; ++v) sum[v] = Sum::none();
#pragma unroll 1
  for (I base = first + warp; base < end; base += STEP) {
    Pack pack[DEPTH];
    load(base, pack);
    C a[V][DEPTH / GROUP][GROUP];
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      C values[V];
      pack[k].widen(values);
#pragma unroll
      for (int v = 0; v < V; ++v)
        a[v][k / GROUP][k % GROUP] = base + k * WARPS < end ? values[v] : rows::minus_infinity<C>();
    }
#pragma unroll
    for (int v = 0; v < V; ++v)
#pragma unroll
      for (int group = 0; group < DEPTH / GROUP; ++group) sum[v].add(a[v][group]);
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
  if constexpr (CTAS > 1) rows::join_strips<CTAS>(sum, Sum::join);

  // 2. result
  T* to = places.template at<OUT>(out, at, live ? column : 0);
#pragma unroll
  for (int v = 0; v < V; ++v) sum[v].sum = Finish<C, LOG>(sum[v].sum).scale;
#pragma unroll 1
  for (I base = first + warp; base < end; base += STEP) {
    Pack pack[DEPTH];
    load(base, pack);
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      if (base + k * WARPS >= end) break;
      C y[V];
      pack[k].widen(y);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C shifted = y[v] - sum[v].most;
        y[v] = LOG ? shifted - sum[v].sum : math::exp<DIGITS>(shifted) * sum[v].sum;
      }
      rows::put(reinterpret_cast<T*>(reinterpret_cast<u8*>(to) + i64(base + k * WARPS) * out_step), y);
    }
  }  rows::cluster_barrier<CTAS>();
}

template <class T, class C, int DIGITS, bool LOG, int V, int WARPS, int R, class I>
__global__ void __launch_bounds__(WARPS * 32) softmax_columns(
    I count, I length, I extent, rows::Places<I, R, 0, OPERANDS> places, i64 out_step, i64 x_step, T* out, const T* x) {
  softmax_strip<T, C, DIGITS, LOG, V, WARPS, R, I, 1>(count, length, extent, places, out_step, x_step, out, x);
}

#if __CUDA_ARCH__ >= 900
template <class T, class C, int DIGITS, bool LOG, int V, int WARPS, int R, class I, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(WARPS * 32) softmax_columns_cluster(
    I count, I length, I extent, rows::Places<I, R, 0, OPERANDS> places, i64 out_step, i64 x_step, T* out, const T* x) {
  softmax_strip<T, C, DIGITS, LOG, V, WARPS, R, I, CTAS>(count, length, extent, places, out_step, x_step, out, x);
}
#endif
