// Loader of k_blocks of 16 rows of K or V into shared memory (cp.async), by one warp.
#pragma once
#include "attention/panels.cuh"

namespace attention {

// Thread mapping of a k_block in panel layout `Rows`: each lane has one 16-byte chunk of every panel and iterates over
// rows, GROUP at a time. E: element type; `columns` exist per row, the rest is filled with zeros.
template <class Rows, class E> struct KeyBlock {
  static constexpr int LANES = Rows::WIDTH / 8, GROUP = 32 / LANES, EACH = 16 / sizeof(E), PANEL = LANES * EACH;
  u32 lands;      // shared-memory offset within the block
  int row, left;  // the lane's first row; columns left from its chunk on

  __device__ __forceinline__ KeyBlock(int lane, int columns)
      : lands(Rows::offset(lane / LANES, lane % LANES)), row(lane / LANES), left(columns - lane % LANES * EACH) {}

  static __device__ __forceinline__ int column(int lane) { return lane % LANES * EACH; }

  // line(i) is the address of the lane's chunk of row `row` + i; there(i): whether that row exists.
  template <class Line, class There>
  __device__ __forceinline__ void copy(u32 to, const Line& line, const There& there) const {
    to += lands;
#pragma unroll
    for (int i = 0; i < 16; i += GROUP) {
      const E* from = line(i);
      const u32 at = to ^ Rows::swizzle(i) * 16;  // row bits at or above GROUP flip chunk bits (swizzle)
      const bool exists = there(i);
#pragma unroll
      for (int panel = 0; panel < Rows::CHUNKS / LANES; ++panel)
        copy_async<16>(
            at + panel * Rows::PANEL + i * Rows::PITCH, from + panel * PANEL, exists && panel * PANEL < left ? 16 : 0);
    }
  }
};

}  // namespace attention
