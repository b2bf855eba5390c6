// out = softmax((x + g) scale) along rows, or HARD: 1 at the first of the largest and 0 elsewhere; g is the noise of
// Gumbel's distribution at position offset + i of the stream (seed, subsequence), i the element's index in C order.
// gumbel_softmax_backward: grad_x = scale p (grad - sum(p grad)), p = softmax((x + g) scale), of the same noise again.
//
// Mapping:  LANES threads per row (rows/row.cuh), resident in registers with its noise, or streamed: every pass then
//           draws the noise again. V elements of whole Philox blocks, or one.
// Index:    of a row by the strides of a C-order array (operand INDEX, in bytes, which no memory belongs to), of a
//           column by `step`.
// Special:  a row with NaN or +inf, or with -inf only, is NaN.
// Shared:   two values per warp.   Bound: DRAM, or the instructions of Philox and of two logarithms per element.
#include "random/chunk.cuh"
#include "random/distributions.cuh"
#include "rows/place.cuh"
#include "rows/reducers.cuh"
#include "rows/row.cuh"

// What the noise of a launch depends on.
struct NoiseStream {
  u64 seed, begin, subsequence;
};

// The noise of V elements from `index` on.
template <class C, int V>
__device__ __forceinline__ void gumbel_noise(const NoiseStream& from, u64 index, C (&noise)[V]) {
  if constexpr (V > 1) {
    const philox::Numbers<C> standard = {0, 1};
    philox::draw_chunk<philox::RandomGumbel<C>>(from.seed, from.begin + index, from.subsequence, standard, noise);
  } else {
    using Word = philox::Bits<C>;
    const u64 position = from.begin + index;
    const auto block = philox::block_at<Word::PER_BLOCK>(from.seed, position / Word::PER_BLOCK, from.subsequence);
    auto word = Word::of(block, 0);
#pragma unroll
    for (int i = 1; i < Word::PER_BLOCK; ++i)
      if (position % Word::PER_BLOCK == i) word = Word::of(block, i);
    noise[0] = -::log(philox::minus_log(word));
  }
}

// (x + g) scale of V elements from `index` on.
template <class T, class C, int V>
__device__ __forceinline__ void noisy_scores(const T* x, const NoiseStream& from, u64 index, C scale, C (&z)[V]) {
  C a[V];
  gumbel_noise(from, index, z);
  rows::loaded<T, V>(x).widen(a);
#pragma unroll
  for (int v = 0; v < V; ++v) z[v] = (a[v] + z[v]) * scale;
}

enum Operand { OUT, X, INDEX, OPERANDS };

template <class T, class C, int DIGITS, bool HARD, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R,
    int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    gumbel_softmax(I count, I length, C scale, u64 seed, u64 offset, u64 subsequence, u64 step,
        rows::Places<I, R, RC, OPERANDS> places, T* out, const T* x, const u64* position) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  using First = rows::ArgMax<C, i64>;
  struct Loaded { C z[V]; };
  const NoiseStream from = {seed, offset + (position ? *position : 0), subsequence};
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    noisy_scores(places.template at<X>(x, at, column), from, u64(at[INDEX]) + column * step, scale, loaded.z);
    return loaded;
  };
  line.load(load);

  // 1. maximum and sum, and the maximum's place
  Sum sum = Sum::none();
  typename First::State first = First::none();
  line.pass(load, [&](Loaded& loaded, I column, int) {
    sum.add(loaded.z);
    if constexpr (HARD) First::add(first, loaded.z, column);
  });
  sum = Sum::template gather<LANES>(sum);
  if constexpr (HARD) first = First::template gather<LANES>(first);

  // 2. result
  const C factor = C(1) / sum.sum, none = sum.sum > 0 ? C(0) : C(__uint_as_float(0x7fc00000));
  const auto store = [&](I column, C (&y)[V]) { rows::put(places.template at<OUT>(out, at, column), y); };
  if constexpr (HARD && !RESIDENT) {
    const auto nothing = [](I) { return Loaded(); };
    line.pass(nothing, [&](Loaded& loaded, I column, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) loaded.z[v] = i64(column) + v == first.at ? C(1) + none : none;
      store(column, loaded.z);
    });
  } else {
    line.pass(load, [&](Loaded& loaded, I column, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if constexpr (HARD) loaded.z[v] = i64(column) + v == first.at ? C(1) + none : none;
        else loaded.z[v] = math::exp<DIGITS>(loaded.z[v] - sum.most) * factor;
      }
      store(column, loaded.z);
    });
  }
}

enum GradientOperand { GRAD_X, GRAD, GIVEN_X, GIVEN_INDEX, GRADIENT_OPERANDS };

template <class T, class C, int DIGITS, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
    gumbel_softmax_backward(I count, I length, C scale, u64 seed, u64 offset, u64 subsequence, u64 step,
        rows::Places<I, R, RC, GRADIENT_OPERANDS> places, T* grad_x, const T* grad, const T* x, const u64* position) {
  using Sum = rows::ShiftedSum<C, DIGITS>;
  struct Loaded { rows::Pack<T, V> grad; C z[V]; };
  const NoiseStream from = {seed, offset + (position ? *position : 0), subsequence};
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count;
  i64 at[GRADIENT_OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.grad = rows::loaded<T, V>(places.template at<GRAD>(grad, at, column));
    noisy_scores(
        places.template at<GIVEN_X>(x, at, column), from, u64(at[GIVEN_INDEX]) + column * step, scale, loaded.z);
    return loaded;
  };
  line.load(load);

  // 1. maximum and sum of the exponentials
  Sum sum = Sum::none();
  line.pass(load, [&](Loaded& loaded, I, int) { sum.add(loaded.z); });
  sum = Sum::template gather<LANES>(sum);
  const C factor = C(1) / sum.sum;

  // 2. sum of p grad
  C total = 0;
  line.pass(load, [&](Loaded& loaded, I, int) {
    C g[V];
    loaded.grad.widen(g);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      loaded.z[v] = math::exp<DIGITS>(loaded.z[v] - sum.most) * factor;
      total += loaded.z[v] * g[v];
    }
  });
  total = rows::sum<LANES, 2>(total);

  // 3. result; what is streamed was drawn again
  line.pass(load, [&](Loaded& loaded, I column, int) {
    C g[V];
    loaded.grad.widen(g);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C p = RESIDENT ? loaded.z[v] : math::exp<DIGITS>(loaded.z[v] - sum.most) * factor;
      g[v] = scale * p * (g[v] - total);
    }
    rows::put(places.template at<GRAD_X>(grad_x, at, column), g);
  });
}
