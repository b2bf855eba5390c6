// What a reduction does with its terms: a state, what adds V terms, whose first has place `at`, to it, what joins two, and what
// makes the result of n terms. States are joined in a fixed order; `none` is that of no terms.
#pragma once
#include "math/extrema.cuh"
#include "math/log.cuh"
#include "rows/shifted_sum.cuh"

namespace rows {

template <class C> constexpr bool FLOATING = Same<C, float>::value || Same<C, double>::value;

// Below every value, or above: infinities, or the ends of an integer type of 64 bits.
template <class C, bool LARGEST> __device__ __forceinline__ C outermost() {
  if constexpr (FLOATING<C>) return LARGEST ? minus_infinity<C>() : -minus_infinity<C>();
  else if constexpr (C(-1) < C(0)) return LARGEST ? C(1) << 63 : ~(C(1) << 63);
  else return LARGEST ? C(0) : ~C(0);
}

// MEAN: of floating types; without terms NaN.
template <class C, class Out, bool MEAN> struct Sum {
  using State = C;
  using Result = Out;
  static __device__ __forceinline__ State none() { return 0; }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) {
#pragma unroll
    for (int v = 0; v < V; ++v) s += x[v];
  }
  static __device__ __forceinline__ State join(const State& a, const State& b) { return a + b; }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I n, int) { return convert<Out>(MEAN ? s / C(n) : s); }
};

template <class C, class Out, bool LARGEST> struct Extremum {
  using State = C;
  using Result = Out;
  static __device__ __forceinline__ State none() { return outermost<C, LARGEST>(); }
  static __device__ __forceinline__ State join(const State& a, const State& b) { return LARGEST ? math::maximum(a, b) : math::minimum(a, b); }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) {
#pragma unroll
    for (int v = 0; v < V; ++v) s = join(s, x[v]);
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) { return convert<Out>(s); }
};

// The place of the first largest, a NaN being the largest.
template <class C, class Out> struct ArgMax {
  struct State { C value; i64 at; };
  using Result = Out;
  static __device__ __forceinline__ State none() { return {outermost<C, true>(), ~(i64(1) << 63)}; }
  // Whether a comes before b.
  static __device__ __forceinline__ bool before(const State& a, const State& b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a || nan_b) return nan_a && (!nan_b || a.at < b.at);
    return a.value > b.value || (a.value == b.value && a.at < b.at);
  }
  static __device__ __forceinline__ State join(const State& a, const State& b) { return before(b, a) ? b : a; }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I at) {
#pragma unroll
    for (int v = 0; v < V; ++v)  // terms come in order of their places
      if (x[v] > s.value || (x[v] != x[v] && s.value == s.value) || s.at == none().at) s = {x[v], i64(at) + v};
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) { return s.at; }
};

// Counts, means and sums of squared deviations, joined without cancellation (T. F. Chan, G. H. Golub and R. J. LeVeque,
// "Algorithms for computing the sample variance: analysis and recommendations", The American Statistician 37(3), 1983).
template <class C, class Out> struct Variance {
  struct State { C count, mean, squares; };
  using Result = Out;
  static __device__ __forceinline__ State none() { return {0, 0, 0}; }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    const C count = a.count + b.count, share = count > 0 ? b.count / count : C(0), apart = b.mean - a.mean;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * (a.count * share)};
  }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) {
    State block = {V, 0, 0};
#pragma unroll
    for (int v = 0; v < V; ++v) block.mean += x[v];
    block.mean *= C(1) / V;
#pragma unroll
    for (int v = 0; v < V; ++v) block.squares += (x[v] - block.mean) * (x[v] - block.mean);
    s = join(s, block);
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I n, int correction) {
    return convert<Out>(s.squares / (i64(n) > correction ? C(i64(n) - correction) : C(0)));
  }
};

template <class C, class Out, int DIGITS> struct LogSumExp {
  using State = ShiftedSum<C, DIGITS>;
  using Result = Out;
  static __device__ __forceinline__ State none() { return State::none(); }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) { s.add(x); }
  static __device__ __forceinline__ State join(const State& a, const State& b) { return State::join(a, b); }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) {
    return convert<Out>(s.most + math::log<24>(s.sum));
  }
};

}  // namespace rows
