// TMA boxes of one head of an operand, as panels of 64 columns.
#pragma once
#include "attention/problem.cuh"
#include "ptx/tma.cuh"

namespace attention {

constexpr u32 PANEL_ROW = 128;  // bytes of a row of a panel: 64 columns

// `row` is the head's first; a batch or head axis that is not stepped has extent 1.
struct HeadBoxes {
  int row;
  BatchIndex place;
  template <class S>
  __device__ __forceinline__ HeadBoxes(const S& strides, int row, u32 batch, u32 head)
      : row(row), place{{0, strides.batch ? batch : 0, strides.head ? head : 0}} {}
  // Loads ROWS rows from `first` on into panels at `to`; `full` expects them.
  template <int ROWS, int COLUMNS> __device__ __forceinline__ void load(
      u32 to, const TensorMap& map, int first, u32 full) const {
#pragma unroll
    for (int x = 0; x < COLUMNS; x += 64)
      tma::load<true, false>(to + x / 64 * (ROWS * PANEL_ROW), map, x, row + first, place, full, 0);
  }
};

}  // namespace attention
