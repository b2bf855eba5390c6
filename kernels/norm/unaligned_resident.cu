// out = y, the values of a norm (norm/normed.cuh) of contiguous rows at any alignment, rounded once.
//
// Mapping:  LANES threads per row, ITEMS vectors each in registers (rows/shifted_row.cuh);
//           THREADS / LANES rows per CTA.
// Rounding: h = x + residual is rounded to T, all else computed in C. The alignment does not change bits.
// WITH:     which optional operands exist. EARLY: weights are loaded with x, where registers suffice.
// In place: h and y are stored behind the barrier of the row's sum.
// Shared:   one value per warp.   Bound: DRAM, every operand once.
#include "norm/normed.cuh"
#include "rows/shifted_row.cuh"

using namespace norms;
enum Own { MEAN = OWN, RSTD, OPERANDS };

template <class W, int V> union Weights {
  rows::Held<W, V> held;
  W at[V];
  __device__ Weights() {}
};
// The weights of the V columns from `column` on, which is a multiple of V; those past the row's end are 0.
template <int V, class W>
__device__ __forceinline__ rows::Held<W, V> weights_of(const W* from, u32 column, u32 length) {
  Weights<W, V> weights;
  if (reinterpret_cast<u64>(from) % 16 == 0 && column + V <= length) {
    weights.held.load(from + column);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) weights.at[v] = column + v < length ? from[column + v] : convert<W>(0.0f);
  }
  return weights.held;
}

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, int R, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(THREADS) norm_unaligned_resident(I count, I length, C eps,
    rows::Places<I, R, 0, OPERANDS> places, T* out, T* residual_out, const T* x, const T* residual, const W* weight,
    const W* bias, C* mean_out, C* rstd_out) {
  using Line = rows::ShiftedRow<T, V, ITEMS, LANES>;
  constexpr bool EARLY = LANES <= 256;
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  const Line line(live ? u32(length) : 0);

  // 1. load, add the residual
  typename Line::Words words = line.fetch(places.template at<X>(x, at, I(0)), convert<T>(0.0f)), others;
  if constexpr (WITH & RESIDUAL) others = line.fetch(places.template at<ADDED>(residual, at, I(0)), convert<T>(0.0f));
  const W* const scale = places.template at<SCALE>(weight, at, I(0));
  const W* const shift = places.template at<SHIFT>(bias, at, I(0));
  rows::Held<W, V> scales[ITEMS], shifts[ITEMS];
  const auto load_weights = [&] {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if constexpr (WITH & WEIGHT) scales[i] = weights_of<V>(scale, line.column(i), line.length);
      if constexpr (WITH & BIAS) shifts[i] = weights_of<V>(shift, line.column(i), line.length);
    }
  };
  if constexpr (EARLY) load_weights();
  typename Line::Vectors hs, ys;
  line.shift(words, hs);
  if constexpr (WITH & RESIDUAL) {
    line.shift(others, ys);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      C a[V], b[V];
      hs[i].widen(a);
      ys[i].widen(b);
#pragma unroll
      for (int v = 0; v < V; ++v) a[v] += b[v];
      hs[i].round(a);
    }
  }

  // 2. mean, rstd
  C sum = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    C h[V];
    hs[i].widen(h);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += CENTERED ? h[v] : h[v] * h[v];
  }
  sum = rows::sum<LANES, 0>(sum) / C(length);
  const C mean = CENTERED ? sum : C(0);
  if constexpr (CENTERED) {
    C squares = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      C h[V];
      hs[i].widen(h);
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (line.column(i) + v < line.length) squares += (h[v] - mean) * (h[v] - mean);
    }
    sum = rows::sum<LANES, 1>(squares) / C(length);
  }
  const C rstd = math::rsqrt<24>(sum + eps);
  if (WITH & STATS && live && threadIdx.x % LANES == 0) {
    if constexpr (CENTERED) *places.template of_row<MEAN>(mean_out, at) = mean;
    *places.template of_row<RSTD>(rstd_out, at) = rstd;
  }

  // 3. values
  if constexpr (!EARLY) load_weights();
  if constexpr (WITH & RESIDUAL) line.store(hs, places.template at<SUM>(residual_out, at, I(0)));
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    C y[V], w[V], b[V];
    hs[i].widen(y);
    if constexpr (WITH & WEIGHT) scales[i].widen(w);
    if constexpr (WITH & BIAS) shifts[i].widen(b);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      y[v] = (y[v] - mean) * rstd;
      if constexpr (WITH & WEIGHT) y[v] *= w[v];
      if constexpr (WITH & BIAS) y[v] += b[v];
    }
    ys[i].round(y);
  }
  line.store(ys, places.template at<OUT>(out, at, I(0)));
}
