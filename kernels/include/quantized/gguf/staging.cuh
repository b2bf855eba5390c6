// Global loaders of GGUF rows: chunks to shared memory by 16-byte cp.async. SHIFTED: chunks are not 16-byte aligned;
// the copy starts at the aligned address below, and reads are shifted.
#pragma once
#include "ptx/async_copy.cuh"
#include "quantized/gguf/format.cuh"

namespace gguf {

constexpr u32 ROWS = 16, PART = 256;  // rows per warp; weights of a chunk processed together

// Stage layout of a chunk of ROWS rows. ALIGN: alignment of every block in global memory. The pitch is an odd multiple
// of 16 bytes, so that eight rows have no bank conflicts.
template <class F, int ALIGN, bool SHIFTED_, int CHUNK> struct Slot {
  static constexpr bool SHIFTED = SHIFTED_;
  static constexpr u32 BYTES = CHUNK / F::WEIGHTS * F::BYTES, PARTS = CHUNK / PART;
  static constexpr u32 VECTORS = (BYTES + (SHIFTED ? 16 - ALIGN : 0) + 15) / 16;
  static constexpr u32 PITCH = (VECTORS | 1) * 16, SIZE = ROWS * PITCH;
};

// Keeps x in a register: the compiler neither rematerializes the result of a shuffle nor treats it as a constant.
__device__ __forceinline__ u32 kept(u32 x) { return __shfl_sync(~0u, x, threadIdx.x % 32); }

// Predicated 16-byte cp.async, without a branch.
__device__ __forceinline__ void copy_if(bool is_one, u32 to, const u8* from) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global.L2::128B [%0], [%1], 16; }"
               ::"r"(to), "l"(from), "r"(u32(is_one)) : "memory");
}

// One warp's loader of chunks of 16 rows, every STEP-th chunk: neighbouring lanes copy neighbouring 16-byte vectors
// (pieces), row after row. Out-of-range rows are clamped to the last. WHOLE: rows are whole chunks. EACH: a lane keeps
// the address of every vector; otherwise, to save registers, the first address and 32-bit offsets to the others.
template <class S, bool WHOLE, u32 STEP, bool EACH> struct WarpCopies {
  static constexpr int COUNT = (ROWS * S::VECTORS + 31) / 32, ADDRESSES = EACH ? COUNT : 1;
  // the stage has no padding: constant lane strides
  static constexpr bool DENSE = !EACH && S::PITCH == S::VECTORS * 16;
  const u8* at[ADDRESSES];  // address in the next chunk, before rounding down to 16 bytes (SHIFTED)
  u32 offset[COUNT];        // byte offsets from at[0] to the other vectors, unless EACH
  u32 to[DENSE ? 1 : COUNT];

  __device__ __forceinline__ WarpCopies(u32 slots, u32 lane) {
#pragma unroll
    for (int i = 0; i < (DENSE ? 1 : COUNT); ++i) to[i] = kept(slots + row_of(i, lane) * S::PITCH + within(i, lane));
  }
  // Starts at chunk `chunk` of the rows from `first`.
  __device__ __forceinline__ void prologue(const u8* weights, i64 pitch, u32 first, u32 rows, u32 chunk, u32 lane) {
    const auto row = [&](int i) { return min(first + row_of(i, lane), rows - 1); };
#pragma unroll
    for (int i = 0; i < ADDRESSES; ++i) at[i] = weights + i64(row(i)) * pitch + i64(chunk) * S::BYTES + within(i, lane);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      offset[i] = ADDRESSES == 1 ? (row(i) - row(0)) * u32(pitch) + within(i, lane) - within(0, lane) : 0;
  }
  // Copies chunk `chunk` to the stage at byte offset `slot` and advances by STEP chunks; zeros past the row's end, and
  // nothing is read there.
  __device__ __forceinline__ void start(u32 slot, u32 chunk, i64 pitch, u32 lane) {
    const i64 left = pitch - i64(chunk) * S::BYTES;
    if ((WHOLE && !S::SHIFTED) || left >= i64(S::VECTORS * 16)) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) copy_if(is_one(i, lane), slot + place(i), word_of(i));
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; ++i)
        if (is_one(i, lane)) {
          const u8* from = word_of(i);
          const i64 here = left - (from - byte_of(i) + within(i, lane));
          copy_async<16>(slot + place(i), from, here > 0 ? u32(min(here, i64(16))) : 0);
        }
    }
#pragma unroll
    for (int i = 0; i < ADDRESSES; ++i) at[i] += STEP * S::BYTES;
  }

 private:
  static __device__ __forceinline__ u32 row_of(int i, u32 lane) { return (i * 32 + lane) / S::VECTORS; }
  static __device__ __forceinline__ u32 within(int i, u32 lane) { return (i * 32 + lane) % S::VECTORS * 16; }
  static __device__ __forceinline__ bool is_one(int i, u32 lane) {
    return (i + 1) * 32 <= ROWS * S::VECTORS || i * 32 + lane < ROWS * S::VECTORS; }
  __device__ __forceinline__ u32 place(int i) const { return DENSE ? to[0] + i * 512 : to[i]; }
  __device__ __forceinline__ const u8* byte_of(int i) const { return ADDRESSES == 1 ? at[0] + i32(offset[i]) : at[i]; }
  __device__ __forceinline__ const u8* word_of(int i) const {
    return S::SHIFTED ? reinterpret_cast<const u8*>(reinterpret_cast<u64>(byte_of(i)) & ~u64(15)) : byte_of(i);
  }
};

// Loader of one row by two neighbouring threads.
template <class S> struct RowCopies {
  const u8* row;
  i64 pitch;

  // Misalignment of a chunk, in bytes from a multiple of 16.
  __device__ __forceinline__ u32 shift(u32 chunk) const {
    return S::SHIFTED ? u32(reinterpret_cast<u64>(row) + u64(chunk) * S::BYTES) % 16 : 0;
  }
  // Copies this thread's half of a chunk (every other 16-byte vector) to `slot`, with zeros past the row's end.
  __device__ __forceinline__ void start(u32 slot, u32 chunk) const {
    const u32 half = threadIdx.x % 2;
    const i64 begin = i64(chunk) * S::BYTES - shift(chunk);
    const bool whole = begin + S::VECTORS * 16 <= pitch;
#pragma unroll
    for (u32 i = 0; i < (S::VECTORS + 1) / 2; ++i) {
      const u32 within = (2 * i + half) * 16;
      if (within >= S::VECTORS * 16) break;
      const i64 left = pitch - begin - within;
      copy_async<16>(slot + within, whole || left > 0 ? row + begin + within : row,
          whole ? 16 : left > 0 ? u32(min(left, i64(16))) : 0);
    }
  }
};

}  // namespace gguf
