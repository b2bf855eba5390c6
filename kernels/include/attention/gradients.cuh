// What gradients of attention are computed from and written to, beside the problem; which queries see a key; and what the gradient
// of a score is. Mirrors baracuda_py/ops/attention/_gradients.py.
#pragma once
#include "attention/mask.cuh"
#include "math/exp.cuh"

namespace attention {

// Of a query: what is subtracted from its scores (lse; inf where that is -inf, so that weights are 0 in a row that sees nothing),
// and what the forward's result contributes, rowsum(grad * out).
template <class C> using Stats = Vec<C, 2>;
enum Stat { SHIFT, DELTA };

// A score's weight. It is held to 1: f32 holds lse to half a unit in its last place alone, whose exponential may be any number where
// scores are large.
template <class C> __device__ __forceinline__ C weight_of(C score, const Stats<C>& stats) {
  const C weight = math::exp<24>(score - stats.at[SHIFT]);
  return weight > C(1) ? C(1) : weight;
}

// `stats` lie as [sequences, heads, queries] in C order (ragged: [heads, all queries]).
template <class T, class C> struct Gradients {
  const T* grad;
  T *grad_q, *grad_k, *grad_v;
  Stats<C>* stats;
  Walk grad_walk, grad_q_walk, grad_k_walk, grad_v_walk, stats_walk;
};

// Those of one query head.
template <class T, class C> struct QueryGradients {
  const T* grad;
  T* grad_q;
  Stats<C>* stats;
  __device__ __forceinline__ QueryGradients(const Problem<T, T, C>& p, const Gradients<T, C>& g, u32 batch, u32 head) {
    const int start = Extent(p.starts_q, batch, p.rows).first;
    grad = g.grad + batch * g.grad_walk.batch + head * g.grad_walk.head + start * g.grad_walk.row;
    grad_q = g.grad_q + batch * g.grad_q_walk.batch + head * g.grad_q_walk.head + start * g.grad_q_walk.row;
    stats = g.stats + batch * g.stats_walk.batch + head * g.stats_walk.head + start * g.stats_walk.row;
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

// The derivative of a score, as it enters the softmax, by scale q k.
template <class P, class C> __device__ __forceinline__ C derivative(const P& p, C score) {
  if (!p.capped) return C(1);
  const C part = math::tanh<24>(score / C(p.softcap));
  return (C(1) - part) * (C(1) + part);
}

}  // namespace attention
