// out[i] = Op(in0[i], in1[i], ...), computed in C and rounded once to Out.
//
// Prelude:        defines the functor Op, `template <int digits, class C> static C apply(C...)`, digits the significand
//                 of Out, and includes the headers that Op calls.
// map_contiguous: all operands dense in the same order. UNROLL vectors of V elements per thread, interleaved over the
//                 CTA: coalesced 16-byte accesses, UNROLL loads per operand in flight; scalar tail.
// map_strided:    any strides, 0 to broadcast. A vector of V elements is along the innermost axis, where the output and
//                 every input has stride 1, or 0 for inputs in the bit mask SPLAT; outer indices by invariant division.
// map_several_*:  the same for several outputs of one type, with a functor each; the inputs are loaded once.
// Shared:         none.   Bound: DRAM bandwidth; instruction issue for the costliest functions.
#include "core/index.cuh"

// V elements of each input in registers, recursive over the inputs; the lowest bit of SPLAT belongs to the first input.
template <int V, int SPLAT, class... In> struct Inputs {
  __device__ __forceinline__ void load(const i64*) {}
  template <class F, class C, int DIGITS, class... X> __device__ __forceinline__ C apply(int, X... x) const {
    return C(F::template apply<DIGITS, C>(x...));
  }
};
template <int V, int SPLAT, class A, class... Rest> struct Inputs<V, SPLAT, A, Rest...> {
  Vec<A, V> head;
  Inputs<V, (SPLAT >> 1), Rest...> tail;

  // Loads from one byte offset per input.
  __device__ __forceinline__ void load(const i64* offset, const A* a, const Rest*... rest) {
    const A* at = reinterpret_cast<const A*>(reinterpret_cast<const u8*>(a) + *offset);
    if constexpr (SPLAT & 1) {
#pragma unroll
      for (int i = 0; i < V; ++i) head.at[i] = *at;
    } else {
      head = *reinterpret_cast<const Vec<A, V>*>(at);
    }
    tail.load(offset + 1, rest...);
  }
  template <class F, class C, int DIGITS, class... X> __device__ __forceinline__ C apply(int k, X... x) const {
    return tail.template apply<F, C, DIGITS>(k, x..., convert<C>(head.at[k]));
  }
};

template <class F, class C, int DIGITS, class Out, int V, class Row>
__device__ __forceinline__ Vec<Out, V> evaluate(const Row& row) {
  C y[V];
#pragma unroll
  for (int k = 0; k < V; ++k) y[k] = row.template apply<F, C, DIGITS>(k);
  return round_to<Out, V>(y);
}

template <class F, class C, int DIGITS, int V, int UNROLL, int THREADS, class I, class Out, class... In>
__global__ void __launch_bounds__(THREADS) map_contiguous(I count, Out* out, const In*... in) {
  const I first = (I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x) * V;
  // 1. Load all vectors
  Inputs<V, 0, In...> row[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I i = first + I(u) * (THREADS * V);
    const i64 offset[] = {i64(i) * i64(sizeof(In))...};
    if (i + V <= count) row[u].load(offset, in...);
  }
  // 2. Evaluate and store; scalar tail
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = first + I(u) * (THREADS * V);
    if (i + V <= count) {
      *reinterpret_cast<Vec<Out, V>*>(out + i) = evaluate<F, C, DIGITS, Out, V>(row[u]);
    } else {
#pragma unroll 1
      for (; i < count; ++i) {
        const i64 offset[] = {i64(i) * i64(sizeof(In))...};
        Inputs<1, 0, In...> one;
        one.load(offset, in...);
        out[i] = evaluate<F, C, DIGITS, Out, 1>(one).at[0];
      }
    }
  }
}

template <class F, class C, int DIGITS, int V, int UNROLL, int THREADS, int R, int SPLAT, class I, class Out,
    class... In>
