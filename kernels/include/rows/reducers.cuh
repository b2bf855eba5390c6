// Reducers: a State; add (V terms, the first of index `at`), join (two states, in a fixed order), gather (the states of
// a group of LANES threads), finish (the result of n terms). none() is the state of no terms.
#pragma once
#include "math/absolute.cuh"
#include "math/extrema.cuh"
#include "math/log.cuh"
#include "math/pow.cuh"
#include "math/sqrt.cuh"
#include "rows/shifted_sum.cuh"

namespace rows {

template <class C> constexpr bool FLOATING = Same<C, float>::value || Same<C, double>::value;

// The least (LARGEST) or greatest value of C: an infinity, or an end of the 64-bit integer type.
template <class C, bool LARGEST> __device__ __forceinline__ C outermost() {
  if constexpr (FLOATING<C>) return LARGEST ? minus_infinity<C>() : -minus_infinity<C>();
  else if constexpr (C(-1) < C(0)) return LARGEST ? C(1) << 63 : ~(C(1) << 63);
  else return LARGEST ? C(0) : ~C(0);
}

template <class Op> struct Joined {
  template <int LANES, class S> static __device__ __forceinline__ S gather(const S& own) {
    return group_reduce<LANES>(own, Op::join);
  }
};

// MEAN: of floating types; NaN without terms.
template <class C, class Out, bool MEAN> struct Sum : Joined<Sum<C, Out, MEAN>> {
  using State = C;
  using Result = Out;
  static __device__ __forceinline__ State none() { return 0; }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) {
#pragma unroll
    for (int v = 0; v < V; ++v) s += x[v];
  }
  static __device__ __forceinline__ State join(const State& a, const State& b) { return a + b; }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I n, int) {
    return convert<Out>(MEAN ? s / C(n) : s);
  }
};

template <class C, class Out, bool LARGEST> struct Extremum : Joined<Extremum<C, Out, LARGEST>> {
  using State = C;
  using Result = Out;
  static __device__ __forceinline__ State none() { return outermost<C, LARGEST>(); }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    return LARGEST ? math::maximum(a, b) : math::minimum(a, b);
  }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) {
#pragma unroll
    for (int v = 0; v < V; ++v) s = join(s, x[v]);
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) { return convert<Out>(s); }
};

// How many terms equal the maximum (LARGEST) or the minimum; 0 where a term is NaN.
template <class C, class Out, bool LARGEST> struct Ties : Joined<Ties<C, Out, LARGEST>> {
  struct State { C value; i64 count; };
  using Result = Out;
  static __device__ __forceinline__ State none() { return {outermost<C, LARGEST>(), 0}; }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    const C most = Extremum<C, C, LARGEST>::join(a.value, b.value);
    return {most, (a.value == most ? a.count : 0) + (b.value == most ? b.count : 0)};
  }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) {
#pragma unroll
    for (int v = 0; v < V; ++v) s = join(s, {x[v], 1});
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) {
    return convert<Out>(C(s.count));
  }
};

// Index of the first maximum; NaN counts as the maximum.
template <class C, class Out> struct ArgMax {
  struct State { C value; i64 at; };
  using Result = Out;
  static __device__ __forceinline__ State none() { return {outermost<C, true>(), ~(i64(1) << 63)}; }
  // Whether a wins over b.
  static __device__ __forceinline__ bool precedes(const State& a, const State& b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a || nan_b) return nan_a && (!nan_b || a.at < b.at);
    return a.value > b.value || (a.value == b.value && a.at < b.at);
  }
  static __device__ __forceinline__ State join(const State& a, const State& b) { return precedes(b, a) ? b : a; }
  template <int V, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I at) {
    C most = x[0];
#pragma unroll
    for (int v = 1; v < V; ++v) most = math::maximum(most, x[v]);
    int first = 0;
#pragma unroll
    for (int v = V - 1; v >= 0; --v)
      if (x[v] == most) first = v;
    if (most != most)
#pragma unroll
      for (int v = V - 1; v >= 0; --v)
        if (x[v] != x[v]) first = v;
    // Vectors come in index order, so ties keep the earlier index.
    if (most > s.value || (most != most && s.value == s.value) || s.at == none().at) s = {most, i64(at) + first};
  }
  template <int LANES> static __device__ __forceinline__ State gather(const State& own) {
    const C most = group_reduce<LANES, 0>(own.value, [](C a, C b) { return math::maximum(a, b); });
    const bool there = own.value == most || (most != most && own.value != own.value);
    return {most, group_reduce<LANES, 1>(there ? own.at : none().at, [](i64 a, i64 b) { return a < b ? a : b; })};
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) { return s.at; }
};

