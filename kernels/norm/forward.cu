// out = y, the values of a norm (norm/normed.cuh), of rows or of groups of channels; rounded once.
//
// norm:          LANES threads per row: part of a warp, a warp, or a CTA, resident or streamed.
// norm_unaligned: one CTA per long row at any alignment, streamed, no residual (rows/unaligned.cuh; variant
// "unaligned"). *_cluster:     the CTAs of a cluster share a row (rows/cluster_reduce.cuh). norm_kept_cluster: as
// norm_unaligned_cluster; x is read once and stays in shared memory (variant "kept").
// WITH:      which optional operands exist. ONE: columns of a vector are of one channel, which has the weights.
// Shared:    one value per warp.   Bound: DRAM.
#include "norm/normed.cuh"
#include "rows/unaligned.cuh"

using namespace norms;
enum Own { MEAN = OWN, RSTD, OPERANDS };

template <bool CENTERED, int WITH, class T, class C, class Places> struct StoreNormed {
  const Places& places;
  T* out;
  C *mean_out, *rstd_out;

  template <bool RESIDENT, class Loaded, int V, int ITEMS, int LANES, class I, class Load, class Value, class Row>
  __device__ __forceinline__ void operator()(rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I>& line, const Load& reload,
      const Value& value, const Row& row) const {
    if (WITH & STATS && row.live && row.part.first == 0 && threadIdx.x % LANES == 0) {
      if constexpr (CENTERED) *places.template of_row<MEAN>(mean_out, row.at) = row.mean;
      *places.template of_row<RSTD>(rstd_out, row.at) = row.rstd;
    }
    line.pass(reload, [&](Loaded& loaded, I column, int item) {
      C y[V];
      value(loaded, column, item, y);
      rows::put(places.template at<OUT>(out, row.at, row.part.first + column), y);
    });
  }
};

template <bool CENTERED, int WITH, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int CTAS, class T, class W,
    class C, class I, int R, int RC>
