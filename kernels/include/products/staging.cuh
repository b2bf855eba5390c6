// Epilogue staging: wgmma accumulators -> swizzled shared memory -> global memory, in parts of 64 rows by WIDTH
// columns, or transposed, by one warpgroup. A part is at most 8 KB, with rows of at most 128 bytes in TMA's swizzle.
#pragma once
#include "core/shared.cuh"
#include "ptx/warpgroup.cuh"

namespace staging {

// Byte offset of 16-byte chunk `chunk` of row `row` in a buffer with rows of ROW_BYTES, in TMA's swizzle of that width.
template <int ROW_BYTES> __device__ __forceinline__ u32 swizzled(u32 row, u32 chunk) {
  const u32 swizzle = ROW_BYTES == 128 ? row % 8 : ROW_BYTES == 64 ? row / 2 % 4 : row / 4 % 2;
  return row * ROW_BYTES + (chunk ^ swizzle) * 16;
}

// The widest part of a tile of BN columns, the bytes of its buffer, and the bytes of a warpgroup's buffers: two if the
// tile has more than one part.
template <class T, int BN>
constexpr int WIDEST = BN % (128 / int(sizeof(T))) == 0 ? 128 / int(sizeof(T))
    : BN % 32 == 0                                      ? 32
                                                        : 16;
template <class T, int BN> constexpr u32 BUFFER = 64 * WIDEST<T, BN> * sizeof(T);
template <class T, int BN> constexpr u32 BUFFERS = BN > WIDEST<T, BN> ? 2 * BUFFER<T, BN> : BUFFER<T, BN>;

// A thread's accumulator pairs of a part, indexed by group of 8 columns and by half (row lane / 4, or 8 below);
// stmatrix writes 16 x 16 blocks.
template <class T, int WIDTH, bool TRANSPOSED> struct Part {
  static constexpr int ROW_BYTES = TRANSPOSED ? 128 : WIDTH * 2;
  u32 packed[WIDTH / 16][4];

  __device__ __forceinline__ void set(int group, int half, const float (&pair)[2]) {
    packed[group / 2][group % 2 * 2 + half] = round_pair(pair[0], pair[1], T{});
  }
  __device__ __forceinline__ void write(u32 buffer, u32 warp, u32 lane) const {
#pragma unroll
    for (int i = 0; i < WIDTH / 16; ++i) {
      const u32 row = TRANSPOSED ? i * 16 + lane / 16 * 8 + lane % 8 : warp * 16 + lane % 16;
      const u32 chunk = TRANSPOSED ? warp * 2 + lane / 8 % 2 : i * 2 + lane / 16;
      warpgroup::store_matrices<TRANSPOSED>(buffer + swizzled<ROW_BYTES>(row, chunk), packed[i]);
    }
  }
};

// f32: a warp's pairs of one group are 32 bytes of each of 8 rows. A half-warp store covers four rows, of which the
// swizzle leaves two in the same banks; so every other such row writes another group (`swapped`) in the same
// instruction.
template <int WIDTH> struct Part<float, WIDTH, false> {
  static constexpr int ROW_BYTES = WIDTH * 4, SWAP_DISTANCE = WIDTH / 16;
  float pairs[WIDTH / 8][2][2];

  __device__ __forceinline__ void set(int group, int half, const float (&pair)[2]) {
    pairs[group][half][0] = pair[0];
    pairs[group][half][1] = pair[1];
  }
  __device__ __forceinline__ void write(u32 buffer, u32 warp, u32 lane) const {
    const bool swapped = lane / 4 & (ROW_BYTES == 128 ? 1 : 2);
    const u32 first = swizzled<ROW_BYTES>(warp * 16 + lane / 4, lane % 4 / 2 + (swapped ? 2 * SWAP_DISTANCE : 0)) +
        lane % 2 * 8;
#pragma unroll
    for (int group = 0; group < WIDTH / 8; ++group)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&own)[2] = pairs[group][half], (&other)[2] = pairs[group ^ SWAP_DISTANCE][half];
        store_shared(buffer + (first ^ group * 32) + half * (8 * ROW_BYTES),
                     Vec<float, 2>{{swapped ? other[0] : own[0], swapped ? other[1] : own[1]}});
      }
  }
};

// Copies a buffer of ROWS rows to global memory, predicated on `rows` and on `bytes` per row, for any pitch and
// alignment to Word: neighbouring lanes store neighbouring Words of one row or of several.
template <class Word, int ROWS, int ROW_BYTES>
__device__ __forceinline__ void store_by_warps(u32 buffer, u8* to, i64 pitch, i64 rows, i64 bytes) {
  constexpr u32 WORDS = ROW_BYTES / sizeof(Word), STEP = 128 / WORDS, BATCH = 4;  // BATCH loads before their stores
  static_assert(ROWS % (STEP * BATCH) == 0);
  const u32 first = threadIdx.x % 128 / WORDS, within = threadIdx.x % WORDS * sizeof(Word);
  to += first * pitch + within;
  if (within >= bytes) rows = 0;
#pragma unroll 1
  for (u32 row = first; row < ROWS; row += STEP * BATCH) {
    Word x[BATCH];
#pragma unroll
    for (u32 i = 0; i < BATCH; ++i)
      x[i] = load_shared<Word>(buffer + swizzled<ROW_BYTES>(row + i * STEP, within / 16) + within % 16);
#pragma unroll
    for (u32 i = 0; i < BATCH; ++i, to += STEP * pitch)
      if (row + i * STEP < rows) {
        if (within + sizeof(Word) <= bytes) *reinterpret_cast<Word*>(to) = x[i];
        else *reinterpret_cast<u16*>(to) = u16(x[i]);  // odd count: the last 16 bits
      }
  }
}

}  // namespace staging
