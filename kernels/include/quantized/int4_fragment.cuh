// int4 weights as the A operand of mma.sync: codes are unpacked to 16-bit floats in registers; scales multiply
// accumulators.
//
// f16:    a code OR'ed into the mantissa of 1024 is 1024 + code, minus the zero point exactly; a code four bits higher
//         is 1024 + 16 code, scaled back by an exact FMA (Kim et al., "Who Says Elephants Can't Run",
//         arXiv:2211.10017).
// bf16:   a bit pattern below 256 is that integer times 2^-133, across the smallest normal; so a code (or 16 code) is a
//         valid number and an exact FMA maps it to (code - zero) / 64. The epilogue multiplies by UNIT, 64.
// Scales: products are of small integers and activations; a group's accumulator is scaled in f32, and no weight is
//         rounded.
// Cost:   9 instructions per word of 8 codes, 5 of them on the half-rate logic pipe; with the mma about 1.2 per weight
//         and lane.
#pragma once
#include "ptx/async_copy.cuh"
#include "ptx/mma.cuh"

namespace nibbles {

// Unpacks one word of 8 codes to an A fragment, minus the zero points of rows 2 g and 2 g + 1.
template <class T> struct Unpack;

template <> struct Unpack<f16> {
  static constexpr float UNIT = 1;
  u32 low, high;  // 1024 + zero of the even row, -(64 + zero) of the odd, twice each
  // Zero may be any byte. From 64 on, 64 + zero is in the next binade, so it is the difference 960 - (1024 + zero) and
  // not an OR
  __device__ __forceinline__ Unpack(u32 even, u32 odd) : low(0x64006400 | even * 0x10001) {
    asm("sub.f16x2 %0, %1, %2;" : "=r"(high) : "r"(0x63806380), "r"(0x64006400 | odd * 0x10001));
  }
  __device__ __forceinline__ void operator()(u32 (&a)[4], u32 q) const {
#pragma unroll
    for (int half = 0; half < 2; ++half, q >>= 8) {
      u32 x, y;
      asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(x) : "r"(q), "r"(0x64006400));  // (a & b) | c
      asm("lop3.b32 %0, %1, 0x00f000f0, %2, 0xea;" : "=r"(y) : "r"(q), "r"(0x64006400));
      asm("sub.f16x2 %0, %1, %2;" : "=r"(a[2 * half]) : "r"(x), "r"(low));
      asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(a[2 * half + 1]) : "r"(y), "r"(0x2c002c00), "r"(high));  // 1 / 16
    }
  }
};

template <> struct Unpack<bf16> {
  static constexpr float UNIT = 64;
  u32 row[2];  // -zero / 64, twice
  __device__ __forceinline__ Unpack(u32 even, u32 odd) : row{of(even), of(odd)} {}
  static __device__ __forceinline__ u32 of(u32 zero) {
    u32 x;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(zero * 0x10001), "r"(0xff00ff00), "r"(0x80008000));  // -2^127
    return x;
  }
  __device__ __forceinline__ void operator()(u32 (&a)[4], u32 q) const {
#pragma unroll
    for (int half = 0; half < 2; ++half, q >>= 8) {
      const u32 x = q & 0x000f000f, y = q & 0x00f000f0;
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(a[2 * half]) : "r"(x), "r"(0x7f007f00), "r"(row[0]));      // 2^127
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(a[2 * half + 1]) : "r"(y), "r"(0x7d007d00), "r"(row[1]));  // 2^123
    }
  }
};

__device__ __forceinline__ void load_quad(u32 (&to)[4], u32 from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(from)
      : "memory");
}

