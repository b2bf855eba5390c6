// Online softmax whose weights are e4m3: P = 2^(SHIFT + factor s - factor base), factor > 0, of scores in the layout of
// wgmma's accumulators (rows g and g + 8 of a warp's 16, two adjacent columns of every eight).
//
// Range:     base is an earlier row maximum, updated when a score exceeds it by more than SLACK in log2: P <= 2^8.75 <
//            448, the largest e4m3, and what is rounded off a subnormal weight is 2^-18 of the highest at most.
// Far:       where |factor base| >= FAR, base is subtracted from the score first (attention/softmax.cuh).
#pragma once
#include "attention/problem.cuh"
#include "math/approx.cuh"
#include "rows/shifted_sum.cuh"

namespace attention_fp8 {

struct Weights {
  static constexpr float SHIFT = 8.0f, SLACK = 0.75f, FAR = 0x1p22f;
  float base[2], sum[2];  // sum: this thread's part of the row sum of P, before P is rounded

  __device__ __forceinline__ Weights() {
#pragma unroll
    for (int r = 0; r < 2; ++r) base[r] = rows::minus_infinity<float>(), sum[r] = 0.0f;
  }

  static __device__ __forceinline__ float shift(float base) { return rows::ShiftedSum<float, 24>::shift(base); }
  static __device__ __forceinline__ bool is_far(float product) { return fabsf(product) >= FAR; }
  // (x - y) / 2, finite for any two finite scores.
  static __device__ __forceinline__ float half_difference(float x, float y) { return fmaf(0.5f, x, -0.5f * y); }

  // Updates the bases. Returns whether some row of the warp has a new one; then `shrink` holds the rows' factors for O.
  template <int N>
  __device__ __forceinline__ bool follow(const float (&s)[N][4], float factor, float (&shrink)[2]) {
    float highest[2];
    bool moves = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = fmaxf(s[0][r * 2], s[0][r * 2 + 1]);
#pragma unroll
      for (int n = 1; n < N; ++n) most = fmaxf(most, fmaxf(s[n][r * 2], s[n][r * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const bool higher = half_difference(most, base[r]) * factor > 0.5f * SLACK;
      highest[r] = higher ? most : base[r];
      moves |= higher;
    }
    if (!__any_sync(~0u, moves)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      shrink[r] = highest[r] == base[r] ? 1.0f
                                        : math::ex2_ftz(half_difference(base[r], highest[r]) * (2.0f * factor));
      base[r] = highest[r];
      sum[r] *= shrink[r];
    }
    return true;
  }

  // Scores become P, row sums are updated.
  template <int N> __device__ __forceinline__ void weigh(float (&s)[N][4], float factor) {
    const bool far = is_far(shift(base[0]) * factor) || is_far(shift(base[1]) * factor);
    if (__any_sync(~0u, far)) weigh_rows<true>(s, factor);
    else weigh_rows<false>(s, factor);
  }

  // Row sums of a quad, after the last k_block.
  __device__ __forceinline__ void add_up() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }

  // Row r's factor for O, and its lse.
  __device__ __forceinline__ void finish(int r, float factor, float& scale, float& lse) const {
    const float base_max = __fmul_rn(shift(base[r]), factor * math::LN2);  // not contracted: rows get the same bits
    scale = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
    lse = sum[r] == 0.0f ? rows::minus_infinity<float>() : base_max + (::logf(sum[r]) - SHIFT * math::LN2);
  }

 private:
  // SOME_FAR: some row of the warp needs the subtraction.
  template <bool SOME_FAR, int N> __device__ __forceinline__ void weigh_rows(float (&s)[N][4], float factor) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float used_base = shift(base[r]), start = fmaf(-used_base, factor, SHIFT);
      const bool far = SOME_FAR && is_far(used_base * factor);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[n][r * 2 + e];
          score = math::ex2_ftz(far ? fmaf(score - used_base, factor, SHIFT) : fmaf(score, factor, start));
          sum[r] += score;
        }
    }
  }
};

// The A fragment of 32 keys from 32 k on, four keys per register: 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of 16 (t: the lane in
// its quad). Values are stored in the same order of keys (transpose.cuh).
template <int N> __device__ __forceinline__ void pack_weights(u32 (&a)[4], const float (&s)[N][4], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = 4 * k + i / 2 * 2, r = i % 2 * 2;
    asm("{ .reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high}; }"
        : "=r"(a[i])
        : "f"(s[n][r]), "f"(s[n][r + 1]), "f"(s[n + 1][r]), "f"(s[n + 1][r + 1]));
  }
}

}  // namespace attention_fp8
