// Online softmax of scores in mma accumulator layout: a thread has two adjacent columns of every eight, of rows g and g
// + 8 of every m16 block (mma.cuh). P = exp2(factor s - factor base) with factor > 0.
//
// Rescale:   base is an earlier row maximum; it is updated only when a score exceeds it by 8 in log2 (lazy rescale), so
//            that accumulators are rarely rescaled and P <= 2^8.
// Range:     where |factor base| >= FAR, base is subtracted first, which is exact for scores near it: the rounding of
//            factor base alone would overflow P (f16 from scores of 2^29 on). Other rows take one FMA per score. The
//            choice depends on the row's own base, so that a row's bits do not depend on other rows (batch invariance).
#pragma once
#include "ptx/barrier.cuh"
#include "core/dtype.cuh"
#include "math/approx.cuh"
#include "ptx/mma.cuh"
#include "rows/shifted_sum.cuh"

namespace attention {

template <int BLOCKS> struct OnlineSoftmax {
  static constexpr int ROWS = 2 * BLOCKS;
  static constexpr float SLACK = 8.0f, FAR = 0x1p22f;
  float base[ROWS], sum[ROWS];  // this thread's part of the row sum

  __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) base[r] = rows::minus_infinity<float>(), sum[r] = 0.0f;
  }

  static __device__ __forceinline__ float shift(float base) { return rows::ShiftedSum<float, 24>::shift(base); }

  // (x - y) / 2, finite for any two finite scores.
  static __device__ __forceinline__ float half_difference(float x, float y) { return fmaf(0.5f, x, -0.5f * y); }

  // Updates the bases of rows with much higher scores and rescales sum and acc. `joined` receives each row's maximum,
  // equal in all lanes of a quad, and may combine it with that of other warps.
  template <int N, int M, class Joined>
  __device__ __forceinline__ void follow(
      const float (&s)[BLOCKS][N][4], float factor, float (&acc)[BLOCKS][M][4], const Joined& joined) {
    float highest[ROWS], shrink[ROWS];
    bool moves = false;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float most = fmaxf(s[r / 2][0][r % 2 * 2], s[r / 2][0][r % 2 * 2 + 1]);
#pragma unroll
      for (int n = 1; n < N; ++n) most = fmaxf(most, fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      highest[r] = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    }
    joined(highest);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const bool higher = half_difference(highest[r], base[r]) * factor > 0.5f * SLACK;
      highest[r] = higher ? highest[r] : base[r];
      moves |= higher;
    }
    if (__any_sync(~0u, moves)) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        shrink[r] = highest[r] == base[r] ? 1.0f
                                          : math::ex2_ftz(half_difference(base[r], highest[r]) * (2.0f * factor));
        base[r] = highest[r];
        sum[r] *= shrink[r];
#pragma unroll
        for (int m = 0; m < M; ++m) {
          acc[r / 2][m][r % 2 * 2] *= shrink[r];
          acc[r / 2][m][r % 2 * 2 + 1] *= shrink[r];
        }
      }
    }
  }

  // Scores become P, row sums are updated.
  template <int N> __device__ __forceinline__ void weigh(float (&s)[BLOCKS][N][4], float factor) {
    bool far = false;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) far |= is_far(shift(base[r]) * factor);
    if (__any_sync(~0u, far)) weigh_rows<true>(s, factor);
    else weigh_rows<false>(s, factor);
  }

  // Row sums of a quad, after the last k_block.
  __device__ __forceinline__ void add_up() {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }

  // Row r's factor for O, and its lse with the sink's term. log2(e) * ln(2) is 1 in f32.
  __device__ __forceinline__ void finish(int r, float factor, float sink, float& scale, float& lse) const {
    float whole = sum[r];
    const float base_max = base[r] * (factor * math::LN2), most = shift(fmaxf(base_max, sink));
    const float shrink = math::ex2_ftz((base_max - most) * math::LOG2E);
    whole = whole * shrink + math::ex2_ftz((sink - most) * math::LOG2E);
    scale = whole == 0.0f ? 0.0f : shrink / whole;
    lse = whole == 0.0f ? rows::minus_infinity<float>() : most + ::logf(whole);
  }

 private:
  static __device__ __forceinline__ bool is_far(float product) { return fabsf(product) >= FAR; }

  // SOME_FAR: some row of the warp needs the subtraction.
  template <bool SOME_FAR, int N> __device__ __forceinline__ void weigh_rows(float (&s)[BLOCKS][N][4], float factor) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float used_base = shift(base[r]), product = used_base * factor;
      const bool far = SOME_FAR && is_far(product);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[r / 2][n][r % 2 * 2 + e];
          score = math::ex2_ftz(far ? (score - used_base) * factor : fmaf(score, factor, -product));
          sum[r] += score;
        }
    }
  }
};

// All-reduce (max or sum) of row values over SPLIT adjacent warps, through 64 BLOCKS bytes per warp at `exchange`,
// which no thread may still be reading. All lanes of a quad hold the same values.
template <int BLOCKS, int SPLIT, bool MAXIMUM>
__device__ __forceinline__ void join_rows(u32 exchange, u32 thread, float (&x)[2 * BLOCKS]) {
  if constexpr (SPLIT > 1) {
    const u32 warp = thread / 32, group = warp / SPLIT, row = thread % 32 / 4 * 4;
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
      if (thread % 4 == 0) store_shared(exchange + warp * 64 * BLOCKS + row + r * 32, x[r]);
    barrier_sync(1 + group, 32 * SPLIT);
#pragma unroll
    for (int other = 1; other < SPLIT; ++other)
#pragma unroll
      for (int r = 0; r < 2 * BLOCKS; ++r) {
        const u32 from = exchange + (group * SPLIT + (warp + other) % SPLIT) * 64 * BLOCKS + row + r * 32;
        const float y = load_shared<float>(from);
        x[r] = MAXIMUM ? fmaxf(x[r], y) : x[r] + y;
      }
  }
}

// The A fragment of P, rounded to T: 16 keys from 16 k on. TF32: 8 keys; k = t is key 2 t, k = t + 4 key 2 t + 1.
template <class T, int N> __device__ __forceinline__ void pack_weights(u32 (&a)[4], const float (&s)[N][4], int k) {
  if constexpr (Same<T, float>::value) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = round_tf32(__float_as_uint(s[k][i % 2 * 2 + i / 2]));
  } else {
    a[0] = round_pair(s[2 * k][0], s[2 * k][1], T{});
    a[1] = round_pair(s[2 * k][2], s[2 * k][3], T{});
    a[2] = round_pair(s[2 * k + 1][0], s[2 * k + 1][1], T{});
    a[3] = round_pair(s[2 * k + 1][2], s[2 * k + 1][3], T{});
  }
}

}  // namespace attention
