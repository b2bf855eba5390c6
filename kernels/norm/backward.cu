// Gradients of norms (forward.cu). With n = (x - mean) rstd and g = grad weight, along a row
//   grad_x = rstd (g - mean(g) - n mean(g n)),  the first mean only where the norm is CENTERED,
// and over all rows grad_weight = sum(grad n), grad_bias = sum(grad).
//
// norm_backward: persistent CTAs, each a stripe of rows: blockIdx.x, blockIdx.x + gridDim.x, ... A thread has the same columns of
// every row. Resident rows come by cp.async, STAGES ahead; the thread's weights and its parts of grad_weight and grad_bias stay in
// registers. These sums leave as one row of `partial`, [stripes][WEIGHT + BIAS][length]; sum_stripes adds those up, in order.
// Streamed rows leave these to norm_weight_backward, which goes down columns: 2 reads more.
// Shared memory: STAGES rows of x and of grad a group. Bound: memory bandwidth.
#include "overlap.cuh"
#include "rows/ahead.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"

enum With { WEIGHT = 1, BIAS = 2 };
enum Operand { GRAD_X, GRAD, X, MEAN, RSTD, SCALE, OPERANDS };

template <class C> struct Two { C plain, normal; };
template <class C> struct Statistics { C mean, rstd; };

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int CTAS, int STAGES, int R, int RC,
          class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(THREADS, CTAS)
norm_backward(I count, I length, rows::Places<I, R, RC, OPERANDS> places, T* grad_x, C* partial, const T* grad, const T* x,
              const C* mean_in, const C* rstd_in, const W* weight) {
  struct Loaded { rows::Pack<T, V> x, grad; };
  using Line = rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I>;
  using Ahead = rows::Ahead<T, V, 2 * ITEMS, THREADS, STAGES>;
  constexpr u32 GROUPS = THREADS / LANES;
  extern __shared__ __align__(16) unsigned char shared[];
  const u32 lane = threadIdx.x % LANES, group = GROUPS > 1 ? threadIdx.x / LANES : 0;
  const I begin = I(blockIdx.x) * GROUPS, all = I(gridDim.x) * GROUPS;
  i64 at[OPERANDS];
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, column)), rows::loaded<T, V>(places.template at<GRAD>(grad, at, column))};
  };
  // Goes to a row; rows beyond the last are empty.
  const auto enter = [&](I row) {
    places.enter(row < count ? row : 0, at);
    return Line(row < count ? length : 0, lane);
  };
  const auto statistics = [&](I row) {
    enter(row);
    return Statistics<C>{CENTERED ? *places.template of_row<MEAN>(mean_in, at) : C(0), *places.template of_row<RSTD>(rstd_in, at)};
  };
  Ahead ahead(shared);
  const auto bring = [&](I row) {
    enter(row).pass(load, [&](Loaded&, I column, int i) {
      ahead.bring(2 * i, places.template at<X>(x, at, column));
      ahead.bring(2 * i + 1, places.template at<GRAD>(grad, at, column));
    });
    commit_copies();
  };
  rows::Pack<W, V> weights[ITEMS];
  // n and g of a vector, and grad as it is.
  const auto terms = [&](const Loaded& loaded, I column, int i, const Statistics<C>& of, C (&normal)[V], C (&raw)[V], C (&g)[V]) {
    (RESIDENT ? ahead[2 * i] : loaded.x).widen(normal);
    (RESIDENT ? ahead[2 * i + 1] : loaded.grad).widen(raw);
    C w[V];
    if constexpr (WITH & WEIGHT) (RESIDENT ? weights[i] : rows::loaded<W, V>(places.template at<SCALE>(weight, at, column))).widen(w);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      normal[v] = (normal[v] - of.mean) * of.rstd;
      g[v] = WITH & WEIGHT ? raw[v] * w[v] : raw[v];
    }
  };

  // The weights, and the first rows on their way.
  if constexpr (RESIDENT) {
    enter(0);
    if constexpr (WITH & WEIGHT)
      Line(length, lane).pass(load, [&](Loaded&, I column, int i) { weights[i].load(places.template at<SCALE>(weight, at, column)); });
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage, ahead.turn()) bring(begin + group + stage * all);
  }
  C scale[ITEMS][V] = {}, shift[ITEMS][V] = {};
  Statistics<C> next = statistics(begin + group);
  u32 parity = 0;
