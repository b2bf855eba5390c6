// Elementwise graphs with statistics of rows: sums, means and extrema of what is computed of a row, which results of
// columns and results of rows then take. Every value is computed in C and each result is rounded once to Out.
//
// Prelude:    defines the struct Graph: COUNT statistics in PASSES passes, first(pass) the first one of a pass,
//             term<S> of a column for statistic S, result<K> for output K, of the inputs and the statistics so far; and
//             Reducers<S, C>::type, the reducer of statistic S (rows/reducers.cuh).
// fused_rows: LANES threads per row (rows/row.cuh). Resident: the inputs are read once and stay in registers. Streamed:
//             read again for every pass. Inputs in the bit mask SINGLE have one value per row, and are loaded once;
//             outputs in the bit mask COLUMNS are written by columns, the others by the row's first thread.
// Shared:     one state per statistic and warp.   Bound: DRAM.
#include "elementwise/value.cuh"
#include "rows/place.cuh"
#include "rows/reducers.cuh"
#include "rows/row.cuh"
#include "rows/words.cuh"

template <class Out, int N> struct Outputs { Out* at[N]; };

// What a row has of each input once: numbers, and the inputs in the mask.
template <u32 SINGLE, class... In> struct Singles {
  template <int K, class Places, class Row> __device__ __forceinline__ void load(const Places&, const Row&) {}
};
template <u32 SINGLE, class A, class... Rest> struct Singles<SINGLE, A, Rest...> {
  A head;
  Singles<(SINGLE >> 1), Rest...> tail;
  template <int K, class Places, class Row>
  __device__ __forceinline__ void load(const Places& places, const Row& at, const A* a, const Rest*... rest) {
    if constexpr (SINGLE & 1) head = *places.template of_row<K>(a, at);
    tail.template load<K + 1>(places, at, rest...);
  }
};
template <u32 SINGLE, class T, class... Rest> struct Singles<SINGLE, Value<T>, Rest...> {
  T head;
  Singles<(SINGLE >> 1), Rest...> tail;
  template <int K, class Places, class Row>
  __device__ __forceinline__ void load(const Places& places, const Row& at, const Value<T>* bits, const Rest*... rest) {
    head = Value<T>::of(reinterpret_cast<u64>(bits));
    tail.template load<K + 1>(places, at, rest...);
  }
};

// V columns of each input that has them.
template <int V, u32 SINGLE, class... In> struct Columns {
  template <int K, class Places, class Row, class I>
  __device__ __forceinline__ void load(const Places&, const Row&, I) {}
  template <class F, class C, class Held, class... X>
  __device__ __forceinline__ C apply(const Held&, int, const C* r, X... x) const {
    return F::template apply<C>(x..., r);
  }
};
template <int V, u32 SINGLE, class A, class... Rest> struct Columns<V, SINGLE, A, Rest...> {
  typename rows::HeldAs<A, (SINGLE & 1) ? 1 : V, rows::HALF<A> && V % 2 == 0 && !(SINGLE & 1)>::type head;
  Columns<V, (SINGLE >> 1), Rest...> tail;
  template <int K, class Places, class Row, class I>
  __device__ __forceinline__ void load(
      const Places& places, const Row& at, I column, const A* a, const Rest*... rest) {
    if constexpr (!(SINGLE & 1)) head.load(places.template at<K>(a, at, column));
    tail.template load<K + 1>(places, at, column, rest...);
  }
  template <class F, class C, class Held, class... X>
  __device__ __forceinline__ C apply(const Held& held, int k, const C* r, X... x) const {
    C own;
    if constexpr (SINGLE & 1) own = convert<C>(held.head);
    else own = rows::element<C>(head, k);
    return tail.template apply<F, C>(held.tail, k, r, x..., own);
  }
};

template <int S, int DIGITS> struct Term {
  template <class C, class... X> static __device__ __forceinline__ C apply(X... x) {
    return Graph::template term<S, DIGITS, C>(x...);
  }
};
template <int K, int DIGITS> struct Result {
  template <class C, class... X> static __device__ __forceinline__ C apply(X... x) {
    return Graph::template result<K, DIGITS, C>(x...);
  }
};