// A stage of one k_block (128 of K) in shared memory. Weights of STRIPS strips of 16 rows: codes [strip][2][lane]
// of 16 bytes, scales [group][strip][16], zero points likewise in bytes. Activations: [4][token][64 bytes]. GROUP k's
// (at most 128) share a scale.
template <class T, class S, int STRIPS_, int TOKENS_, int GROUP, bool ZEROS> struct StageLayout {
  using Element = T;
  using Scale = S;
  static constexpr int STRIPS = STRIPS_, TOKENS = TOKENS_, DEPTH = 128, GROUPS = DEPTH / GROUP,
                       TILES = (TOKENS + 7) / 8;
  static constexpr u32 CODES = STRIPS * 1024, SCALES = GROUPS * STRIPS * 32,
                       ZERO_BYTES = ZEROS ? GROUPS * STRIPS * 16 : 0;
  static constexpr int CHAINS = STRIPS * TILES < 8 ? 2 : 1;  // independent accumulator chains, for mma latency
  static constexpr float UNIT = Unpack<T>::UNIT;             // of accumulators
  static constexpr u32 WEIGHTS = CODES + SCALES + ZERO_BYTES, ACTIVATIONS = TOKENS * DEPTH * 2;

  // Scales (zero points) of rows 2 g and 2 g + 1 of strip s, packed as a pair, for group `group` of the stage at
  // `weights`.
  static __device__ __forceinline__ void load_scale(u32& pair, u32 weights, int group, int s, u32 lane) {
    load_shared(pair, weights + CODES + (group * STRIPS + s) * 32 + lane / 4 * 4);
  }
  static __device__ __forceinline__ u32 zeros_of(u32 weights, int group, int s, u32 lane) {
    u16 pair = 0x0808;
    if constexpr (ZEROS)
      asm volatile("ld.shared.u16 %0, [%1];"
          : "=h"(pair)
          : "r"(weights + CODES + SCALES + (group * STRIPS + s) * 16 + lane / 4 * 2)
          : "memory");
    return pair;
  }

  // acc[strip][tile] += scale (codes - zero) x / UNIT over one k_block: rows 2 g and 2 g + 1 of the strip, tokens 2 t
  // and 2 t + 1 of the tile.
  static __device__ __forceinline__ void multiply(float (&acc)[STRIPS][TILES][4], u32 weights, u32 tokens, u32 lane) {
    const u32 g = lane / 4;
    u32 words[STRIPS][4];  // codes of 64 of K
    // Short groups: a rolled loop over the two blocks of 64 of K, as full unrolling needs too many registers
    constexpr int PARTS = GROUPS == 1 ? 1 : 2, CHUNKS = 4 / PARTS;
#pragma unroll 1
    for (int part = 0; part < PARTS; ++part)
#pragma unroll
      for (int within = 0; within < CHUNKS; within += GROUP / 32) {
        const int first = part * CHUNKS + within, group = first * 32 / GROUP;
        float sum[CHAINS][STRIPS][TILES][4] = {};
        u32 zero[STRIPS];
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) zero[s] = zeros_of(weights, group, s, lane);
#pragma unroll
        for (int c = 0; c < GROUP / 32; ++c) {
          const int chunk = first + c, pair = (within + c) % 2;  // pair: which two of a block's four words
          u32 a[STRIPS][2][4];
#pragma unroll
          for (int s = 0; s < STRIPS; ++s) {
            const Unpack<T> unpack(zero[s] & 255, zero[s] >> 8);
            if (pair == 0) load_quad(words[s], weights + (s * 2 + chunk / 2) * 512 + lane * 16);
            unpack(a[s][0], words[s][pair * 2]);
            unpack(a[s][1], words[s][pair * 2 + 1]);
          }
          // All activation loads before the first mma; dependent mmas are spaced by the tiles and strips between them
          u32 b[TILES][4] = {};
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile)
            if (TOKENS % 8 == 0 || g < TOKENS)
              load_quad(b[tile], tokens + (chunk * TOKENS + tile * 8) * 64 + lane * 16);
#pragma unroll
          for (int step = 0; step < 2; ++step)
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
              for (int s = 0; s < STRIPS; ++s) Mma<T>::run(sum[step % CHAINS][s][tile], a[s][step], b[tile] + step * 2);
        }
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) {
          u32 pair;
          load_scale(pair, weights, group, s, lane);
          const float even = convert<float>(S{u16(pair)}), odd = convert<float>(S{u16(pair >> 16)});
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float own = CHAINS == 1 ? sum[0][s][tile][e] : sum[0][s][tile][e] + sum[CHAINS - 1][s][tile][e];
              acc[s][tile][e] = fma(e < 2 ? even : odd, own, acc[s][tile][e]);
            }
        }
      }
  }
};

}  // namespace nibbles
