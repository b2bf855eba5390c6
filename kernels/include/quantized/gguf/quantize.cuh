// Quantization of floats to GGUF blocks, with the roundings of baracuda_py/ops/quantized/gguf/oracle/quantize.py.
//
// LANES neighbouring threads make a block, with 8 consecutive finite values each. All threads of the warp must take
// part; `stores` predicates the stores. Nibbles are combined by shuffles.
#pragma once
#include "rows/group.cuh"
#include "quantized/gguf/planes.cuh"

namespace gguf {

template <int ALIGN> __device__ __forceinline__ void store_half(u8* to, u32 x) {
  if constexpr (ALIGN >= 2) {
    *reinterpret_cast<u16*>(to) = u16(x);
  } else {
    to[0] = u8(x);
    to[1] = u8(x >> 8);
  }
}
template <int ALIGN> __device__ __forceinline__ void store_word(u8* to, u32 x) {
  if constexpr (ALIGN >= 4) {
    *reinterpret_cast<u32*>(to) = x;
  } else {
    store_half<ALIGN>(to, x);
    store_half<ALIGN>(to + 2, x >> 16);
  }
}
// Rounds to f16, stores it if `stores`, and returns the rounded value.
template <int ALIGN> __device__ __forceinline__ float store_f16(u8* to, float x, bool stores) {
  const f16 rounded = convert<f16>(x);
  if (stores) store_half<ALIGN>(to, rounded.bits);
  return convert<float>(rounded);
}

__device__ __forceinline__ float inverse_of(float d) { return d == 0.0f ? 0.0f : __fdiv_rn(1.0f, d); }
__device__ __forceinline__ int held(int x, int low, int high) { return min(max(x, low), high); }

// The value of largest magnitude; the first one on a tie.
struct Farther {
  __device__ __forceinline__ float operator()(float first, float second) const {
    return fabsf(second) > fabsf(first) ? second : first;
  }
};
template <int LANES> __device__ __forceinline__ float extreme_of(const float (&x)[8]) {
  float most = x[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) most = Farther{}(most, x[i]);
  return rows::group_reduce<LANES>(most, Farther{});
}
template <int LANES> __device__ __forceinline__ float largest_of(float x) {
  return rows::group_reduce<LANES>(x, [](float a, float b) { return fmaxf(a, b); });
}
template <int LANES> __device__ __forceinline__ Vec<float, 2> ends_of(const float (&x)[8]) {
  Vec<float, 2> ends{{x[0], x[0]}};
#pragma unroll
  for (int i = 1; i < 8; ++i) ends = {{fminf(ends.at[0], x[i]), fmaxf(ends.at[1], x[i])}};
  return rows::group_reduce<LANES>(ends, [](Vec<float, 2> a, Vec<float, 2> b) {
    return Vec<float, 2>{{fminf(a.at[0], b.at[0]), fmaxf(a.at[1], b.at[1])}};
  });
}

// Bits [FROM, FROM + BITS) of eight codes, one per byte.
template <int FROM, int BITS> __device__ __forceinline__ void packed(u32 (&bytes)[2], const int (&codes)[8]) {
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    bytes[w] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) bytes[w] |= (u32(codes[4 * w + i]) >> FROM & ((1u << BITS) - 1)) << (8 * i);
  }
}
// Stores eight bytes: low nibbles from this thread's codes, high nibbles from those of the thread with bit LANE_BIT
// set.
template <int LANE_BIT, int ALIGN>
__device__ __forceinline__ void store_nibbles(u8* to, const int (&codes)[8], bool stores) {
  u32 bytes[2];
  packed<0, 4>(bytes, codes);
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const u32 upper = __shfl_xor_sync(~0u, bytes[w], LANE_BIT);
    if (stores && (threadIdx.x & LANE_BIT) == 0) store_word<ALIGN>(to + 4 * w, bytes[w] | upper << 4);
  }
}
__device__ __forceinline__ u8 fifth_bits(const int (&codes)[8]) {
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) bits |= u32(codes[i] >> 4 & 1) << i;
  return u8(bits);
}

// Q4_0, Q5_0: the extreme maps to -LESS. The sum is rounded towards 0 (FMA rz), so that truncation sees the exact sum's
// integer part.
template <int LESS, int AT> struct Symmetric {
  static constexpr int LANES = 4, BYTES = AT + 16;
  template <int ALIGN> static __device__ __forceinline__ void make(u8* block, const float (&x)[8], bool stores) {
    const u32 lane = threadIdx.x % LANES;
    const float d = __fdiv_rn(extreme_of<LANES>(x), -float(LESS)), inverse = inverse_of(d);
    int codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = held(__float2int_rz(__fmaf_rz(x[i], inverse, LESS + 0.5f)), 0, 2 * LESS - 1);
    store_f16<ALIGN>(block, d, stores && lane == 0);
    if (LESS > 8 && stores) block[2 + lane] = fifth_bits(codes);
    store_nibbles<2, ALIGN>(block + AT + 8 * (lane % 2), codes, stores);
  }
};

// Q4_1, Q5_1: minimum to maximum in MOST steps.
template <int MOST, int AT> struct Affine {
  static constexpr int LANES = 4, BYTES = AT + 16;
  template <int ALIGN> static __device__ __forceinline__ void make(u8* block, const float (&x)[8], bool stores) {
    const u32 lane = threadIdx.x % LANES;
    const Vec<float, 2> ends = ends_of<LANES>(x);
    const float low = __fadd_rn(ends.at[0], 0.0f);  // one zero
    const float d = __fdiv_rn(fabsf(__fsub_rn(ends.at[1], low)), float(MOST)), inverse = inverse_of(d);
    int codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      codes[i] = held(__float2int_rz(__fadd_rn(__fmul_rn(__fsub_rn(x[i], low), inverse), 0.5f)), 0, MOST);
    store_f16<ALIGN>(block, d, stores && lane == 0);
    store_f16<ALIGN>(block + 2, low, stores && lane == 0);
    if (MOST > 15 && stores) block[4 + lane] = fifth_bits(codes);
    store_nibbles<2, ALIGN>(block + AT + 8 * (lane % 2), codes, stores);
  }
};