// The states of statistics S to END, which one pass over the row makes.
template <int S, int END, int DIGITS, class C> struct States {
  using Op = typename Reducers<S, C>::type;
  C state = Op::none();
  States<S + 1, END, DIGITS, C> rest;

  template <int V, class Vector, class Held, class I>
  __device__ __forceinline__ void add(const Vector& vector, const Held& held, const C* r, I column) {
    C x[V];
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = vector.template apply<Term<S, DIGITS>, C>(held, v, r);
    Op::add(state, x, column);
    rest.template add<V>(vector, held, r, column);
  }
  template <int LANES, class I> __device__ __forceinline__ void finish(I length, C* r) {
    r[S] = Op::finish(rows::group_reduce<LANES, S>(state, Op::join), length, 0);
    rest.template finish<LANES>(length, r);
  }
};
template <int END, int DIGITS, class C> struct States<END, END, DIGITS, C> {
  template <int V, class Vector, class Held, class I>
  __device__ __forceinline__ void add(const Vector&, const Held&, const C*, I) {}
  template <int LANES, class I> __device__ __forceinline__ void finish(I, C*) {}
};

// Pass P over the row and those behind it.
template <int P, int DIGITS, int V, int LANES, class Vector, class C, class Line, class Load, class Held, class I>
__device__ __forceinline__ void passes(Line& line, const Load& load, const Held& held, I length, C* r) {
  if constexpr (P < Graph::PASSES) {
    States<Graph::first(P), Graph::first(P + 1), DIGITS, C> states;
    line.pass(load, [&](const Vector& vector, I column, int) { states.template add<V>(vector, held, r, column); });
    states.template finish<LANES>(length, r);
    passes<P + 1, DIGITS, V, LANES, Vector>(line, load, held, length, r);
  }
}

// The results from output K on: of V columns (WHOLE), or of the row.
template <bool WHOLE, u32 COLUMNS, int DIGITS, int V, int K, int N, class C, class Out, class Places, class Row,
    class Vector, class Held, class I>
__device__ __forceinline__ void store(const Places& places, const Row& at, const Outputs<Out, N>& out,
    const Vector& vector, const Held& held, const C* r, I column) {
  if constexpr (K < N) {
    if constexpr (WHOLE == bool(COLUMNS >> K & 1)) {
      constexpr int COUNT = WHOLE ? V : 1;
      C y[COUNT];
#pragma unroll
      for (int v = 0; v < COUNT; ++v) y[v] = vector.template apply<Result<K, DIGITS>, C>(held, v, r);
      if constexpr (WHOLE) rows::put<Out>(places.template at<K>(out.at[K], at, column), y);
      else rows::put<Out>(places.template of_row<K>(out.at[K], at), y);
    }
    store<WHOLE, COLUMNS, DIGITS, V, K + 1>(places, at, out, vector, held, r, column);
  }
}

template <class C, int DIGITS, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    u32 COLUMNS, u32 SINGLE, class Out, int N, class... In>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT, C, THREADS>))
    fused_rows(I count, I length, rows::Places<I, R, RC, N + sizeof...(In)> places, Outputs<Out, N> out,
        const In*... in) {
  using Vector = Columns<V, SINGLE, In...>;
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const bool live = row < count;
  i64 at[N + sizeof...(In)];
  places.enter(live ? row : 0, at);

  // 1. load
  Singles<SINGLE, In...> held;
  if (live) held.template load<N>(places, at, in...);
  rows::Row<RESIDENT, Vector, V, ITEMS, LANES, I> line(live ? length : 0, lane);
  const auto load = [&](I column) {
    Vector vector;
    vector.template load<N>(places, at, column, in...);
    return vector;
  };
  line.load(load);

  // 2. statistics, pass by pass
  C r[Graph::COUNT];
  passes<0, DIGITS, V, LANES, Vector>(line, load, held, length, r);

  // 3. results
  if constexpr (COLUMNS != 0)
    line.pass(load, [&](const Vector& vector, I column, int) {
      store<true, COLUMNS, DIGITS, V, 0>(places, at, out, vector, held, r, column);
    });
  // A result of rows may be in place of an input, which the row's other threads have loaded by then.
  if constexpr (LANES > 32) __syncthreads();
  else __syncwarp();
  if (live && lane == 0) store<false, COLUMNS, DIGITS, V, 0>(places, at, out, Vector(), held, r, I(0));
}
