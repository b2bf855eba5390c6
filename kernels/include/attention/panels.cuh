// Shared-memory layout for mma.sync operands of 16-bit elements (f32 counts as two): panels of 64 columns (32 where
// COLUMNS % 64 != 0), so that a panel row is 128 (64) bytes. XOR swizzle: 16-byte chunk c of row r is stored at chunk
// c ^ swizzle(r); cp.async (eight chunks of a row) and ldmatrix (one chunk of eight rows) are free of bank conflicts.
#pragma once
#include "ptx/async_copy.cuh"
#include "ptx/mma.cuh"

namespace attention {

template <int ROWS, int COLUMNS> struct Panels {
  static constexpr int WIDTH = COLUMNS % 64 == 0 ? 64 : 32, PITCH = 2 * WIDTH, PANEL = ROWS * PITCH;
  static constexpr int CHUNKS = COLUMNS / 8, BYTES = ROWS * COLUMNS * 2, FLIPS = WIDTH / 16;

  static __device__ __forceinline__ constexpr u32 swizzle(u32 row) { return WIDTH == 64 ? row % 8 : row / 2 % 4; }
  static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
    return chunk / (WIDTH / 8) * PANEL + row * PITCH + (chunk % (WIDTH / 8) ^ swizzle(row)) * 16;
  }

  // GlobalLoader: global -> shared memory by cp.async, by THREADS threads: rows spaced by `step` elements, of
  // which `rows` and `columns` exist; the rest is filled with zeros. Each thread has one chunk per panel row and
  // iterates over rows, GROUP at a time. The asm makes `thread` and `step` opaque, so that addresses are recomputed and
  // occupy no registers across the k_block loop.
  template <int THREADS> struct GlobalLoader {
    static constexpr int LANES = WIDTH / 8, GROUP = THREADS / LANES;
    static_assert(ROWS % GROUP == 0, "every thread copies as much");
    template <class T>
    static __device__ __forceinline__ void issue(int thread, u32 to, const T* first, int step, int rows, int columns) {
      constexpr int CHUNK = 16 / sizeof(T);
      asm volatile("" : "+r"(thread), "+r"(step));
      const T* from = first + i64(thread / LANES) * step + thread % LANES * CHUNK;
      to += offset(thread / LANES, thread % LANES);
      rows -= thread / LANES;
      columns -= thread % LANES * CHUNK;
#pragma unroll
      for (int i = 0; i < ROWS / GROUP; ++i) {
        const u32 line = to ^ swizzle(i * GROUP) * 16;  // row bits at or above GROUP flip chunk bits (swizzle)
#pragma unroll
        for (int panel = 0; panel < COLUMNS / WIDTH; ++panel)
          copy_async<16>(line + panel * PANEL + i * GROUP * PITCH, from + panel * LANES * CHUNK,
                         i * GROUP < rows && panel * LANES * CHUNK < columns ? 16 : 0);
        from += GROUP * i64(step);
      }
    }
    // The same for a gather: line(row) is the address of a row, null if there is none.
    template <class Line>
    static __device__ __forceinline__ void issue_each(int thread, u32 to, int columns, const Line& line) {
      constexpr int CHUNK = 16 / sizeof(*line(0));
      asm volatile("" : "+r"(thread));
      to += offset(thread / LANES, thread % LANES);
      columns -= thread % LANES * CHUNK;
#pragma unroll
      for (int i = 0; i < ROWS / GROUP; ++i) {
        const auto* from = line(thread / LANES + i * GROUP);
        const u32 at = to ^ swizzle(i * GROUP) * 16;
#pragma unroll
        for (int panel = 0; panel < COLUMNS / WIDTH; ++panel)
          copy_async<16>(at + panel * PANEL + i * GROUP * PITCH, from + thread % LANES * CHUNK + panel * LANES * CHUNK,
                         from && panel * LANES * CHUNK < columns ? 16 : 0);
      }
    }
  };

  // The lane's ldmatrix address in the first 16 rows and columns. BY_ROW: matrices in the order of mma's A fragment
  // (rows first); otherwise that of two B fragments of 8 rows (columns first). With ldmatrix.trans, B uses BY_ROW.
  template <bool BY_ROW> static __device__ __forceinline__ u32 lane_address(u32 lane) {
    const u32 inner = lane / 8 % 2, outer = lane / 16;
    return BY_ROW ? offset(lane % 8 + 8 * inner, outer) : offset(lane % 8 + 8 * outer, inner);
  }
  // The same for rows 16 block and columns 16 step: XOR of chunk bits plus compile-time offsets.
  static __device__ __forceinline__ u32 at(u32 base, int block, int step) {
    return (base ^ step % FLIPS * 32) + step / FLIPS * PANEL + block * 16 * PITCH;
  }
};

}  // namespace attention
