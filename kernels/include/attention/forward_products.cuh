// The two products of attention by mma.sync, of operands that lie in panels (panels.cuh): scores = queries keys^T, and weights
// times values. T: f16, bf16, or f32 as tf32, which counts as two columns of 16 bits.
//
// tf32: ldmatrix moves words as it does pairs of 16 bits, so that scores are made alike. It cannot transpose them: values are read
// as they lie, four columns of a key a lane, conflict-free by the panels' swizzle. Which keys of eight and which columns of 32 are
// the product's k and n is free: key 2 t is k = t and key 2 t + 1 is k = t + 4, as scores lie; column 4 n + j is column n of
// group j. A thread's columns of 32 then lie side by side.
#pragma once
#include "attention/panel_products.cuh"
#include "attention/softmax.cuh"

namespace attention {

template <class T> constexpr int HALVES = sizeof(T) / 2;  // columns of 16 bits an element
template <class T> constexpr int PART = 16 / HALVES<T>;   // of d that one product takes, and of keys

// The first HELD steps of queries, in registers.
template <int HELD, int BLOCKS> struct HeldQueries {
  u32 a[HELD ? HELD : 1][BLOCKS][4];
  template <class QueryPanels> __device__ __forceinline__ void load(u32 at_queries) {
#pragma unroll
    for (int step = 0; step < HELD; ++step)
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) load_matrices<false>(a[step][b], QueryPanels::at(at_queries, b, step));
  }
};

// s += queries keys^T: 16 BLOCKS queries, which are rounded already, and 8 N keys, both entered; over D columns.
template <class T, int D, class QueryPanels, class KeyPanels, int HELD, int BLOCKS, int N>
__device__ __forceinline__ void add_scores(float (&s)[BLOCKS][N][4], const HeldQueries<HELD, BLOCKS>& held, u32 at_queries, u32 at_keys) {
  const auto load = [&](u32 (&a)[4], int b, int step) {
    if (step >= HELD) load_matrices<false>(a, QueryPanels::at(at_queries, b, step));
    else for (int i = 0; i < 4; ++i) a[i] = held.a[step][b][i];
  };
  multiply<T, D / PART<T>, false>(s, load, [&](int n, int step) { return KeyPanels::at(at_keys, n, step); });
}

// Where a lane's part of values is in the first 16 columns (tf32: 32) of the first keys.
template <class T, class ValuePanels> __device__ __forceinline__ u32 enter_values(u32 lane) {
  if constexpr (IS_TF32<T>) return ValuePanels::offset(lane % 4 * 2, lane / 4);
  else return ValuePanels::template enter<true>(lane);
}

// acc += weights values, of KEYS keys and 8 N columns. weights(a, b, k): mma's a of block b and the k-th PART of keys. `carry` is
// added for the second half of what is flipped together, where columns begin in the middle of it.
template <class T, int KEYS, class ValuePanels, int BLOCKS, int N, class Weights>
__device__ __forceinline__ void add_values(float (&acc)[BLOCKS][N][4], const Weights& weights, u32 at_values, u32 carry = 0) {
  if constexpr (IS_TF32<T>) {
#pragma unroll
    for (int k = 0; k < KEYS / PART<T>; ++k) {
      u32 a[BLOCKS][4];
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) weights(a[b], b, k);
#pragma unroll
      for (int c = 0; c < N / 4; ++c) {
        Vec<float, 4> even, odd;  // keys 2 t and 2 t + 1
        const u32 from = c * ValuePanels::PANEL + k * 8 * ValuePanels::PITCH;
        load_shared(even, at_values + from);
        load_shared(odd, (at_values ^ 16) + ValuePanels::PITCH + from);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          u32 pair[2] = {__float_as_uint(even.at[j]), __float_as_uint(odd.at[j])};
          round_operand<T>(pair);
#pragma unroll
          for (int b = 0; b < BLOCKS; ++b) Mma<T>::run(acc[b][4 * c + j], a[b], pair);
        }
      }
    }
  } else {
    multiply<T, KEYS / 16, true>(acc, weights, [&](int c, int k) {
      return ValuePanels::at(at_values, k, c) + (c % ValuePanels::FLIPS < ValuePanels::FLIPS / 2 ? 0 : carry);
    });
  }
}

}  // namespace attention
