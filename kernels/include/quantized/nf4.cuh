// NF4: sixteen values, a code of 4 bits each, times the largest magnitude of a block of neighbours; and the map of 256 values, by
// which those magnitudes are kept in 8 bits themselves.
//
// The values are quantiles of the normal distribution (T. Dettmers et al., "QLoRA", arXiv:2305.14314, appendix E). The map has a
// sign, zeros that say the decimal exponent, and a fraction in what bits are left (T. Dettmers, "8-bit approximations for
// parallelism in deep learning", arXiv:1511.04561); 0 and 1 are its own. Blocks run through all values in C order.
#pragma once
#include "dtype.cuh"

namespace nf4 {

constexpr int CHUNK = 64;      // values that rows are multiples of
constexpr int OF_SCALE = 256;  // magnitudes that share a scale

__constant__ const float VALUES[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
    -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};

// Where element i of eight is in their word: the first of a byte's two is its upper half.
__device__ __forceinline__ u32 place(u32 i) { return i * 4 ^ 4; }

// Value `code` of the map. Of p, how far the code is from 127, the highest bit e is the exponent and the others, j, choose among
// 2^e fractions: 10^(e - 6) (0.1 + 0.9 (j + 1/2) / 2^e), a quotient of two whole numbers but for a power of two.
__device__ __forceinline__ float mapped(u32 code) {
  if (code == 127 || code == 255) return code == 255;
  const u32 p = code < 127 ? 127 - code : code - 127, e = 31 - __clz(p);
  u32 ten = 10;
#pragma unroll
  for (u32 i = 0; i < 6; ++i) ten *= i < 6 - e ? 10 : 1;
  const float size = __fdiv_rn(float(18 * p + 9 - (16u << e)), float(ten)) * __uint_as_float((126 - e) << 23);
  return code < 127 ? -size : size;
}

// What values are multiplied with to lie between -1 and 1: twice, since 1 / most may be beyond f32. 0 where all are 0.
struct Inverse {
  float lift, inverse;
  __device__ __forceinline__ explicit Inverse(float most) : lift(most < 0x1p-64f ? 0x1p64f : 1.0f), inverse(most == 0.0f ? 0.0f : __frcp_rn(most * lift)) {}
  __device__ __forceinline__ float operator()(float x) const { return __fmul_rn(x * lift, inverse); }
};

// Blocks' magnitudes: floats; or codes, with a scale for 256 and an offset. Read first and made into a float later, by a map whose
// values lie STEP apart.
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