__global__ void __launch_bounds__(THREADS)
    map_strided(I vectors, Dims<I, R, 1 + sizeof...(In)> dims, Out* out, const In*... in) {
  const I first = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  // 1. Locate and load all vectors
  Inputs<V, SPLAT, In...> row[UNROLL];
  i64 to[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I i = first + I(u) * THREADS;
    if (i < vectors) {
      i64 offset[1 + sizeof...(In)] = {};
      dims.locate(i, offset);
      to[u] = offset[0];
      row[u].load(offset + 1, in...);
    }
  }
  // 2. Evaluate and store
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (first + I(u) * THREADS < vectors)
      *reinterpret_cast<Vec<Out, V>*>(reinterpret_cast<u8*>(out) + to[u]) = evaluate<F, C, DIGITS, Out, V>(row[u]);
}

// The functors of several outputs, which have one type, and the outputs' addresses.
template <class... F> struct Functors;
template <class Out, int N> struct Outputs { Out* at[N]; };

// Evaluates functor K of F and the ones after it on loaded inputs, and stores each result at `offset` of its output.
template <class C, int DIGITS, class Out, int V, int K, class Row> struct EvaluateEach {
  template <class F, class... Rest, int N>
  static __device__ __forceinline__ void store(const Row& row, const Outputs<Out, N>& out, const i64 (&offset)[N]) {
    *reinterpret_cast<Vec<Out, V>*>(reinterpret_cast<u8*>(out.at[K]) + offset[K]) = evaluate<F, C, DIGITS, Out, V>(row);
    if constexpr (sizeof...(Rest) != 0)
      EvaluateEach<C, DIGITS, Out, V, K + 1, Row>::template store<Rest...>(row, out, offset);
  }
};
template <class C, int DIGITS, class Out, int V, class Row, class... F, int N>
__device__ __forceinline__ void store_each(
    Functors<F...>*, const Row& row, const Outputs<Out, N>& out, const i64 (&offset)[N]) {
  EvaluateEach<C, DIGITS, Out, V, 0, Row>::template store<F...>(row, out, offset);
}

// map_contiguous for N outputs. An output may be an input: all inputs of an element are loaded before any result is
// stored.
template <class F, class C, int DIGITS, int V, int UNROLL, int THREADS, class I, class Out, int N, class... In>
__global__ void __launch_bounds__(THREADS) map_several_contiguous(I count, Outputs<Out, N> out, const In*... in) {
  const I first = (I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x) * V;
  const auto all_at = [](i64 (&offset)[N], I i) {
#pragma unroll
    for (int n = 0; n < N; ++n) offset[n] = i64(i) * i64(sizeof(Out));
  };
  // 1. Load all vectors
  Inputs<V, 0, In...> row[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I i = first + I(u) * (THREADS * V);
    const i64 offset[] = {i64(i) * i64(sizeof(In))...};
    if (i + V <= count) row[u].load(offset, in...);
  }
  // 2. Evaluate and store; scalar tail
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = first + I(u) * (THREADS * V);
    i64 to[N];
    if (i + V <= count) {
      all_at(to, i);
      store_each<C, DIGITS, Out, V>(static_cast<F*>(0), row[u], out, to);
    } else {
#pragma unroll 1
      for (; i < count; ++i) {
        const i64 offset[] = {i64(i) * i64(sizeof(In))...};
        Inputs<1, 0, In...> one;
        one.load(offset, in...);
        all_at(to, i);
        store_each<C, DIGITS, Out, 1>(static_cast<F*>(0), one, out, to);
      }
    }
  }
}

// map_strided for N outputs, each with strides of its own.
template <class F, class C, int DIGITS, int V, int UNROLL, int THREADS, int R, int SPLAT, class I, class Out, int N,
    class... In>
__global__ void __launch_bounds__(THREADS)
    map_several_strided(I vectors, Dims<I, R, N + sizeof...(In)> dims, Outputs<Out, N> out, const In*... in) {
  const I first = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  // 1. Locate and load all vectors
  Inputs<V, SPLAT, In...> row[UNROLL];
  i64 to[UNROLL][N];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I i = first + I(u) * THREADS;
    if (i < vectors) {
      i64 offset[N + sizeof...(In)] = {};
      dims.locate(i, offset);
#pragma unroll
      for (int n = 0; n < N; ++n) to[u][n] = offset[n];
      row[u].load(offset + N, in...);
    }
  }
  // 2. Evaluate and store
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (first + I(u) * THREADS < vectors) store_each<C, DIGITS, Out, V>(static_cast<F*>(0), row[u], out, to[u]);
}