// Count, mean and sum of squared deviations, joined without cancellation (T. F. Chan, G. H. Golub and R. J. LeVeque,
// "Algorithms for computing the sample variance: analysis and recommendations", The American Statistician 37(3), 1983).
// The count multiplies first: the squared distance of an empty state's mean may be infinite, and 0 * inf would be NaN.
template <class C, class Out> struct Variance {
  struct State { C count, mean, squares; };
  using Result = Out;
  static __device__ __forceinline__ State none() { return {0, 0, 0}; }
  // To 2 ulp: enough for a weight.
  static __device__ __forceinline__ C quotient(C a, C b) {
    if constexpr (Same<C, float>::value) return a * math::rcp_ftz(b);
    else return a / b;
  }
  // The group's mean first, then every thread's squares about it.
  template <int LANES> static __device__ __forceinline__ State gather(const State& own) {
    const C count = rows::sum<LANES, 0>(own.count), share = count > 0 ? own.count / count : C(0);
    const C mean = rows::sum<LANES, 1>(own.mean * share), difference = own.mean - mean;
    return {count, mean, rows::sum<LANES, 2>(own.squares + own.count * difference * difference)};
  }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    const C count = a.count + b.count, share = count > 0 ? quotient(b.count, count) : C(0),
            difference = b.mean - a.mean;
    return {count, a.mean + difference * share, a.squares + b.squares + a.count * share * difference * difference};
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
  // State::join, rounded in one way: which of both products ptxas fuses with the addition goes by the code around it.
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    const C most = math::maximum(a.most, b.most), by = State::shift(most);
    return {most, ::fma(a.sum, State::term(a.most - by), b.sum * State::term(b.most - by))};
  }
  template <int LANES> static __device__ __forceinline__ State gather(const State& own) {
    return State::template gather<LANES>(own);
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) {
    const bool infinite = s.most == -minus_infinity<C>();  // most = +inf: the sum is NaN
    return convert<Out>(infinite ? s.most : s.most + math::log<24>(s.sum));
  }
};

// The terms' own states, joined one by one.
template <class Op, class S, class Out> struct Folded : Joined<Op> {
  using State = S;
  using Result = Out;
  template <int V, class C, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I) {
#pragma unroll
    for (int v = 0; v < V; ++v) s = Op::join(s, Op::term(x[v]));
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) { return convert<Out>(s); }
};

template <class C, class Out> struct Prod : Folded<Prod<C, Out>, C, Out> {
  static __device__ __forceinline__ C none() { return 1; }
  static __device__ __forceinline__ C term(C x) { return x; }
  static __device__ __forceinline__ C join(C a, C b) { return a * b; }
};

// Index of the first minimum, NaN counts as the minimum: the first maximum of the terms in the opposite order.
template <class C, class Out> struct ArgMin : ArgMax<C, Out> {
  template <int V, class I> static __device__ __forceinline__ void add(typename ArgMax<C, Out>::State& s,
                                                                       const C (&x)[V], I at) {
    C opposite[V];
#pragma unroll
    for (int v = 0; v < V; ++v)
      if constexpr (FLOATING<C>) opposite[v] = -x[v];
      else opposite[v] = ~x[v];
    ArgMax<C, Out>::add(s, opposite, at);
  }
};

