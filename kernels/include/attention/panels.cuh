// Rows of 16-bit elements in shared memory for mma.sync: cut into panels of 64 columns (32 where COLUMNS is no multiple of 64), so
// that a panel's rows are 128 (64) bytes. 16-byte chunk c of row r lies at c ^ swizzle(r) in its row: neither copies, eight chunks
// of a row at a time, nor ldmatrix, a chunk of eight rows, meet bank conflicts.
#pragma once
#include "async_copy.cuh"
#include "mma.cuh"

namespace attention {

template <int ROWS, int COLUMNS> struct Panels {
  static constexpr int WIDTH = COLUMNS % 64 == 0 ? 64 : 32, PITCH = 2 * WIDTH, PANEL = ROWS * PITCH;
  static constexpr int CHUNKS = COLUMNS / 8, BYTES = ROWS * COLUMNS * 2, FLIPS = WIDTH / 16;

  static __device__ __forceinline__ u32 offset(u32 row, u32 chunk) {
    const u32 swizzle = WIDTH == 64 ? row % 8 : row / 2 % 4;
    return chunk / (WIDTH / 8) * PANEL + row * PITCH + (chunk % (WIDTH / 8) ^ swizzle) * 16;
  }

  // Copies the rows from `from` on, `step` elements apart, of which `rows` and `columns` exist; the rest is zero. By THREADS threads,
  // of which this is number `thread`.
  template <int THREADS, class T>
  static __device__ __forceinline__ void bring(int thread, u32 to, const T* from, int step, int rows, int columns) {
    static_assert(ROWS * CHUNKS % THREADS == 0, "every thread copies as much");
#pragma unroll
    for (int i = 0; i < ROWS * CHUNKS / THREADS; ++i) {
      const int at = thread + i * THREADS, row = at / CHUNKS, chunk = at % CHUNKS;
      const bool there = row < rows && chunk * 8 < columns;
      copy_async<16>(to + offset(row, chunk), from + i64(row) * step + chunk * 8, there ? 16 : 0);
    }
  }

  // Where a lane's address for ldmatrix is in the first 16 rows and columns. BY_ROW: matrices in the order of mma's a (rows first);
  // else that of b's of two groups of 8 rows (columns first). Rows that are transposed on the way are b's BY_ROW.
  template <bool BY_ROW> static __device__ __forceinline__ u32 enter(u32 lane) {
    const u32 inner = lane / 8 % 2, outer = lane / 16;
    return BY_ROW ? offset(lane % 8 + 8 * inner, outer) : offset(lane % 8 + 8 * outer, inner);
  }
  // The same for rows from 16 block on and columns from 16 step on: the chunk's bits are flipped, the rest is constant.
  static __device__ __forceinline__ u32 at(u32 entered, int block, int step) {
    return (entered ^ step % FLIPS * 32) + step / FLIPS * PANEL + block * 16 * PITCH;
  }
};

}  // namespace attention
