// The two GEMMs of attention forward on mma.sync, operands in panels (panels.cuh): S = Q K^T and O += P V. T: f16,
// bf16, or f32 as TF32, an element of which counts as two 16-bit columns.
//
// TF32:      ldmatrix moves 32-bit words as pairs of 16 bits, so S is computed as for 16-bit types. ldmatrix cannot
//            transpose words, so V is read by 16-byte loads, four columns of one key per lane, free of bank conflicts.
// Order:     k and n may be permuted freely: key 2 t is k = t and key 2 t + 1 is k = t + 4, as in the accumulators of
//            S; column 4 n + j is column n of fragment j, so that a thread's columns of 32 are contiguous.
#pragma once
#include "attention/panel_products.cuh"
#include "attention/softmax.cuh"

namespace attention {

template <class T> constexpr int HALVES = sizeof(T) / 2;  // 16-bit columns per element
template <class T> constexpr int PART = 16 / HALVES<T>;   // elements of d, and keys, per mma k-step

// The A fragments of the first HELD k-steps of Q, kept in registers.
template <int HELD, int BLOCKS> struct HeldQueries {
  u32 a[HELD ? HELD : 1][BLOCKS][4];
  template <class QueryPanels> __device__ __forceinline__ void load(u32 at_queries) {
#pragma unroll
    for (int step = 0; step < HELD; ++step)
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) load_matrices<false>(a[step][b], QueryPanels::at(at_queries, b, step));
  }
};

// s += Q K^T over D columns: 16 BLOCKS queries, rounded already, by 8 N keys; both addresses come from `lane_address`.
template <class T, int D, class QueryPanels, class KeyPanels, int HELD, int BLOCKS, int N>
__device__ __forceinline__ void add_scores(
    float (&s)[BLOCKS][N][4], const HeldQueries<HELD, BLOCKS>& held, u32 at_queries, u32 at_keys) {
  const auto load = [&](u32 (&a)[4], int b, int step) {
    if (step >= HELD) load_matrices<false>(a, QueryPanels::at(at_queries, b, step));
    else for (int i = 0; i < 4; ++i) a[i] = held.a[step][b][i];
  };
  multiply<T, D / PART<T>, false>(s, load, [&](int n, int step) { return KeyPanels::at(at_keys, n, step); });
}

// The lane's V address in the first 16 columns (TF32: 32) of the first keys.
template <class T, class ValuePanels> __device__ __forceinline__ u32 values_lane_address(u32 lane) {
  if constexpr (IS_TF32<T>) return ValuePanels::offset(lane % 4 * 2, lane / 4);
  else return ValuePanels::template lane_address<true>(lane);
}

// acc += P V over KEYS keys and 8 N columns. weights(a, b, k) gives the A fragment of block b and k-step k. `carry` is
// added in the second half of a panel, where a part's columns begin in the middle of one.
template <class T, int KEYS, class ValuePanels, int BLOCKS, int N, class Weights>
__device__ __forceinline__ void add_values(
    float (&acc)[BLOCKS][N][4], const Weights& weights, u32 at_values, u32 carry = 0) {
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