template <class C, class Out> struct StdDev : Variance<C, C> {
  using Result = Out;
  template <class I>
  static __device__ __forceinline__ Out finish(const typename Variance<C, C>::State& s, I n, int correction) {
    return convert<Out>(math::sqrt<24>(Variance<C, C>::finish(s, n, correction)));
  }
};

// Whether ALL terms, or else any, are not 0.
template <class C, class Out, bool ALL> struct Holds : Folded<Holds<C, Out, ALL>, u32, Out> {
  static __device__ __forceinline__ u32 none() { return ALL; }
  static __device__ __forceinline__ u32 term(C x) { return x != C(0); }
  static __device__ __forceinline__ u32 join(u32 a, u32 b) { return ALL ? a & b : a | b; }
};

template <class C, class Out> struct CountNonzero : Folded<CountNonzero<C, Out>, i64, Out> {
  static __device__ __forceinline__ i64 none() { return 0; }
  static __device__ __forceinline__ i64 term(C x) { return x != C(0); }
  static __device__ __forceinline__ i64 join(i64 a, i64 b) { return a + b; }
  template <class I> static __device__ __forceinline__ Out finish(i64 s, I, int) {
    if constexpr (Same<Out, i64>::value) return s;
    else return convert<Out>(C(s));
  }
};

template <class C, class Out> struct Norm1 : Folded<Norm1<C, Out>, C, Out> {
  static __device__ __forceinline__ C none() { return 0; }
  static __device__ __forceinline__ C term(C x) { return math::absolute(x); }
  static __device__ __forceinline__ C join(C a, C b) { return a + b; }
};

template <class C, class Out> struct Norm2 : Folded<Norm2<C, Out>, C, Out> {
  static __device__ __forceinline__ C none() { return 0; }
  static __device__ __forceinline__ C term(C x) { return x * x; }
  static __device__ __forceinline__ C join(C a, C b) { return a + b; }
  template <class I> static __device__ __forceinline__ Out finish(C s, I, int) {
    return convert<Out>(math::sqrt<24>(s));
  }
};

// The LARGEST or the smallest magnitude.
template <class C, class Out, bool LARGEST> struct NormInf : Folded<NormInf<C, Out, LARGEST>, C, Out> {
  static __device__ __forceinline__ C none() { return LARGEST ? C(0) : -minus_infinity<C>(); }
  static __device__ __forceinline__ C term(C x) { return math::absolute(x); }
  static __device__ __forceinline__ C join(C a, C b) { return Extremum<C, C, LARGEST>::join(a, b); }
};

// sum(|x|^p)^(1 / p), of p and 1 / p as bits of doubles.
template <class C, class Out, u64 P, u64 ROOT> struct NormPower : Folded<NormPower<C, Out, P, ROOT>, C, Out> {
  static __device__ __forceinline__ C none() { return 0; }
  static __device__ __forceinline__ C power(C x, u64 bits) { return math::pow<24>(x, C(__longlong_as_double(bits))); }
  static __device__ __forceinline__ C term(C x) { return power(math::absolute(x), P); }
  static __device__ __forceinline__ C join(C a, C b) { return a + b; }
  template <class I> static __device__ __forceinline__ Out finish(C s, I, int) { return convert<Out>(power(s, ROOT)); }
};

template <class C, class Out> struct NanSum : Folded<NanSum<C, Out>, C, Out> {
  static __device__ __forceinline__ C none() { return 0; }
  static __device__ __forceinline__ C term(C x) { return x != x ? C(0) : x; }
  static __device__ __forceinline__ C join(C a, C b) { return a + b; }
};

template <class C> struct SumAndCount { C sum; i64 count; };
template <class C, class Out> struct NanMean : Folded<NanMean<C, Out>, SumAndCount<C>, Out> {
  using State = SumAndCount<C>;
  static __device__ __forceinline__ State none() { return {0, 0}; }
  static __device__ __forceinline__ State term(C x) { return {x != x ? C(0) : x, x == x}; }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    return {a.sum + b.sum, a.count + b.count};
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) {
    return convert<Out>(s.sum / C(s.count));
  }
};

