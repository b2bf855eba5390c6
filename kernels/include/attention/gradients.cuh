// Operands of the backward kernels beside Problem, the queries that see a key, and the derivative of a score. Mirrors
// baracuda_py/ops/attention/_backward/gradients.py.
#pragma once
#include "attention/mask.cuh"
#include "math/exp.cuh"

namespace attention {

// Per query: SHIFT is what is subtracted from scores (lse; +inf where lse is -inf, so that P of such a row is 0),
// DELTA is rowsum(dO * O).
template <class C> using Stats = Vec<C, 2>;
enum Stat { SHIFT, DELTA };

// P of one score, at most 1: f32 holds lse to half an ulp only, and for large scores exp of that error has no bound.
template <class C> __device__ __forceinline__ C weight_of(C score, const Stats<C>& stats) {
  const C weight = math::exp<24>(score - stats.at[SHIFT]);
  return weight > C(1) ? C(1) : weight;
}

// `stats` is [sequences, heads, queries] in C order (ragged: [heads, all queries]).
template <class T, class C> struct Gradients {
  const T* grad;
  T *grad_q, *grad_k, *grad_v;
  Stats<C>* stats;
  OperandStrides grad_strides, grad_q_strides, grad_k_strides, grad_v_strides, stats_strides;
};

// Pointers of one query head of one sequence.
template <class T, class C> struct QueryGradients {
  const T* grad;
  T* grad_q;
  Stats<C>* stats;
  __device__ __forceinline__ QueryGradients(const Problem<T, T, C>& p, const Gradients<T, C>& g, u32 batch, u32 head) {
    const int start = Extent(p.starts_q, batch, p.rows).first;
    grad = g.grad + batch * g.grad_strides.batch + head * g.grad_strides.head + start * g.grad_strides.row;
    grad_q = g.grad_q + batch * g.grad_q_strides.batch + head * g.grad_q_strides.head + start * g.grad_q_strides.row;
    stats = g.stats + batch * g.stats_strides.batch + head * g.stats_strides.head + start * g.stats_strides.row;
  }
};

// Pointers of one KV head of one sequence.
template <class T, class C> struct KeyGradients {
  T *grad_k, *grad_v;
  __device__ __forceinline__ KeyGradients(const Problem<T, T, C>& p, const Gradients<T, C>& g, u32 batch, u32 kv_head) {
    const int start = Extent(p.starts_k, batch, p.keys).first;
    grad_k = g.grad_k + batch * g.grad_k_strides.batch + kv_head * g.grad_k_strides.head + start * g.grad_k_strides.row;
    grad_v = g.grad_v + batch * g.grad_v_strides.batch + kv_head * g.grad_v_strides.head + start * g.grad_v_strides.row;
  }
};

// Queries [first, end) that see key j (causal, window); empty where end <= first.
struct Rows { int first, end; };
template <class P, class H> __device__ __forceinline__ Rows rows_of(const P& p, const H& head, int j) {
  const i64 stands = j - head.offset;
  return {int(max(min(stands - p.right, i64(head.rows)), i64(0))),
      int(max(min(stands + p.left + 1, i64(head.rows)), i64(0)))};
}

// The derivative of a score, as it enters the softmax, with respect to scale q k (softcap: 1 - tanh^2).
template <class P, class C> __device__ __forceinline__ C derivative(const P& p, C score) {
  if (!p.capped) return C(1);
  const C part = math::tanh<24>(score / C(p.softcap));
  return (C(1) - part) * (C(1) + part);
}

}  // namespace attention
