// One stage (DEPTH of K) of NF4 codes and tokens: shared-memory layout, cp.async loader, and fragment loads.
#pragma once
#include "ptx/async_copy.cuh"
#include "quantized/nf4.cuh"

namespace nf4 {

__device__ __forceinline__ uint4 load_four(u32 from) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
      : "r"(from)
      : "memory");
  return x;
}
__device__ __forceinline__ uint2 load_two(u32 from) {
  uint2 x;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(from) : "memory");
  return x;
}

// Predicated load: `x` keeps its value unless `active`.
__device__ __forceinline__ void load_four(uint4& x, u32 from, bool active) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w) : "r"(from), "r"(u32(active)) : "memory");
}

// Stage layout: DEPTH of K of ACROSS STRIPS strips (16 rows), codes in 16-byte vectors (pieces), swizzled so that rows
// read together use different banks; then TOKENS rows of activations, [octet][token][lane t][8]. With fewer than 8
// tokens, SPREAD blocks of 64 of K use separate columns of B. A lane loads WORDS words (8 WORDS k's) of a row at once,
// of a stretch of 32 WORDS k's.
template <class T, int STRIPS_, int TOKENS_, int ACROSS, int DEPTH_> struct Rows {
  using Element = T;
  static constexpr u32 STRIPS = STRIPS_, TOKENS = TOKENS_, DEPTH = DEPTH_, CHUNKS = DEPTH / CHUNK;
  static constexpr u32 TILES = (TOKENS + 7) / 8, FREE = TOKENS < 8 ? 8 / TOKENS : 1,
                       SPREAD = FREE < CHUNKS ? FREE : CHUNKS;
  static constexpr u32 COLUMNS = TOKENS * SPREAD;  // used columns of B
  static constexpr u32 WORDS = SPREAD == 1 ? 2 : 4, PER_ROUND = SPREAD == 1 ? 1 : SPREAD / 2;  // stretches per round
  static constexpr u32 VECTORS = DEPTH / 32, ROW = VECTORS * 16;
  static constexpr u32 CODES = STRIPS * 16 * ROW, ACTIVATIONS = TOKENS * DEPTH * 2,
                       BYTES = ACROSS * CODES + ACTIVATIONS;
  // Byte offset of 16-byte vector i of a row of codes, swizzled.
  static __device__ __forceinline__ u32 vector(u32 row, u32 i) {
    const u32 swapped = DEPTH == 256 ? (WORDS == 4 ? row % 2 * 4 : row % 4 * 2) : WORDS == 4 ? 0 : row / 2 % 2 * 2;
    return row * ROW + (i ^ swapped) * 16;
  }

  // Byte offset of a token's octet of k's number `i` of the stage.
  static __device__ __forceinline__ u32 place(u32 i, u32 token) {
    const u32 octet = i / (4 * WORDS) * WORDS + i % WORDS, t = i / WORDS % 4;
    return ((octet * TOKENS + token) * 4 + t) * 16;
  }
  // Loads a lane's words of a stretch of a row.
  static __device__ __forceinline__ void load(u32 (&words)[WORDS], u32 from, u32 row, u32 stretch, u32 t) {
    if constexpr (WORDS == 4) {
      const uint4 all = load_four(from + vector(row, stretch * 4 + t));
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
      const uint2 all = load_two(from + vector(row, stretch * 2 + t / 2) + t % 2 * 8);
      words[0] = all.x, words[1] = all.y;
    }
  }
};

// Global loader: a thread's cp.async copies per stage. Out-of-range rows of w are clamped to the last, out-of-range
// tokens are zero. Offsets are computed once, in 32 bits, those of codes from the warp's first row.
template <class StageLayout, int ACROSS> struct Copies {
  using T = typename StageLayout::Element;
  // per lane; rows per warp copy
  static constexpr u32 COPIES = StageLayout::STRIPS * StageLayout::VECTORS / 2, AT_ONCE = 32 / StageLayout::VECTORS;
  static constexpr u32 ALL = StageLayout::ACTIVATIONS / 16, THREADS = ACROSS * 32,
                       ROUNDS = (ALL + THREADS - 1) / THREADS;
  static constexpr u32 PER_TOKEN = StageLayout::DEPTH / 8;
  const u8* codes;
  const T* x;
  u32 half, thread, into;  // bytes per row of codes; shared offset of the thread's first token vector
  u32 row[COPIES], token[ROUNDS], limit[ROUNDS];

  __device__ __forceinline__ Copies(const u8* codes, const T* x, u32 pitch, u32 m, u32 n, u32 k, u32 first, u32 thread)
      : codes(codes + u64(min(first, n - 1)) * (k / 2)), x(x), half(k / 2), thread(thread),
        into(StageLayout::place(thread % PER_TOKEN, thread / PER_TOKEN)) {
    const u32 lane = thread % 32;
#pragma unroll
    for (u32 i = 0; i < COPIES; ++i)
      row[i] = (min(first + i * AT_ONCE + lane / StageLayout::VECTORS, n - 1) - min(first, n - 1)) * half +
          lane % StageLayout::VECTORS * 16;
#pragma unroll
    for (u32 i = 0; i < ROUNDS; ++i) {
      const u32 own = (i * THREADS + thread) / PER_TOKEN, at = thread % PER_TOKEN * 8;
      const bool there = own < min(m, StageLayout::TOKENS);
      token[i] = there ? own * pitch + at : 0;
      limit[i] = there ? max(k, at) - at : 0;
    }
  }

  __device__ __forceinline__ void issue(u32 weights, u32 tokens, u32 k_block) const {
    const u32 lane = thread % 32, at = k_block * (StageLayout::DEPTH / 2),
              there = at + lane % StageLayout::VECTORS * 16 < half ? 16 : 0;
    const u8* const from = codes + at;
#pragma unroll
    for (u32 i = 0; i < COPIES; ++i)
      copy_async<16>(
          weights + StageLayout::vector(i * AT_ONCE + lane / StageLayout::VECTORS, lane % StageLayout::VECTORS),
          from + row[i], there);
#pragma unroll
    for (u32 i = 0; i < ROUNDS; ++i)
      if (ALL % THREADS == 0 || i * THREADS + thread < ALL)
        copy_async<16>(tokens + into + i * (THREADS / PER_TOKEN) * 64, x + u64(token[i] + k_block * StageLayout::DEPTH),
            k_block * StageLayout::DEPTH < limit[i] ? 16 : 0);
  }
};

}  // namespace nf4
