// The values of a norm along a row: y = (h - mean) rstd weight + bias, h = x + residual, rstd = 1 / sqrt(mean((h -
// mean)^2) + eps). Or mean = 0. A functor makes the result of them.
//
// Threads:   LANES per row: part of a warp, a warp, or a CTA (rows/row.cuh), resident or streamed; or the CTAS CTAs of
//            a cluster, each with a multiple of UNIT columns (rows/cluster_reduce.cuh).
// Accuracy:  mean and mean square deviation are two passes, so that a large mean costs no accuracy.
// Rounding:  h is rounded to T, all else computed in C; f32 has more than twice the digits of a 16-bit T, so the
//            sum's own rounding is innocuous (S. A. Figueroa, "When is double rounding innocuous?", 1995).
// ONE:       all columns of a vector have one weight.
// EARLY:     weights are loaded with x.
// WHOLE:     columns are accessed by vectors; otherwise by elements.
// Shared:    one value per warp.
#pragma once
#include "math/sqrt.cuh"
#include "norm/gather.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/hold.cuh"

namespace norms {

enum With { WEIGHT = 1, BIAS = 2, RESIDUAL = 4, STATS = 8, ONE = 16 };
enum Operand { OUT, SUM, X, ADDED, SCALE, SHIFT, OWN };  // OWN: the first operand of a kernel's own

// What a row's threads know of it.
template <int CTAS, class I, class C, int N> struct Normed {
  rows::Part<CTAS, I> part;
  bool live;
  i64 at[N];
  C mean, rstd;
  __device__ __forceinline__ Normed(I length, int unit, int groups, int group) : part(length, unit, groups, group) {}
};

// finish(line, reload, value, row): value(loaded, column, item, y) computes the V values of a vector.
template <bool CENTERED, int WITH, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, bool EARLY, bool WHOLE,
    int CTAS, int UNIT, class T, class W, class C, class I, int R, int RC, int N, class Finish>
__device__ __forceinline__ void norm_row(I count, I length, C eps, const rows::Places<I, R, RC, N>& places,
    T* residual_out, const T* x, const T* residual, const W* weight, const W* bias, const Finish& finish) {
  constexpr int PER = WITH & ONE ? 1 : V;
  struct Loaded { rows::Pack<T, V> x, residual; C y[V]; };
  struct Weights { rows::Pack<W, PER> scale, shift; };
  Normed<CTAS, I, C, N> row(length, UNIT, THREADS / LANES, threadIdx.x / LANES);
  const auto& part = row.part;
  row.live = part.row < count;
  places.enter(row.live ? part.row : 0, row.at);

  // 1. load, add the residual, sum
  // Out-of-range rows have no columns.
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(row.live ? part.length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x = gather<WHOLE, X, V>(places, x, row.at, part.first + column);
    if constexpr (WITH & RESIDUAL) loaded.residual = gather<WHOLE, ADDED, V>(places, residual, row.at, part.first + column);
    return loaded;
  };
  line.load(load);
  rows::Row<EARLY, Weights, V, ITEMS, LANES, I> early(row.live ? part.length : 0, threadIdx.x % LANES);
  const auto weights = [&](I column) {
    Weights loaded;
    if constexpr (WITH & WEIGHT) loaded.scale = gather<WHOLE, SCALE, PER>(places, weight, row.at, part.first + column);
    if constexpr (WITH & BIAS) loaded.shift = gather<WHOLE, SHIFT, PER>(places, bias, row.at, part.first + column);
    return loaded;
  };
  early.load(weights);
  if constexpr (WITH & WEIGHT) rows::hold(early, &Weights::scale);
  if constexpr (WITH & BIAS) rows::hold(early, &Weights::shift);
  if constexpr (WITH & RESIDUAL) rows::hold(line, &Loaded::x, &Loaded::residual);
  else rows::hold(line, &Loaded::x);
  C sum = 0;
  line.pass(load, [&](Loaded& loaded, I column, int) {
    if constexpr (WITH & RESIDUAL) {
      rows::add_rounded<C>(loaded.x, loaded.residual);
      scatter<WHOLE, SUM, V>(places, residual_out, row.at, part.first + column, loaded.x);
    }
    C h[V];
    loaded.x.widen(h);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += CENTERED ? h[v] : h[v] * h[v];
  });
  const auto reload = [&](I column) {
    Loaded loaded;
    if constexpr (WITH & RESIDUAL)
      loaded.x = gather<WHOLE, SUM, V>(places, static_cast<const T*>(residual_out), row.at, part.first + column);
    else loaded.x = gather<WHOLE, X, V>(places, x, row.at, part.first + column);
    return loaded;
  };

  // 2. mean, rstd
  const auto plus = [](C a, C b) { return a + b; };
  sum = rows::cluster_reduce<CTAS, 0>(rows::sum<LANES, 0>(sum), plus) / C(length);
  const C mean = row.mean = CENTERED ? sum : C(0);
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
  const C rstd = row.rstd = math::rsqrt<24>(sum + eps);

  // 3. values
  const auto value = [&](Loaded& loaded, I column, int item, C(&y)[V]) {
    C w[PER], b[PER];
    loaded.x.widen(y);
    const Weights by = EARLY ? early.item[item] : weights(column);
    if constexpr (WITH & WEIGHT) by.scale.widen(w);
    if constexpr (WITH & BIAS) by.shift.widen(b);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      y[v] = (y[v] - mean) * rstd;
      if constexpr (WITH & WEIGHT) y[v] *= w[v % PER];
      if constexpr (WITH & BIAS) y[v] += b[v % PER];
    }
  };
  finish(line, reload, value, row);
  rows::cluster_barrier<CTAS>();
}

}  // namespace norms
