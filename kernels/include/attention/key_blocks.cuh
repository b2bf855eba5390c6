// Copies of blocks of 16 rows of keys or values into shared memory by one warp.
#pragma once
#include "attention/panels.cuh"

namespace attention {

// How a warp shares out a block that lies as Rows do: a lane has a chunk of 16 bytes of every panel and goes down the rows, GROUP
// at a time. E: what is copied, `columns` of it a row; the rest is zero.
template <class Rows, class E> struct KeyBlock {
  static constexpr int LANES = Rows::WIDTH / 8, GROUP = 32 / LANES, EACH = 16 / sizeof(E), PANEL = LANES * EACH;
  u32 lands;      // in the block
  int row, left;  // the lane's first row; columns that are left from its chunk on

  __device__ __forceinline__ KeyBlock(int lane, int columns)
      : lands(Rows::offset(lane / LANES, lane % LANES)), row(lane / LANES), left(columns - lane % LANES * EACH) {}

  static __device__ __forceinline__ int column(int lane) { return lane % LANES * EACH; }

  // `line(i)` says where the lane's part of row `row` + i begins, `there(i)` whether that row exists.
  template <class Line, class There> __device__ __forceinline__ void copy(u32 to, const Line& line, const There& there) const {
    to += lands;
#pragma unroll
    for (int i = 0; i < 16; i += GROUP) {
      const E* from = line(i);
      const u32 at = to ^ Rows::swizzle(i) * 16;  // a row's bits above those of GROUP flip the chunk's
      const bool exists = there(i);
#pragma unroll
      for (int panel = 0; panel < Rows::CHUNKS / LANES; ++panel)
        copy_async<16>(at + panel * Rows::PANEL + i * Rows::PITCH, from + panel * PANEL, exists && panel * PANEL < left ? 16 : 0);
    }
  }
};

}  // namespace attention
