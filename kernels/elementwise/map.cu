// out[i] = Op(in0[i], in1[i], ...), computed in C and rounded once to Out. The prelude brings Op, a functor with
// `template <int digits, class C> static C apply(C...)`.
//
// map_contiguous: all operands dense in the same order. A thread takes UNROLL vectors of V elements, a CTA's vectors
// interleaved by thread, so that each access is one full 16-byte lane and UNROLL loads an operand are in flight.
// map_strided: any strides (0 to broadcast). V elements lie along the innermost axis where every operand has stride 1 or 0
// there; the outer axes are found by dividing by invariant extents.
// No shared memory. Bound: memory bandwidth; instruction issue for the costliest functions.
#include "index.cuh"
#include "math.cuh"

constexpr int THREADS = 256;

template <class F, class C, int DIGITS, class Out, int V, class... In>
__device__ __forceinline__ Vec<Out, V> apply(const Vec<In, V>&... in) {
  Vec<Out, V> out;
  if constexpr (DIGITS <= 11 && V % 2 == 0) {
    float y[V];
#pragma unroll
    for (int i = 0; i < V; ++i) y[i] = F::template apply<DIGITS, C>(convert<C>(in.at[i])...);
    u32 pairs[V / 2];
    pack_pairs<V>(y, pairs, Out{});
    memcpy(&out, pairs, sizeof(out));
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) out.at[i] = convert<Out>(C(F::template apply<DIGITS, C>(convert<C>(in.at[i])...)));
  }
  return out;
}

// V elements at a byte offset: one access, or one element repeated where the operand is broadcast along the inner axis.
template <class T, int V, int SPLAT = 0> __device__ __forceinline__ Vec<T, V> gather(const T* base, i64 offset) {
  const T* at = reinterpret_cast<const T*>(reinterpret_cast<const u8*>(base) + offset);
  if constexpr (!SPLAT) return *reinterpret_cast<const Vec<T, V>*>(at);
  Vec<T, V> x;
#pragma unroll
  for (int i = 0; i < V; ++i) x.at[i] = *at;
  return x;
}

template <class F, class C, int DIGITS, int V, int UNROLL, class I, class Out, class A>
__global__ void __launch_bounds__(THREADS) map1_contiguous(Out* out, const A* a, I count) {
  I base = (I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x) * V;
  Vec<A, V> x[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = base + I(u) * (THREADS * V);
    if (i + V <= count) x[u] = *reinterpret_cast<const Vec<A, V>*>(a + i);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = base + I(u) * (THREADS * V);
    if (i + V <= count) {
      *reinterpret_cast<Vec<Out, V>*>(out + i) = apply<F, C, DIGITS, Out, V, A>(x[u]);
    } else {
#pragma unroll 1
      for (; i < count; ++i) out[i] = convert<Out>(C(F::template apply<DIGITS, C>(convert<C>(a[i]))));
    }
  }
}

template <class F, class C, int DIGITS, int V, int UNROLL, class I, class Out, class A, class B>
__global__ void __launch_bounds__(THREADS) map2_contiguous(Out* out, const A* a, const B* b, I count) {
  I base = (I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x) * V;
  Vec<A, V> x[UNROLL];
  Vec<B, V> y[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = base + I(u) * (THREADS * V);
    if (i + V <= count) {
      x[u] = *reinterpret_cast<const Vec<A, V>*>(a + i);
      y[u] = *reinterpret_cast<const Vec<B, V>*>(b + i);
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = base + I(u) * (THREADS * V);
    if (i + V <= count) {
      *reinterpret_cast<Vec<Out, V>*>(out + i) = apply<F, C, DIGITS, Out, V, A, B>(x[u], y[u]);
    } else {
#pragma unroll 1
      for (; i < count; ++i) out[i] = convert<Out>(C(F::template apply<DIGITS, C>(convert<C>(a[i]), convert<C>(b[i]))));
    }
  }
}

template <class F, class C, int DIGITS, int V, int UNROLL, int R, class I, class Out, class A>
__global__ void __launch_bounds__(THREADS) map1_strided(Out* out, const A* a, I vectors, Dims<I, R, 2> dims) {
  I base = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = base + I(u) * THREADS;
    if (i >= vectors) return;
    i64 offset[2] = {0, 0};
    dims.locate(i, offset);
    auto x = gather<A, V>(a, offset[1]);
    *reinterpret_cast<Vec<Out, V>*>(reinterpret_cast<u8*>(out) + offset[0]) = apply<F, C, DIGITS, Out, V, A>(x);
  }
}

template <class F, class C, int DIGITS, int V, int UNROLL, int R, int SPLAT_A, int SPLAT_B, class I, class Out, class A, class B>
__global__ void __launch_bounds__(THREADS) map2_strided(Out* out, const A* a, const B* b, I vectors, Dims<I, R, 3> dims) {
  I base = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  Vec<A, V> x[UNROLL];
  Vec<B, V> y[UNROLL];
  i64 to[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = base + I(u) * THREADS;
    if (i < vectors) {
      i64 offset[3] = {0, 0, 0};
      dims.locate(i, offset);
      to[u] = offset[0];
      x[u] = gather<A, V, SPLAT_A>(a, offset[1]);
      y[u] = gather<B, V, SPLAT_B>(b, offset[2]);
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (base + I(u) * THREADS < vectors)
      *reinterpret_cast<Vec<Out, V>*>(reinterpret_cast<u8*>(out) + to[u]) = apply<F, C, DIGITS, Out, V, A, B>(x[u], y[u]);
}
