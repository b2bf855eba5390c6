// out[i] = Op(in0[i], in1[i], ...), computed in C and rounded once to Out.
//
// Prelude:        defines the functor Op, `template <int digits, class C> static C apply(C...)`, digits the significand
//                 of Out, and includes the headers that Op calls.
// map_contiguous: all operands dense in the same order. UNROLL vectors of V elements per thread, interleaved over the
//                 CTA: coalesced 16-byte accesses, UNROLL loads per operand in flight; scalar tail.
// map_strided:    any strides, 0 to broadcast. A vector of V elements is along the innermost axis, where the output and
//                 every input has stride 1, or 0 for inputs in the bit mask SPLAT; outer indices by invariant division.
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

template <class F, class C, int DIGITS, class Out, int V, class Row> __device__ __forceinline__ Vec<Out, V> evaluate(const Row& row) {
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

template <class F, class C, int DIGITS, int V, int UNROLL, int THREADS, int R, int SPLAT, class I, class Out, class... In>
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
