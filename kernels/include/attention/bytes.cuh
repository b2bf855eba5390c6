// Four 8-bit keys or values (i8, e4m3, e5m2) per word, widened exactly to T (f16 or bf16) on every arch: integer
// operations and one exact FMA per pair. A pair is bytes 0 and 2, or 1 and 3, so that no byte changes its half of the
// word. Without special codes: 9 instructions per word for e4m3, 7 for i8.
#pragma once
#include "core/dtype.cuh"

namespace attention {

struct e4m3 { u8 bits; };
struct e5m2 { u8 bits; };

template <class T> __device__ __forceinline__ u32 fma_pair(u32 a, u32 b, u32 c) {
  u32 y;
  if constexpr (Same<T, f16>::value) asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  else asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}

// The magnitude is shifted LEFT, so that the mantissa aligns with T's; the multiplication by FACTOR corrects the
// exponent bias, subnormals included. A code is special if bit 7 of magnitude + BEYOND is set.
template <class T, class E> struct Code;
// 2^8
template <> struct Code<f16, e4m3> { static constexpr u32 LEFT = 7, FACTOR = 0x5c005c00, BEYOND = 0x01010101; };
// 2^120
template <> struct Code<bf16, e4m3> { static constexpr u32 LEFT = 4, FACTOR = 0x7b807b80, BEYOND = 0x01010101; };
// 2^112
template <> struct Code<bf16, e5m2> { static constexpr u32 LEFT = 5, FACTOR = 0x77807780, BEYOND = 0x04040404; };

// One word without special codes: pair[0] is bytes 0 and 2, pair[1] bytes 1 and 3.
template <class T, class E> __device__ __forceinline__ void widen(u32 word, u32 (&pair)[2]) {
  constexpr bool HALF = Same<T, f16>::value;
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    if constexpr (Same<E, i8>::value) {  // f16: 1024 + (x + 128) - 1152; bf16: 128 + seven bits - (128 or 256)
      const u32 low = odd ? word >> 8 : word;
      if constexpr (HALF) pair[odd] = fma_pair<T>((low & 0x00ff00ff) ^ 0x64806480, 0x3c003c00, 0xe480e480);
      else pair[odd] = fma_pair<T>((low & 0x007f007f) | 0x43004300, 0x3f803f80, (low & 0x00800080) | 0xc300c300);
    } else if constexpr (HALF && Same<E, e5m2>::value) {  // e5m2 is the upper byte of f16
      pair[odd] = (odd ? word : word << 8) & 0xff00ff00;
    } else {
      using To = Code<T, E>;
      const u32 magnitude = odd ? word >> (8 - To::LEFT) : word << To::LEFT, sign = odd ? word : word << 8;
      constexpr u32 MASK = 0x007f007f << To::LEFT;
      pair[odd] = fma_pair<T>((magnitude & MASK) | (sign & 0x80008000), To::FACTOR, 0x80008000);
    }
  }
}

// Four words with one test for special codes: NaN (e4m3: all magnitude bits set), and e5m2 in bf16: infinity too.
template <class T, class E> __device__ __forceinline__ void widen(const u32 (&words)[4], u32 (&pairs)[4][2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) widen<T, E>(words[i], pairs[i]);
  if constexpr (!Same<E, i8>::value && !(Same<E, e5m2>::value && Same<T, f16>::value)) {
    u32 special = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) special |= (words[i] & 0x7f7f7f7f) + Code<T, E>::BEYOND;
    if (special & 0x80808080)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const u32 found = (words[i] & 0x7f7f7f7f) + Code<T, E>::BEYOND >> 8 * odd & 0x00800080;
          // e4m3: all magnitude bits of T; e5m2: all exponent bits
          pairs[i][odd] |= (found << 8) - (Same<E, e4m3>::value ? found >> 7 : found);
        }
  }
}

}  // namespace attention
