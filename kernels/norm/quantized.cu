// codes = y / scale in 8 bits, scale = max|y| / MOST (127, or 448 for e4m3) per row or per GROUP adjacent columns.
//
// norm_quantized:  y = (h - mean) rstd weight + bias, h = x + residual rounded to T, as norm/forward.cu; or mean = 0.
// gate_quantized:  y = x sigmoid(x) gate.
// Threads:   LANES threads per row: part of a warp, a warp, or a CTA (rows/row.cuh), resident (x is read once) or
//            streamed.
// WHOLE:     columns are accessed by vectors of V; otherwise (groups of rows at odd strides) by elements.
// Rounding:  y is f32 and not rounded to T.
// Shared:    one value per warp.   Bound: DRAM.
#include "math/silu_mul.cuh"
#include "math/sqrt.cuh"
#include "norm/codes.cuh"

enum With { WEIGHT = 1, BIAS = 2, RESIDUAL = 4 };
enum Operand { CODES, SCALES, SUM, X, ADDED, SCALE, SHIFT, OPERANDS };

template <class T, class W, class P, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH, int GROUP, bool WHOLE>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, float, THREADS>))
    norm_quantized(I count, I length, float eps, rows::Places<I, R, RC, OPERANDS> places, P* codes, float* scales,
        T* residual_out, const T* x, const T* residual, const W* weight, const W* bias) {
  using Pack = rows::Pack<T, V>;
  struct Loaded { Pack x, residual; float y[V]; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);

  // 1. load, add the residual, sum
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x = norms::gather<WHOLE, X, V>(places, x, at, column);
    if constexpr (WITH & RESIDUAL) loaded.residual = norms::gather<WHOLE, ADDED, V>(places, residual, at, column);
    return loaded;
  };
  float sum = 0;
  line.load(load);
  struct Weights { rows::Pack<W, V> scale, shift; };
  rows::Row<RESIDENT, Weights, V, ITEMS, LANES, I> early(live ? length : 0, threadIdx.x % LANES);
  const auto weights = [&](I column) {
    Weights loaded;
    if constexpr (WITH & WEIGHT) loaded.scale = norms::gather<WHOLE, SCALE, V>(places, weight, at, column);
    if constexpr (WITH & BIAS) loaded.shift = norms::gather<WHOLE, SHIFT, V>(places, bias, at, column);
    return loaded;
  };
  early.load(weights);
  if constexpr (WITH & WEIGHT) rows::hold(early, &Weights::scale);
  if constexpr (WITH & BIAS) rows::hold(early, &Weights::shift);
  if constexpr (WITH & RESIDUAL) rows::hold(line, &Loaded::x, &Loaded::residual);
  else rows::hold(line, &Loaded::x);
  line.pass(load, [&](Loaded& loaded, I column, int) {
    if constexpr (WITH & RESIDUAL) {
      rows::add_rounded<float>(loaded.x, loaded.residual);
      norms::scatter<WHOLE, SUM, V>(places, residual_out, at, column, loaded.x);
    }
    float h[V];
    loaded.x.widen(h);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += CENTERED ? h[v] : h[v] * h[v];
  });
  const auto reload = [&](I column) {
    Loaded loaded;
    if constexpr (WITH & RESIDUAL)
      loaded.x = norms::gather<WHOLE, SUM, V>(places, static_cast<const T*>(residual_out), at, column);
    else loaded.x = norms::gather<WHOLE, X, V>(places, x, at, column);
    return loaded;
  };

  // 2. mean, rstd
  sum = rows::sum<LANES, 0>(sum) / float(length);
  const float mean = CENTERED ? sum : 0.0f;
  if constexpr (CENTERED) {
    float squares = 0;
    line.pass(reload, [&](Loaded& loaded, I, int) {
      float h[V];
      loaded.x.widen(h);
#pragma unroll
      for (int v = 0; v < V; ++v) squares += (h[v] - mean) * (h[v] - mean);
    });
    sum = rows::sum<LANES, 1>(squares) / float(length);
  }
  const float rstd = math::rsqrt<24>(sum + eps);

  // 3. values, scales, codes
  const auto value = [&](Loaded& loaded, I column, int item, float(&y)[V]) {
    float w[V], b[V];
    loaded.x.widen(y);
    const Weights by = RESIDENT ? early.item[item] : weights(column);
    if constexpr (WITH & WEIGHT) by.scale.widen(w);
    if constexpr (WITH & BIAS) by.shift.widen(b);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      y[v] = (y[v] - mean) * rstd;
      if constexpr (WITH & WEIGHT) y[v] *= w[v];
      if constexpr (WITH & BIAS) y[v] += b[v];
    }
  };
  norms::store_codes<CODES, SCALES, GROUP, WHOLE>(
      line, reload, value, places, at, live, codes, scales);
}

enum GateOperand { GATE_CODES, GATE_SCALES, GATE_X, GATE_Y, GATE_OPERANDS };

template <class T, class P, int DIGITS, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC,
    class I, int GROUP, bool WHOLE>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, float, THREADS>))
    gate_quantized(I count, I length, rows::Places<I, R, RC, GATE_OPERANDS> places, P* codes, float* scales,
        const T* x, const T* gated) {
  struct Loaded { rows::Pack<T, V> x, gated; float y[V]; };
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[GATE_OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    return Loaded{norms::gather<WHOLE, GATE_X, V>(places, x, at, column),
        norms::gather<WHOLE, GATE_Y, V>(places, gated, at, column), {}};
  };
  line.load(load);
  rows::hold(line, &Loaded::x, &Loaded::gated);
  const auto value = [&](Loaded& loaded, I, int, float(&y)[V]) {
    float b[V];
    loaded.x.widen(y);
    loaded.gated.widen(b);
#pragma unroll
    for (int v = 0; v < V; ++v) y[v] = math::silu_mul<DIGITS>(y[v], b[v]);
  };
  norms::store_codes<GATE_CODES, GATE_SCALES, GROUP, WHOLE>(
      line, load, value, places, at, live, codes, scales);
}
