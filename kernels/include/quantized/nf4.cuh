// NF4: a 4-bit code selects one of sixteen values, times the block's largest magnitude (absmax). Double quantization
// stores absmax itself as an 8-bit code of a map of 256 values.
//
// The values are quantiles of the normal distribution (T. Dettmers et al., "QLoRA", arXiv:2305.14314, appendix E). The
// map is the dynamic tree data type: a sign, leading zeros as decimal exponent, a linear fraction in the remaining bits
// (T. Dettmers, "8-bit approximations for parallelism in deep learning", arXiv:1511.04561), plus 0 and 1. Blocks are
// consecutive elements in C order.
#pragma once
#include "core/dtype.cuh"

namespace nf4 {

constexpr int CHUNK = 64;      // row lengths are multiples of it
constexpr int OF_SCALE = 256;  // absmax codes per scale

__constant__ const float VALUES[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f,
    0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
    0.7229568362236023f, 1.0f};

// Bit position of element i of the eight in a word: the first element of a byte is its high nibble.
__device__ __forceinline__ u32 place(u32 i) { return i * 4 ^ 4; }

// Value `code` of the map. With p = |code - 127|, e = its highest bit and j = its lower bits, the magnitude is
// 10^(e - 6) (0.1 + 0.9 (j + 1/2) / 2^e), computed as a quotient of two integers times a power of two.
__device__ __forceinline__ float mapped(u32 code) {
  if (code == 127 || code == 255) return code == 255;
  const u32 p = code < 127 ? 127 - code : code - 127, e = 31 - __clz(p);
  u32 ten = 10;
#pragma unroll
  for (u32 i = 0; i < 6; ++i) ten *= i < 6 - e ? 10 : 1;
  const float size = __fdiv_rn(float(18 * p + 9 - (16u << e)), float(ten)) * __uint_as_float((126 - e) << 23);
  return code < 127 ? -size : size;
}

// Normalisation to [-1, 1]: multiplication by 1 / most in two factors, since 1 / most may overflow f32. 0 if most is 0.
struct Inverse {
  float lift, inverse;
  __device__ __forceinline__ explicit Inverse(float most)
      : lift(most < 0x1p-64f ? 0x1p64f : 1.0f), inverse(most == 0.0f ? 0.0f : __frcp_rn(most * lift)) {}
  __device__ __forceinline__ float operator()(float x) const { return __fmul_rn(x * lift, inverse); }
};

// absmax of the blocks: floats, or (DOUBLE) 8-bit codes with one scale per 256 and an offset. `read` loads the raw
// data, `value` decodes it later, by a map with stride STEP.
template <bool DOUBLE> struct Magnitudes {
  const float* absmax;
  const float *scales, *offset;
  using Raw = float;
  __device__ __forceinline__ Raw read(u32 block) const { return absmax[block]; }
  template <u32 STEP = 1> static __device__ __forceinline__ float value(Raw raw, const float*, float) { return raw; }
  __device__ __forceinline__ float added() const { return 0.0f; }
};
template <> struct Magnitudes<true> {
  const u8* absmax;
  const float *scales, *offset;
  struct Raw { float scale; u32 code; };
  __device__ __forceinline__ Raw read(u32 block) const { return {scales[block / OF_SCALE], absmax[block]}; }
  template <u32 STEP = 1> static __device__ __forceinline__ float value(Raw raw, const float* map, float offset) {
    return __fadd_rn(__fmul_rn(map[raw.code * STEP], raw.scale), offset);
  }
  __device__ __forceinline__ float added() const { return *offset; }
};

}  // namespace nf4
