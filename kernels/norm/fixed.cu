// out = (x - mean) rstd weight + bias of each channel, rstd = 1 / sqrt(var + eps): batch norm by given statistics.
//
// Threads:   each CTA takes ITEMS vectors of V columns a thread; columns are all elements, in the order of memory.
// ONE:       all columns of a vector are of one channel.
// Rounding:  computed in C, rounded once.   Bound: DRAM.
#include "math/sqrt.cuh"
#include "norm/gather.cuh"
#include "rows/hold.cuh"

enum With { WEIGHT = 1, BIAS = 2, ONE = 4 };
enum Operand { OUT, X, SCALE, SHIFT, MEAN, VARIANCE, OPERANDS };

template <class T, class W, class C, int V, int ITEMS, int THREADS, int RC, class I, int WITH>
__global__ void __launch_bounds__(THREADS) norm_fixed(I length, C eps, rows::Places<I, 0, RC, OPERANDS> places, T* out,
    const T* x, const W* weight, const W* bias, const C* mean, const C* variance) {
  constexpr int PER = WITH & ONE ? 1 : V;
  struct Loaded { rows::Pack<T, V> x; rows::Pack<W, PER> scale, shift; rows::Pack<C, PER> mean, variance; };
  const I first = I(blockIdx.x) * (ITEMS * THREADS * V);
  const i64 at[OPERANDS] = {};
  rows::Row<true, Loaded, V, ITEMS, THREADS, I> line(length - first, threadIdx.x);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x = norms::gather<true, X, V>(places, x, at, first + column);
    loaded.mean = norms::gather<true, MEAN, PER>(places, mean, at, first + column);
    loaded.variance = norms::gather<true, VARIANCE, PER>(places, variance, at, first + column);
    if constexpr (WITH & WEIGHT) loaded.scale = norms::gather<true, SCALE, PER>(places, weight, at, first + column);
    if constexpr (WITH & BIAS) loaded.shift = norms::gather<true, SHIFT, PER>(places, bias, at, first + column);
    return loaded;
  };
  line.load(load);
  rows::hold(line, &Loaded::x);
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C y[V], m[PER], r[PER], w[PER], b[PER];
    loaded.x.widen(y);
    loaded.mean.widen(m);
    loaded.variance.widen(r);
    if constexpr (WITH & WEIGHT) loaded.scale.widen(w);
    if constexpr (WITH & BIAS) loaded.shift.widen(b);
#pragma unroll
    for (int v = 0; v < PER; ++v) r[v] = math::rsqrt<24>(r[v] + eps);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      y[v] = (y[v] - m[v % PER]) * r[v % PER];
      if constexpr (WITH & WEIGHT) y[v] *= w[v % PER];
      if constexpr (WITH & BIAS) y[v] += b[v % PER];
    }
    rows::put(places.template at<OUT>(out, at, first + column), y);
  });
}
