// Softcap of accumulators by one reciprocal for four scores of a row, so that the unit of exponentials computes five
// numbers of four scores in the place of eight.
#pragma once
#include "attention/mask.cuh"

namespace attention {

// tanh(x) of four y = 2 log2(e) x, absolute error within 17 * 2^-24: 1 - 2 / (2^y + 1), whose product of four does not
// overflow since tanh(x) rounds to 1 from y = 30 on. One NaN makes all four NaN.
__device__ __forceinline__ void tanh_of_four(float (&y)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(y[i]) : "f"(30.0f));
    y[i] = math::ex2_ftz(y[i]) + 1.0f;
  }
  const float first = y[0] * y[1], last = y[2] * y[3], inverse = -2.0f * math::rcp_ftz(first * last);
  const float of_first = inverse * last, of_last = inverse * first;
  const float result[4] = {fmaf(of_first, y[1], 1.0f), fmaf(of_first, y[0], 1.0f), fmaf(of_last, y[3], 1.0f),
      fmaf(of_last, y[2], 1.0f)};
#pragma unroll
  for (int i = 0; i < 4; ++i) y[i] = result[i];
}

// Accumulators become tanh of `by` times themselves. Those outside of `band` (`edge`: there are some) count as 0, so
// that a score's bits depend on what its own row sees alone.
template <int N>
__device__ __forceinline__ void cap_scores(
    float (&s)[N][4], const Band& band, float by, int row, int column, bool edge) {
  if (edge) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Keys seen = band.of(row + 8 * r);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (8 * n + e < seen.first - column || 8 * n + e >= seen.end - column) s[n][r * 2 + e] = 0.0f;
    }
  }
#pragma unroll
  for (int n = 0; n < N; n += 2)
#pragma unroll
    for (int r = 0; r < 4; r += 2) {
      float y[4] = {s[n][r] * by, s[n][r + 1] * by, s[n + 1][r] * by, s[n + 1][r + 1] * by};
      tanh_of_four(y);
      s[n][r] = y[0], s[n][r + 1] = y[1], s[n + 1][r] = y[2], s[n + 1][r + 1] = y[3];
    }
}

}  // namespace attention
