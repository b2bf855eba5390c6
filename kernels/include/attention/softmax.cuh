// Online softmax of scores that lie as mma's accumulators do: a thread has two columns of eight each of rows g and g + 8 of
// every block of 16 (mma.cuh). Weights are exp2(factor s - factor base), factor being above 0 and base a row's highest score at
// some time: it follows only when a score is 8 above it in log2, so that sums are seldom rescaled; weights are 2**8 at most.
// A row whose factor base is FAR from 0 has its base subtracted first, which is exact for scores near it: the rounding of factor base
// alone would make weights overflow there (f16 from scores of 2^29 on). All other rows take one multiply-add a score. A row's choice
// depends on its own base alone, so that its bits do not depend on the rows beside it.
#pragma once
#include "barrier.cuh"
#include "dtype.cuh"
#include "math/approx.cuh"
#include "mma.cuh"
#include "rows/shifted_sum.cuh"

namespace attention {

template <int BLOCKS> struct OnlineSoftmax {
  static constexpr int ROWS = 2 * BLOCKS;
  static constexpr float SLACK = 8.0f, FAR = 0x1p22f;
  float base[ROWS], sum[ROWS];  // a row's sum is this thread's part of it

  __device__ __forceinline__ OnlineSoftmax() {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) base[r] = rows::minus_infinity<float>(), sum[r] = 0.0f;
  }

  static __device__ __forceinline__ float shift(float base) { return rows::ShiftedSum<float, 24>::shift(base); }

  // Half of x - y: finite for any two finite scores.
  static __device__ __forceinline__ float half_difference(float x, float y) { return fmaf(0.5f, x, -0.5f * y); }

  // Moves the bases of rows that have scores far above, and rescales what was weighted with them.
  // `joined` is given the highest score of each row, which all lanes of a quad have, and puts in those of warps that share it.
  template <int N, int M, class Joined>
  __device__ __forceinline__ void follow(const float (&s)[BLOCKS][N][4], float factor, float (&acc)[BLOCKS][M][4], const Joined& joined) {
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
        shrink[r] = highest[r] == base[r] ? 1.0f : math::ex2_ftz(half_difference(base[r], highest[r]) * (2.0f * factor));
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

  // Scores become weights.
  template <int N> __device__ __forceinline__ void weigh(float (&s)[BLOCKS][N][4], float factor) {
    bool far = false;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) far |= is_far(shift(base[r]) * factor);
    if (__any_sync(~0u, far)) weigh_rows<true>(s, factor);
    else weigh_rows<false>(s, factor);
  }

  // At the end: a quad's sums.
  __device__ __forceinline__ void add_up() {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }

  // Then row r's factor for the weighted values, and the natural logarithm of the denominator, the sink's term in it. Log2 e times ln 2
  // is 1 in f32.
  __device__ __forceinline__ void finish(int r, float factor, float sink, float& scale, float& lse) const {
    float whole = sum[r];
    const float reached = base[r] * (factor * math::LN2), most = shift(fmaxf(reached, sink));
    const float shrink = math::ex2_ftz((reached - most) * math::LOG2E);
    whole = whole * shrink + math::ex2_ftz((sink - most) * math::LOG2E);
    scale = whole == 0.0f ? 0.0f : shrink / whole;
    lse = whole == 0.0f ? rows::minus_infinity<float>() : most + ::logf(whole);
  }

 private:
  static __device__ __forceinline__ bool is_far(float product) { return fabsf(product) >= FAR; }

  // SOME_FAR: some row of the warp is.
  template <bool SOME_FAR, int N> __device__ __forceinline__ void weigh_rows(float (&s)[BLOCKS][N][4], float factor) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float taken = shift(base[r]), product = taken * factor;
      const bool far = SOME_FAR && is_far(product);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[r / 2][n][r % 2 * 2 + e];
          score = math::ex2_ftz(far ? (score - taken) * factor : fmaf(score, factor, -product));
          sum[r] += score;
        }
    }
  }
};

// Combines, by maximum or sum, what SPLIT neighbouring warps have of the same rows: by way of 64 BLOCKS bytes a warp from `exchange`
// on. All lanes of a quad have the same values. Nothing may still be read there.
template <int BLOCKS, int SPLIT, bool MAXIMUM>
__device__ __forceinline__ void join_rows(u32 exchange, u32 thread, float (&x)[2 * BLOCKS]) {
  if constexpr (SPLIT > 1) {
    const u32 warp = thread / 32, group = warp / SPLIT, row = thread % 32 / 4 * 4;
#pragma unroll
    for (int r = 0; r < 2 * BLOCKS; ++r)
      if (thread % 4 == 0) store_shared(exchange + warp * 64 * BLOCKS + row + r * 32, x[r]);
    meet(1 + group, 32 * SPLIT);
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

// Weights as mma's a for 16 keys, rounded to T: of block b and keys from 16 k on. tf32: for 8 keys, k = t being key 2 t and
// k = t + 4 key 2 t + 1 of them.
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