#pragma unroll 1
  for (I first = begin; first < count; first += all, parity ^= 1) {
    const I row = first + group;
    const Statistics<C> of = next;
    next = statistics(row + all);
    if constexpr (RESIDENT && Ahead::NARROW) bring(row + all);
    if constexpr (RESIDENT) await_copies<STAGES - 1>();

    // Means along the row; the row's part of the sums over rows.
    Line line = enter(row);
    Two<C> sum = {0, 0};
    line.pass(load, [&](Loaded& loaded, I column, int i) {
      C normal[V], raw[V], g[V];
      terms(loaded, column, i, of, normal, raw, g);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum.plain += g[v];
        sum.normal += g[v] * normal[v];
        if constexpr (RESIDENT && WITH & WEIGHT) scale[i][v] += raw[v] * normal[v];
        if constexpr (RESIDENT && WITH & BIAS) shift[i][v] += raw[v];
      }
    });
    if constexpr (CENTERED)
      sum = rows::combine<LANES>(sum, [](const Two<C>& a, const Two<C>& b) { return Two<C>{a.plain + b.plain, a.normal + b.normal}; }, parity);
    else sum.normal = rows::sum<LANES>(sum.normal, parity);
    const C plain = CENTERED ? sum.plain / C(length) : C(0), along = sum.normal / C(length);

    // The gradient of x.
    line.pass(load, [&](Loaded& loaded, I column, int i) {
      C normal[V], raw[V], g[V];
      terms(loaded, column, i, of, normal, raw, g);
#pragma unroll
      for (int v = 0; v < V; ++v) g[v] = (g[v] - plain - normal[v] * along) * of.rstd;
      rows::put(places.template at<GRAD_X>(grad_x, at, column), g);
    });
    if constexpr (RESIDENT && !Ahead::NARROW) bring(row + STAGES * all);
    ahead.turn();
  }

  // The stripe's sums: of a CTA's groups in order, where the rows were.
  if constexpr (RESIDENT && WITH != 0) {
    overlap::release();
    C* slots = reinterpret_cast<C*>(shared);  // [GROUPS][columns]
    const auto leave = [&](const C (&sums)[ITEMS][V], C* to) {
      __syncthreads();
      Line(length, lane).pass(load, [&](Loaded&, I column, int i) { rows::put(slots + group * Line::STEP + column, sums[i]); });
      __syncthreads();
      for (I column = threadIdx.x; column < length; column += THREADS) {
        C total = slots[column];
        for (u32 other = 1; other < GROUPS; ++other) total += slots[other * Line::STEP + column];
        to[column] = total;
      }
    };
    C* to = partial + i64(blockIdx.x) * ((WITH & WEIGHT) + (WITH & BIAS) / 2) * length;
    if constexpr (WITH & WEIGHT) leave(scale, to);
    if constexpr (WITH & BIAS) leave(shift, to + (WITH & WEIGHT) * length);
  }
}

// Sums over the rows of a stripe, blockIdx.y: a thread goes down V columns, WARPS rows of the stripe side by side, whose sums are
// then added in order. `partial` as above.
template <class T, class C, int V, int WARPS, int R, int RC, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(WARPS * 32)
norm_weight_backward(I count, I length, I stripe, rows::Places<I, R, RC, OPERANDS> places, C* partial, const T* grad, const T* x,
                     const C* mean_in, const C* rstd_in) {
  __shared__ C sums[2][WARPS][32 * V];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I column = (I(blockIdx.x) * 32 + lane) * V, first = I(blockIdx.y) * stripe, end = min(count, first + stripe);
  C scale[V] = {}, shift[V] = {};
  if (column < length) {
#pragma unroll 4
    for (I row = first + warp; row < end; row += WARPS) {
      i64 at[OPERANDS];
      places.enter(row, at);
      C raw[V], normal[V];
      rows::fetch(raw, places.template at<GRAD>(grad, at, column));
      rows::fetch(normal, places.template at<X>(x, at, column));
      const C rstd = *places.template of_row<RSTD>(rstd_in, at), mean = CENTERED ? *places.template of_row<MEAN>(mean_in, at) : C(0);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        scale[v] += raw[v] * ((normal[v] - mean) * rstd);
        shift[v] += raw[v];
      }
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    sums[0][warp][v * 32 + lane] = scale[v];
    sums[1][warp][v * 32 + lane] = shift[v];
  }
  __syncthreads();
  C* to = partial + i64(blockIdx.y) * ((WITH & WEIGHT) + (WITH & BIAS) / 2) * length;
  for (u32 i = threadIdx.x; i < 32 * V; i += WARPS * 32) {
    const I out = I(blockIdx.x) * (32 * V) + i;
    const u32 slot = i % V * 32 + i / V;
    C total[2] = {};
    for (int w = 0; w < WARPS; ++w)
      for (int k = 0; k < 2; ++k) total[k] += sums[k][w][slot];
    if (out < length) {
      if constexpr (WITH & WEIGHT) to[out] = total[0];
      if constexpr (WITH & BIAS) to[(WITH & WEIGHT) * length + out] = total[1];
    }
  }
}

// The stripes' sums added up in order of the stripes, WARPS of them side by side, 32 columns a CTA; blockIdx.y is the part.
template <class C, class W, int WARPS, class I>
__global__ void __launch_bounds__(WARPS * 32) sum_stripes(u32 stripes, I length, const C* partial, W* first, W* second) {
  __shared__ C sums[WARPS][32];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const I column = I(blockIdx.x) * 32 + lane;
  overlap::wait();
  C sum = 0;
  if (column < length)
#pragma unroll 16
    for (u32 s = warp; s < stripes; s += WARPS) sum += partial[(i64(s) * gridDim.y + blockIdx.y) * length + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= length) return;
  for (int w = 1; w < WARPS; ++w) sum += sums[w][lane];
  (blockIdx.y == 0 ? first : second)[column] = convert<W>(sum);
}
