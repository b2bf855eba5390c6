// Strides of a batch of matrices, in elements, with up to three batch axes.
#pragma once
#include "core/dtype.cuh"

struct BatchIndex { u32 at[3]; };

// The batch index of an operand: 1 in `batched` keeps an axis, 0 broadcasts it.
__device__ __forceinline__ BatchIndex only(const BatchIndex& b, const u32 (&batched)[3]) {
  return {{b.at[0] * batched[0], b.at[1] * batched[1], b.at[2] * batched[2]}};
}

// The two inner batch extents; the outer extent follows from the index.
struct Batch {
  u32 extent1, extent2;
  __device__ __forceinline__ BatchIndex locate(u32 i) const {
    u32 outer = i / extent2, inner = i - outer * extent2;
    return {{outer / extent1, outer % extent1, inner}};
  }
};

// Strides of one operand: row, column, batch axes.
struct OperandStrides {
  i64 row, col, batch[3];
  __device__ __forceinline__ i64 batch_offset(const BatchIndex& b) const {
    return b.at[0] * batch[0] + b.at[1] * batch[1] + b.at[2] * batch[2];
  }
  __device__ __forceinline__ i64 at(i64 m, i64 n) const { return m * row + n * col; }
};
