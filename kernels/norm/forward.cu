// out = (h - mean) rstd weight + bias, h = x + residual; rstd = 1 / sqrt(mean((h - mean)^2) + eps). Or mean = 0.
//
// Rounding:  computed in C, rounded once. h is rounded to T; f32 has more than twice the digits of a 16-bit T, so the
//            sum's own rounding is innocuous (S. A. Figueroa, "When is double rounding innocuous?", 1995).
// norm:          LANES threads per row: part of a warp, a warp, or a CTA (rows/row.cuh), resident or streamed.
// norm_unaligned: one CTA per long row at any alignment, streamed, no residual (rows/unaligned.cuh; variant
// "unaligned"). *_cluster:     the CTAs of a cluster share a row (rows/cluster_reduce.cuh). norm_kept_cluster: as
// norm_unaligned_cluster; x is read once and stays in shared memory (variant "kept").
// Accuracy:  mean and mean square deviation are two passes, so that a large mean costs no accuracy.
// WITH:      which optional operands exist.
// Shared:    one value per warp.   Bound: DRAM.
#include "math/sqrt.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/hold.cuh"
#include "rows/unaligned.cuh"
#include "rows/place.cuh"

enum With { WEIGHT = 1, BIAS = 2, RESIDUAL = 4, STATS = 8 };
enum Operand { OUT, SUM, MEAN, RSTD, X, ADDED, SCALE, SHIFT, OPERANDS };

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH, int CTAS>
__device__ __forceinline__ void norm_row(I count, I length, C eps, const rows::Places<I, R, RC, OPERANDS>& places,
    T* out, T* residual_out, C* mean_out, C* rstd_out, const T* x, const T* residual, const W* weight, const W* bias) {
  using Pack = rows::Pack<T, V>;
  struct Loaded { Pack x, residual; };
  const rows::Part<CTAS, I> part(length, V, THREADS / LANES, threadIdx.x / LANES);
  const bool live = part.row < count;
  i64 at[OPERANDS];
  places.enter(live ? part.row : 0, at);

  // 1. load, add the residual, sum
  // Out-of-range rows have no columns.
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? part.length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x.load(places.template at<X>(x, at, part.first + column));
    if constexpr (WITH & RESIDUAL) loaded.residual.load(places.template at<ADDED>(residual, at, part.first + column));
    return loaded;
  };
  C sum = 0;
  line.load(load);
  // EARLY: weights are loaded with x if registers suffice.
  constexpr bool EARLY = RESIDENT && LANES <= 256;
  struct Weights { rows::Pack<W, V> scale, shift; };
  rows::Row<EARLY, Weights, V, ITEMS, LANES, I> early(live ? part.length : 0, threadIdx.x % LANES);
  const auto weights = [&](I column) {
    Weights loaded;
    if constexpr (WITH & WEIGHT) loaded.scale.load(places.template at<SCALE>(weight, at, part.first + column));
    if constexpr (WITH & BIAS) loaded.shift.load(places.template at<SHIFT>(bias, at, part.first + column));
    return loaded;
  };
  early.load(weights);
  if constexpr (WITH & WEIGHT) rows::hold(early, &Weights::scale);
  if constexpr (WITH & BIAS) rows::hold(early, &Weights::shift);
  if constexpr (WITH & RESIDUAL) rows::hold(line, &Loaded::x, &Loaded::residual);
  else rows::hold(line, &Loaded::x);
  line.pass(load, [&](Loaded& loaded, I column, int) {
    if constexpr (WITH & RESIDUAL) {
      rows::add_rounded<C>(loaded.x, loaded.residual);
      loaded.x.store(places.template at<SUM>(residual_out, at, part.first + column));
    }
    C h[V];
    loaded.x.widen(h);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += CENTERED ? h[v] : h[v] * h[v];
  });
  const auto reload = [&](I column) {
    const T* from = WITH & RESIDUAL ? places.template at<SUM>(residual_out, at, part.first + column)
                                    : places.template at<X>(x, at, part.first + column);
    return Loaded{rows::loaded<T, V>(from), {}};
  };

  // 2. mean, rstd
  const auto plus = [](C a, C b) { return a + b; };
  sum = rows::cluster_reduce<CTAS, 0>(rows::sum<LANES, 0>(sum), plus) / C(length);
  const C mean = CENTERED ? sum : C(0);
  if constexpr (CENTERED) {
    C squares = 0;
    line.pass(reload, [&](Loaded& loaded, I, int) {
      C h[V];
      loaded.x.widen(h);
#pragma unroll
      for (int v = 0; v < V; ++v) squares += (h[v] - mean) * (h[v] - mean);
    });
    sum = rows::cluster_reduce<CTAS, 1>(rows::sum<LANES, 1>(squares), plus) / C(length);
  }
  const C rstd = math::rsqrt<24>(sum + eps);
  if (WITH & STATS && live && part.first == 0 && threadIdx.x % LANES == 0) {
    if constexpr (CENTERED) *places.template of_row<MEAN>(mean_out, at) = mean;
    *places.template of_row<RSTD>(rstd_out, at) = rstd;
  }

  // 3. result
  line.pass(reload, [&](Loaded& loaded, I column, int item) {
    C y[V], w[V], b[V];
    loaded.x.widen(y);
    const Weights by = EARLY ? early.item[item] : weights(column);
    if constexpr (WITH & WEIGHT) by.scale.widen(w);
    if constexpr (WITH & BIAS) by.shift.widen(b);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      y[v] = (y[v] - mean) * rstd;
      if constexpr (WITH & WEIGHT) y[v] *= w[v];
      if constexpr (WITH & BIAS) y[v] += b[v];
    }
    rows::put(places.template at<OUT>(out, at, part.first + column), y);
  });
  rows::cluster_barrier<CTAS>();
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    norm(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, T* residual_out, C* mean_out,
        C* rstd_out, const T* x, const T* residual, const W* weight, const W* bias) {
  norm_row<T, W, C, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, CENTERED, WITH, 1>(
      count, length, eps, places, out, residual_out, mean_out, rstd_out, x, residual, weight, bias);
}

