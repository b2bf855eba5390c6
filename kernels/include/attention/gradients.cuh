// What gradients of attention are computed from and written to, beside the problem; which queries see a key; and what the gradient
// of a score is. Mirrors baracuda_py/ops/attention/_gradients.py.
#pragma once
#include "attention/mask.cuh"

namespace attention {

// `delta` is what the forward's result contributes to each query: rowsum(grad * out), [sequences, heads, queries] in C order
// (ragged: [heads, all queries]). `sums` are grad_q's, not yet scaled, where kernels add them up: [.., columns] likewise.
template <class T, class C> struct Gradients {
  const T* grad;
  T *grad_q, *grad_k, *grad_v;
  C *delta, *sums;
  Walk grad_walk, grad_q_walk, grad_k_walk, grad_v_walk, delta_walk;
};

// Those of one query head.
template <class T, class C> struct QueryGradients {
  const T* grad;
  T* grad_q;
  C* delta;
  i64 first;  // of the head's queries among those of all heads
  __device__ __forceinline__ QueryGradients(const Problem<T, T, C>& p, const Gradients<T, C>& g, u32 batch, u32 head) {
    const int start = Extent(p.starts_q, batch, p.rows).first;
    grad = g.grad + batch * g.grad_walk.batch + head * g.grad_walk.head + start * g.grad_walk.row;
    grad_q = g.grad_q + batch * g.grad_q_walk.batch + head * g.grad_q_walk.head + start * g.grad_q_walk.row;
    first = batch * g.delta_walk.batch + head * g.delta_walk.head + start * g.delta_walk.row;
    delta = g.delta + first;
  }
};

// Those of one head of keys and values.
template <class T, class C> struct KeyGradients {
  T *grad_k, *grad_v;
  __device__ __forceinline__ KeyGradients(const Problem<T, T, C>& p, const Gradients<T, C>& g, u32 batch, u32 kv_head) {
    const int start = Extent(p.starts_k, batch, p.keys).first;
    grad_k = g.grad_k + batch * g.grad_k_walk.batch + kv_head * g.grad_k_walk.head + start * g.grad_k_walk.row;
    grad_v = g.grad_v + batch * g.grad_v_walk.batch + kv_head * g.grad_v_walk.head + start * g.grad_v_walk.row;
  }
};

// Queries [first, end) that see key j by its place alone; empty where end <= first.
struct Rows { int first, end; };
template <class P, class H> __device__ __forceinline__ Rows rows_of(const P& p, const H& head, int j) {
  const i64 stands = j - head.offset;
  return {int(max(min(stands - p.right, i64(head.rows)), i64(0))), int(max(min(stands + p.left + 1, i64(head.rows)), i64(0)))};
}

// What is subtracted from a row's scores: lse, and inf where it is -inf, so that a row that sees nothing has weights of 0.
template <class C> __device__ __forceinline__ C shift_of(C lse) { return lse == rows::minus_infinity<C>() ? -lse : lse; }

// The derivative of a score, as it enters the softmax, by scale q k.
template <class P, class C> __device__ __forceinline__ C derivative(const P& p, C score) {
  if (!p.capped) return C(1);
  const C part = math::tanh<24>(score / C(p.softcap));
  return (C(1) - part) * (C(1) + part);
}

}  // namespace attention