// Q8_0, Q8_1: rounded half away from 0. SUM (Q8_1): d times the sum of the codes is stored after d.
template <bool SUM> struct Bytes {
  static constexpr int LANES = 4, AT = SUM ? 4 : 2, BYTES = AT + 32;
  template <int ALIGN> static __device__ __forceinline__ void make(u8* block, const float (&x)[8], bool stores) {
    const u32 lane = threadIdx.x % LANES;
    const float d = __fdiv_rn(fabsf(extreme_of<LANES>(x)), 127.0f), inverse = inverse_of(d);
    int codes[8], sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      codes[i] = held(__float2int_rz(roundf(__fmul_rn(x[i], inverse))), -127, 127);
      sum += codes[i];
    }
    store_f16<ALIGN>(block, d, stores && lane == 0);
    if constexpr (SUM) store_f16<ALIGN>(block + 2, __fmul_rn(d, float(rows::sum<LANES>(sum))), stores && lane == 0);
    u32 bytes[2];
    packed<0, 8>(bytes, codes);
#pragma unroll
    for (int w = 0; w < 2; ++w)
      if (stores) store_word<ALIGN_AT<ALIGN, AT>>(block + AT + 8 * lane + 4 * w, bytes[w]);
  }
};

// Q4_K: a sub-block from min(minimum, 0) to its maximum in 15 steps; steps and minima are 6-bit fractions of the
// block's largest.
struct SixBitScales {
  static constexpr int LANES = 32, BYTES = 144;
  static __device__ __forceinline__ int part_of(float x, float most) {
    return held(__float2int_rn(__fmul_rn(x, __fmul_rn(63.0f, inverse_of(most)))), 0, 63);
  }
  template <int ALIGN> static __device__ __forceinline__ void make(u8* block, const float (&x)[8], bool stores) {
    const u32 lane = threadIdx.x % LANES, sub = lane / 4;
    const Vec<float, 2> ends = ends_of<4>(x);
    const float low = fminf(ends.at[0], 0.0f);
    const float step = __fdiv_rn(fabsf(__fsub_rn(ends.at[1], low)), 15.0f), least = __fsub_rn(0.0f, low);
    const float most_step = largest_of<32>(step), most_least = largest_of<32>(least);
    const int s = part_of(step, most_step), m = part_of(least, most_least);
    const float scale = __fmul_rn(store_f16<ALIGN>(block, __fdiv_rn(most_step, 63.0f), stores && lane == 0), float(s));
    const float offset = __fmul_rn(
        store_f16<ALIGN>(block + 2, __fdiv_rn(most_least, 63.0f), stores && lane == 0), float(m));

    // Pack six-bit scales: sub-blocks j and j + 4 share bytes
    const int s_after = __shfl_xor_sync(~0u, s, 16), m_after = __shfl_xor_sync(~0u, m, 16);
    if (stores && lane % 4 == 0) {
      if (sub < 4) {
        block[4 + sub] = u8(s | s_after >> 4 << 6);
        block[8 + sub] = u8(m | m_after >> 4 << 6);
      } else {
        block[8 + sub] = u8((s & 15) | (m & 15) << 4);
      }
    }
    int codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      codes[i] = scale > 0.0f ? held(__float2int_rn(__fdiv_rn(__fadd_rn(x[i], offset), scale)), 0, 15) : 0;
    store_nibbles<4, ALIGN>(block + 16 + sub / 2 * 32 + lane % 4 * 8, codes, stores);
  }
};

// Q6_K: a sub-block's extreme maps to -32; its step is an 8-bit fraction of the block's largest.
struct ByteScales {
  static constexpr int LANES = 32, BYTES = 210;
  template <int ALIGN> static __device__ __forceinline__ void make(u8* block, const float (&x)[8], bool stores) {
    const u32 lane = threadIdx.x % LANES;
    const float step = __fdiv_rn(extreme_of<2>(x), -32.0f);
    const float extreme = rows::group_reduce<32>(step, Farther{});
    const int s = held(__float2int_rn(__fmul_rn(step, __fmul_rn(-128.0f, inverse_of(extreme)))), -128, 127);
    const float scale = __fmul_rn(
        store_f16<ALIGN>(block + 208, __fdiv_rn(extreme, -128.0f), stores && lane == 0), float(s));
    if (stores && lane % 2 == 0) block[192 + lane / 2] = u8(s);
    int codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      codes[i] = (scale != 0.0f ? held(__float2int_rn(__fdiv_rn(x[i], scale)), -32, 31) : 0) + 32;
    store_nibbles<8, ALIGN>(block + lane / 16 * 64 + lane % 8 * 8, codes, stores);

    // The two high bits: one byte combines four threads
    u32 bytes[2];
    packed<4, 2>(bytes, codes);
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      u32 pairs = bytes[w] << (lane / 4 % 4 * 2);
      pairs |= __shfl_xor_sync(~0u, pairs, 4);
      pairs |= __shfl_xor_sync(~0u, pairs, 8);
      if (stores && lane / 4 % 4 == 0) store_word<ALIGN>(block + 128 + lane / 16 * 32 + lane % 4 * 8 + 4 * w, pairs);
    }
  }
};

}  // namespace gguf