#if __CUDA_ARCH__ >= 900
template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    norm_cluster(I count, I length, C eps, rows::Places<I, R, RC, OPERANDS> places, T* out, T* residual_out,
        C* mean_out, C* rstd_out, const T* x, const T* residual, const W* weight, const W* bias) {
  norm_row<T, W, C, V, ITEMS, LANES, THREADS, RESIDENT, R, RC, I, CENTERED, WITH, CTAS>(
      count, length, eps, places, out, residual_out, mean_out, rstd_out, x, residual, weight, bias);
}
#endif

template <class T, class W, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int CTAS,
    int KEPT>
__device__ __forceinline__ void norm_part(I length, C eps, const rows::Places<I, R, 0, OPERANDS>& places, T* out,
    C* mean_out, C* rstd_out, const T* x, const W* weight, const W* bias) {
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
    norm_unaligned(I length, C eps, rows::Places<I, R, 0, OPERANDS> places, T* out, T*, C* mean_out, C* rstd_out,
        const T* x, const T*, const W* weight, const W* bias) {
  norm_part<T, W, C, V, ITEMS, LANES, R, I, CENTERED, WITH, 1, 0>(
      length, eps, places, out, mean_out, rstd_out, x, weight, bias);
}

#if __CUDA_ARCH__ >= 900
template <class T, class W, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, 1)
    norm_unaligned_cluster(I length, C eps, rows::Places<I, R, 0, OPERANDS> places, T* out, T*, C* mean_out,
        C* rstd_out, const T* x, const T*, const W* weight, const W* bias) {
  norm_part<T, W, C, V, ITEMS, LANES, R, I, CENTERED, WITH, CTAS, 0>(
      length, eps, places, out, mean_out, rstd_out, x, weight, bias);
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int R, class I, bool CENTERED, int WITH, int KEPT,
    int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(LANES, (rows::KEPT_CTAS<C, LANES>))
    norm_kept_cluster(I length, C eps, rows::Places<I, R, 0, OPERANDS> places, T* out, T*, C* mean_out, C* rstd_out,
        const T* x, const T*, const W* weight, const W* bias) {
  norm_part<T, W, C, V, ITEMS, LANES, R, I, CENTERED, WITH, CTAS, KEPT>(
      length, eps, places, out, mean_out, rstd_out, x, weight, bias);
}
#endif