// The LARGEST or the smallest term that is not NaN; NaN without one.
template <class C, class Out, bool LARGEST> struct NanExtremum : Folded<NanExtremum<C, Out, LARGEST>, C, Out> {
  static __device__ __forceinline__ C none() { return C(__uint_as_float(0x7fffffff)); }
  static __device__ __forceinline__ C term(C x) { return x; }
  static __device__ __forceinline__ C join(C a, C b) {
    return a != a ? b : b != b ? a : Extremum<C, C, LARGEST>::join(a, b);
  }
};

// How many terms equal the extremum that Of finds, of the terms as Of takes them; NaN equals nothing.
template <class C> struct ValueAndCount { C value; i64 count; };
template <class Of, class C, class Out> struct TiesOf : Folded<TiesOf<Of, C, Out>, ValueAndCount<C>, Out> {
  using State = ValueAndCount<C>;
  static __device__ __forceinline__ State none() { return {Of::none(), 0}; }
  static __device__ __forceinline__ State term(C x) { return {Of::term(x), 1}; }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    const C most = Of::join(a.value, b.value);
    const i64 first = a.value == most ? a.count : 0, second = b.value == most ? b.count : 0;
    return {most, first + second};
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) {
    return convert<Out>(C(s.count));
  }
};

// How many terms are not NaN.
template <class C, class Out> struct Valid : Folded<Valid<C, Out>, i64, Out> {
  static __device__ __forceinline__ i64 none() { return 0; }
  static __device__ __forceinline__ i64 term(C x) { return x == x; }
  static __device__ __forceinline__ i64 join(i64 a, i64 b) { return a + b; }
  template <class I> static __device__ __forceinline__ Out finish(i64 s, I, int) { return convert<Out>(C(s)); }
};

// The product of all terms but one zero. Beside a second zero it is 0, or NaN if a term is not finite (`nothing`
// is NaN then, otherwise 0): the product of the others itself may overflow.
template <class C> struct ProductAndZeros { C product, nothing; i64 zeros; };
template <class C, class Out> struct OtherFactors : Folded<OtherFactors<C, Out>, ProductAndZeros<C>, Out> {
  using State = ProductAndZeros<C>;
  static __device__ __forceinline__ State none() { return {1, 0, 0}; }
  static __device__ __forceinline__ State term(C x) { return {x == C(0) ? C(1) : x, x - x, x == C(0)}; }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    return {a.product * b.product, a.nothing + b.nothing, a.zeros + b.zeros};
  }
  template <class I> static __device__ __forceinline__ Out finish(const State& s, I, int) {
    return convert<Out>(s.zeros > 1 ? s.nothing : s.product);
  }
};

// Two reducers of the same terms, of which the second is Joined: the pair of their results.
template <class T> struct ResultPair { T first, second; };
template <class A, class B, class Out> struct TwoReducers {
  struct State { typename A::State first; typename B::State second; };
  using Result = ResultPair<Out>;
  static __device__ __forceinline__ State none() { return {A::none(), B::none()}; }
  template <int V, class C, class I> static __device__ __forceinline__ void add(State& s, const C (&x)[V], I at) {
    A::add(s.first, x, at);
    B::add(s.second, x, at);
  }
  static __device__ __forceinline__ State join(const State& a, const State& b) {
    return {A::join(a.first, b.first), B::join(a.second, b.second)};
  }
  template <int LANES> static __device__ __forceinline__ State gather(const State& own) {
    return {A::template gather<LANES>(own.first), group_reduce<LANES, 3>(own.second, B::join)};
  }
  template <class I> static __device__ __forceinline__ Result finish(const State& s, I n, int correction) {
    return {A::finish(s.first, n, correction), B::finish(s.second, n, correction)};
  }
};

}  // namespace rows
