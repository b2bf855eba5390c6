// Online softmax whose weights are e4m3: P = 2^(SHIFT + factor s - factor base), factor > 0, of scores in the layout of
// wgmma's accumulators (rows g and g + 8 of a warp's 16, two adjacent columns of every eight).
//
// Range:     base is an earlier row maximum, updated when a score exceeds it by more than SLACK in log2: P <= 2^8.75 <
//            448, the largest e4m3, and what is rounded off a subnormal weight is 2^-18 of the highest at most.
// Far:       where |factor base| >= FAR, base is subtracted from the score first (attention/softmax.cuh).
// Maxima:    of the bits as integers, which are compared three at a time.
// Row sums:  behind all exponentials (`add`): an addition right after its own holds up the exponentials that follow.
#pragma once
#include "attention/softmax.cuh"

namespace attention_fp8 {

struct Weights {
  using Plain = attention::OnlineSoftmax<1>;
  static constexpr float SHIFT = 8.0f, SLACK = 0.75f;
  float base[2], sum[2];  // sum: this thread's part of the row sum of P, before P is rounded

  __device__ __forceinline__ Weights() {
#pragma unroll
    for (int r = 0; r < 2; ++r) base[r] = rows::minus_infinity<float>(), sum[r] = 0.0f;
  }

  static __device__ __forceinline__ float shift(float base) { return Plain::shift(base); }
  static __device__ __forceinline__ bool is_far(float product) { return fabsf(product) >= Plain::FAR; }

  // Updates the bases. Returns whether some row of the warp has a new one; then `shrink` holds the rows' factors for O.
  template <int N>
  __device__ __forceinline__ bool follow(const float (&s)[N][4], float factor, float (&shrink)[2]) {
    float most[2];
    bool negative = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const i32 bits = extreme<true>(s, r);
      most[r] = __int_as_float(bits);
      negative |= bits < 0 && !(base[r] >= 0.0f);
    }
    const auto higher = [&](int r) { return Plain::half_difference(most[r], base[r]) * factor > 0.5f * SLACK; };
    if (!__any_sync(~0u, higher(0) || higher(1) || negative)) return false;
    if (__any_sync(~0u, negative)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const i32 bits = extreme<false>(s, r);
        if (__float_as_int(most[r]) < 0) most[r] = __int_as_float(bits);
      }
      if (!__any_sync(~0u, higher(0) || higher(1))) return false;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float highest = higher(r) ? most[r] : base[r];
      shrink[r] = highest == base[r] ? 1.0f : math::ex2_ftz(Plain::half_difference(base[r], highest) * (2.0f * factor));
      base[r] = highest;
      sum[r] *= shrink[r];
    }
    return true;
  }

  // Scores become P.
  template <int N> __device__ __forceinline__ void weigh(float (&s)[N][4], float factor) {
    const bool far = is_far(shift(base[0]) * factor) || is_far(shift(base[1]) * factor);
    if (__any_sync(~0u, far)) weigh_rows<true>(s, factor);
    else weigh_rows<false>(s, factor);
  }

  // Row sums of P, by four chains.
  template <int N> __device__ __forceinline__ void add(const float (&s)[N][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float part[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) part[n] = s[n][r * 2] + s[n][r * 2 + 1];
#pragma unroll
      for (int n = 4; n < N; ++n) part[n % 4] += s[n][r * 2], part[n % 4] += s[n][r * 2 + 1];
      sum[r] += (part[0] + part[1]) + (part[2] + part[3]);
    }
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
  // Of the quad's scores of row r, as bits: the largest integer (MOST), which is the largest float if one is positive,
  // or the least one, which is it if all are negative. An instruction compares three integers, but only two floats. A
  // positive NaN is the largest; a negative one is passed over.
  template <bool MOST, int N> static __device__ __forceinline__ i32 extreme(const float (&s)[N][4], int r) {
    const auto of = [](i32 x, i32 y) { return MOST ? max(x, y) : min(x, y); };
    i32 found[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) found[n] = of(__float_as_int(s[n][r * 2]), __float_as_int(s[n][r * 2 + 1]));
#pragma unroll
    for (int n = 4; n < N; ++n)
      found[n % 4] = of(of(found[n % 4], __float_as_int(s[n][r * 2])), __float_as_int(s[n][r * 2 + 1]));
    i32 all = of(of(of(found[0], found[1]), found[2]), found[3]);
    all = of(all, __shfl_xor_sync(~0u, all, 1));
    return of(all, __shfl_xor_sync(~0u, all, 2));
  }

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
