// Gradients of norms (forward.cu). With n = (x - mean) rstd and g = grad weight, along a row
//   grad_x = rstd (g - mean(g) - n mean(g n)),  the first mean only where the norm is CENTERED,
// and over all rows grad_weight = sum(grad n), grad_bias = sum(grad).
//
// norm_backward: persistent CTAs, each a stripe of rows: blockIdx.x, blockIdx.x + gridDim.x, ... The next row is loaded while this
// one is worked on. Resident rows add their part of grad_weight and grad_bias to the thread's own slots in shared memory, whose
// sums leave as one row of `partial`, [stripes][WEIGHT + BIAS][length]; sum_stripes adds these up, in order.
// Streamed rows leave these to norm_weight_backward, which goes down columns: 2 reads more.
// Shared memory: THREADS ITEMS V values, twice with a bias. Bound: memory bandwidth.
#include "overlap.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"

enum With { WEIGHT = 1, BIAS = 2 };
enum Operand { GRAD_X, GRAD, X, MEAN, RSTD, SCALE, OPERANDS };

template <class C> struct Two { C plain, normal; };

template <class T, class W, class C, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I, bool CENTERED, int WITH>
__global__ void __launch_bounds__(THREADS, THREADS < 512 ? 512 / THREADS : 1)
norm_backward(I count, I length, rows::Places<I, R, RC, OPERANDS> places, T* grad_x, C* partial, const T* grad, const T* x,
              const C* mean_in, const C* rstd_in, const W* weight) {
  using Pack = rows::Pack<T, V>;
  struct Loaded { Pack x, grad; };
  using Line = rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I>;
  constexpr u32 GROUPS = THREADS / LANES;
  constexpr bool SUMS = RESIDENT && WITH != 0;
  extern __shared__ __align__(16) unsigned char shared[];
  C* slots = reinterpret_cast<C*>(shared) + threadIdx.x;  // [WEIGHT, BIAS][ITEMS V][THREADS]
  const u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
  const I all = I(gridDim.x) * GROUPS;
  i64 at[OPERANDS];
  const auto load = [&](I column) {
    return Loaded{rows::loaded<T, V>(places.template at<X>(x, at, column)), rows::loaded<T, V>(places.template at<GRAD>(grad, at, column))};
  };
  // n and g of a vector.
  const auto terms = [&](const Loaded& loaded, I column, C mean, C rstd, C (&normal)[V], C (&raw)[V], C (&g)[V]) {
    loaded.x.widen(normal);
    loaded.grad.widen(raw);
    C w[V];
    if constexpr (WITH & WEIGHT) rows::fetch(w, places.template at<SCALE>(weight, at, column));
#pragma unroll
    for (int v = 0; v < V; ++v) {
      normal[v] = (normal[v] - mean) * rstd;
      g[v] = WITH & WEIGHT ? raw[v] * w[v] : raw[v];
    }
  };

  if constexpr (SUMS)
    for (int i = 0; i < ITEMS * V * ((WITH & WEIGHT) + (WITH & BIAS) / 2); ++i) slots[i * THREADS] = 0;
  const I begin = I(blockIdx.x) * GROUPS;
  Line next(begin + group < count ? length : 0, lane);
  places.enter(begin + group < count ? begin + group : 0, at);
  next.load(load);
  u32 parity = 0;
#pragma unroll 1
  for (I first = begin; first < count; first += all, parity ^= 1) {
    // This row, and the loads of the next.
    Line line = next;
    const C rstd = *places.template of_row<RSTD>(rstd_in, at), mean = CENTERED ? *places.template of_row<MEAN>(mean_in, at) : C(0);
    i64 here[OPERANDS];
    for (int k = 0; k < OPERANDS; ++k) here[k] = at[k];
    const I after = first + all + group;
    next.length = after < count ? length : 0;
    places.enter(after < count ? after : 0, at);
    next.load(load);

    // Means along the row; the row's part of the sums over rows.
    const auto reload = [&](I column) {
      return Loaded{rows::loaded<T, V>(places.template at<X>(x, here, column)), rows::loaded<T, V>(places.template at<GRAD>(grad, here, column))};
    };
    Two<C> sum = {0, 0};
    line.pass(reload, [&](Loaded& loaded, I column, int i) {
      C normal[V], raw[V], g[V];
      terms(loaded, column, mean, rstd, normal, raw, g);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum.plain += g[v];
        sum.normal += g[v] * normal[v];
        if constexpr (SUMS && WITH & WEIGHT) slots[(i * V + v) * THREADS] += raw[v] * normal[v];
        if constexpr (SUMS && WITH & BIAS) slots[(i * V + v + (WITH & WEIGHT) * ITEMS * V) * THREADS] += raw[v];
      }
    });
    sum = rows::combine<LANES>(sum, [](const Two<C>& a, const Two<C>& b) { return Two<C>{a.plain + b.plain, a.normal + b.normal}; }, parity);
    const C plain = CENTERED ? sum.plain / C(length) : C(0), along = sum.normal / C(length);

    // The gradient of x.
    line.pass(reload, [&](Loaded& loaded, I column, int) {
      C normal[V], raw[V], g[V];
      terms(loaded, column, mean, rstd, normal, raw, g);
#pragma unroll
      for (int v = 0; v < V; ++v) g[v] = (g[v] - plain - normal[v] * along) * rstd;
      rows::put(places.template at<GRAD_X>(grad_x, here, column), g);
    });
  }

  // The stripe's sums: of a CTA's groups in order.
  if constexpr (SUMS) {
    __syncthreads();
    if (group != 0) return;
    C* to = partial + i64(blockIdx.x) * ((WITH & WEIGHT) + (WITH & BIAS) / 2) * length;
    for (int part = 0; part < (WITH & WEIGHT) + (WITH & BIAS) / 2; ++part, to += length)
      for (int i = 0; i < ITEMS * V; ++i) {
        const I column = (I(i / V) * LANES + lane) * V + i % V;
        C total = slots[(part * ITEMS * V + i) * THREADS];
        for (u32 other = 1; other < GROUPS; ++other) total += slots[(part * ITEMS * V + i) * THREADS + other * LANES];
        if (column < length) to[column] = total;
      }
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
#pragma unroll 8
    for (u32 s = warp; s < stripes; s += WARPS) sum += partial[(i64(s) * gridDim.y + blockIdx.y) * length + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= length) return;
  for (int w = 1; w < WARPS; ++w) sum += sums[w][lane];
  (blockIdx.y == 0 ? first : second)[column] = convert<W>(sum);
}
