// Keys and values of 8 bits, four to a word, widened to T (f16 or bf16) without rounding, by integer operations and one exact
// multiplication or addition a pair: the same on every arch.
#pragma once
#include "dtype.cuh"

namespace attention {

struct e4m3 { u8 bits; };

template <class T> __device__ __forceinline__ u32 fma_pair(u32 a, u32 b, u32 c) {
  u32 y;
  if constexpr (Same<T, f16>::value) asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  else asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}

// Bytes 0 and 1, and bytes 2 and 3. e4m3: exponent and significand are moved to where T has its own, and the difference of biases
// is multiplied in, subnormals too; NaN stays.
template <class T> __device__ __forceinline__ void widen(u32 word, u32 (&pair)[2], e4m3) {
  constexpr bool HALF = Same<T, f16>::value;
  constexpr u32 SHIFT = HALF ? 1 : 4, FACTOR = HALF ? 0x5c005c00 : 0x7b807b80;  // 2^8, 2^120
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 high = __byte_perm(word, 0, i ? 0x3424 : 0x1404);
    pair[i] = fma_pair<T>((high & 0x80008000) | (high & 0x7f007f00) >> SHIFT, FACTOR, 0x80008000);
  }
  const u32 nan = (word & 0x7f7f7f7f) + 0x01010101 & 0x80808080;
  if (nan)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 high = __byte_perm(nan, 0, i ? 0x3424 : 0x1404);
      pair[i] |= high - (high >> 15);
    }
}

// i8: by numbers whose last bits are the integer's. f16: 1024 + (x + 128) - 1152; bf16: 128 + seven bits - (128 or 256).
template <class T> __device__ __forceinline__ void widen(u32 word, u32 (&pair)[2], i8) {
  constexpr u32 ONE = Same<T, f16>::value ? 0x3c003c00 : 0x3f803f80;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 low = __byte_perm(Same<T, f16>::value ? word ^ 0x80808080 : word, 0, i ? 0x4342 : 0x4140);
    if constexpr (Same<T, f16>::value) pair[i] = fma_pair<T>(low | 0x64006400, ONE, 0xe480e480);
    else pair[i] = fma_pair<T>((low & 0x007f007f) | 0x43004300, ONE, (low & 0x00800080) | 0xc300c300);
  }
}

}  // namespace attention