__device__ __forceinline__ void rows_norm(I count, I length, C eps, const rows::Places<I, R, RC, OPERANDS>& places,
    T* out, T* residual_out, const T* x, const T* residual, const W* weight, const W* bias, C* mean_out, C* rstd_out) {
  constexpr bool EARLY = RESIDENT && (WITH & ONE || LANES <= 256);  // where registers suffice
  const StoreNormed<CENTERED, WITH, T, C, rows::Places<I, R, RC, OPERANDS>> store{places, out, mean_out, rstd_out};
  norm_row<CENTERED, WITH, V, ITEMS, LANES, THREADS, RESIDENT, EARLY, true, CTAS, V>(
      count, length, eps, places, residual_out, x, residual, weight, bias, store);
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    norm(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, T* residual_out, const T* x,
        const T* residual, const W* weight, const W* bias, C* mean_out, C* rstd_out) {
  rows_norm<CENTERED, WITH, V, ITEMS, LANES, THREADS, RESIDENT, 1>(
      count, length, eps, places, out, residual_out, x, residual, weight, bias, mean_out, rstd_out);
}

#if __CUDA_ARCH__ >= 900
template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    norm_cluster(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, T* residual_out,
        const T* x, const T* residual, const W* weight, const W* bias, C* mean_out, C* rstd_out) {
  rows_norm<CENTERED, WITH, V, ITEMS, LANES, THREADS, RESIDENT, CTAS>(
      count, length, eps, places, out, residual_out, x, residual, weight, bias, mean_out, rstd_out);
}
#endif

template <class T, class W, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int CTAS,
    int KEPT>
__device__ __forceinline__ void norm_part(I length, C eps, const rows::Places<I, R, 0, OPERANDS>& places, T* out,
    const T* x, const W* weight, const W* bias, C* mean_out, C* rstd_out) {
  // HELD: weights of T's size are loaded as vectors like x; others by elements, and fewer vectors of x are in flight.
  constexpr bool HELD = sizeof(W) == sizeof(T);
  constexpr int SCALED = HELD && WITH & WEIGHT, SHIFTED = HELD && WITH & BIAS, INPUTS = 1 + SCALED + SHIFTED;
  const rows::Part<CTAS, I> part(length, V, 1, 0);
  i64 at[OPERANDS];
  places.enter(part.row, at);
  rows::UnalignedRow<T, C, V, ITEMS, LANES, I, 1> line{{places.template at<X>(x, at, part.first)}, part.length};
  line.template keep<KEPT>(part.columns(length, V));
  const W* scale = places.template at<SCALE>(weight, at, part.first);
  const W* shift = places.template at<SHIFT>(bias, at, part.first);
  constexpr int FLYING = (HELD ? ITEMS : ITEMS / 2) * (KEPT && LANES > 256 ? 2 : 1);  // kept: weights alone are far
  rows::UnalignedRow<T, C, V, FLYING, LANES, I, INPUTS> scaled{{line.from[0]}, part.length};
  if constexpr (SCALED) scaled.from[1] = scale;
  if constexpr (SHIFTED) scaled.from[SCALED + 1] = shift;

  // 1. mean, rstd
  const auto plus = [](C a, C b) { return a + b; };
  C sum = 0;
  line.template pass<KEPT, true>(C(0), [&](C (&h)[1][V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum += CENTERED ? h[0][v] : h[0][v] * h[0][v];
  });
  sum = rows::cluster_reduce<CTAS, 0>(rows::sum<LANES, 0>(sum), plus) / C(length);
  const C mean = CENTERED ? sum : C(0);
  if constexpr (CENTERED) {
    C squares = 0;
    line.template pass<KEPT>(mean, [&](C (&h)[1][V]) {
#pragma unroll
      for (int v = 0; v < V; ++v) squares += (h[0][v] - mean) * (h[0][v] - mean);
    });
    sum = rows::cluster_reduce<CTAS, 1>(rows::sum<LANES, 1>(squares), plus) / C(length);
  }
  const C rstd = math::rsqrt<24>(sum + eps);
  if (WITH & STATS && part.first == 0 && threadIdx.x == 0) {
    if constexpr (CENTERED) *places.template of_row<MEAN>(mean_out, at) = mean;
    *places.template of_row<RSTD>(rstd_out, at) = rstd;
  }

  // 2. result
  scaled.template write<KEPT>(places.template at<OUT>(out, at, part.first), [&](const C (&a)[INPUTS], I column) {
    C y = (a[0] - mean) * rstd;
    if constexpr (WITH & WEIGHT) y *= HELD ? a[SCALED] : convert<C>(scale[column]);
    if constexpr (WITH & BIAS) y += HELD ? a[SCALED + SHIFTED] : convert<C>(shift[column]);
    return y;
  });
  rows::cluster_barrier<CTAS>();
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(LANES, sizeof(T) == 4 ? 1 : 0)  // f32: for sm_80, else ptxas spills
    norm_unaligned(I length, C eps, rows::Places<I, R, 0, OPERANDS> places, T* out, T*, const T* x, const T*,
        const W* weight, const W* bias, C* mean_out, C* rstd_out) {
  norm_part<T, W, C, V, ITEMS, LANES, R, I, CENTERED, WITH, 1, 0>(
      length, eps, places, out, x, weight, bias, mean_out, rstd_out);
}

#if __CUDA_ARCH__ >= 900
template <class T, class W, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, 1)
    norm_unaligned_cluster(I length, C eps, rows::Places<I, R, 0, OPERANDS> places, T* out, T*, const T* x,
        const T*, const W* weight, const W* bias, C* mean_out, C* rstd_out) {
  norm_part<T, W, C, V, ITEMS, LANES, R, I, CENTERED, WITH, CTAS, 0>(
      length, eps, places, out, x, weight, bias, mean_out, rstd_out);
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int KEPT,
    int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, (rows::KEPT_CTAS<C, LANES>))
    norm_kept_cluster(I length, C eps, rows::Places<I, R, 0, OPERANDS> places, T* out, T*, const T* x, const T*,
        const W* weight, const W* bias, C* mean_out, C* rstd_out) {
  norm_part<T, W, C, V, ITEMS, LANES, R, I, CENTERED, WITH, CTAS, KEPT>(
      length, eps, places, out, x, weight, bias, mean_out, rstd_out);
}
#endif
