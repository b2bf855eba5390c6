// Scores by FMA, of any type: 32 own rows by 32 rows of the other side, 8 warps of four own rows each.
#pragma once
#include "core/dtype.cuh"

namespace attention {

// Rows of an operand; out-of-range elements read as zero.
template <class T> struct Lines {
  const T* from;
  i64 step;
  int rows, columns;
  template <class C> __device__ __forceinline__ C at(int row, int column) const {
    return row < rows && column < columns ? convert<C>(from[row * step + column]) : C(0);
  }
};

// Shared memory: 32 columns of the other side's rows (staged) and of the own rows (owned).
template <class C> struct PlainScores {
  static constexpr int ROWS = 4, WARPS = 8, TILE = ROWS * WARPS, STEP = 32;
  C staged[TILE][STEP + 1];
  Vec<C, ROWS> owned[STEP][WARPS];

  // score[r] += dot(own row r, the lane's other row) over own.columns
  template <class T>
  __device__ __forceinline__ void multiply(C (&score)[ROWS], const Lines<T>& own, int own_first, const Lines<T>& other,
                                           int other_first) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int step = 0; step < own.columns; step += STEP) {
      __syncthreads();
      for (int i = warp; i < TILE; i += WARPS) {
        staged[i][lane] = other.template at<C>(other_first + i, step + lane);
        owned[lane][i / ROWS].at[i % ROWS] = own.template at<C>(own_first + i, step + lane);
      }
      __syncthreads();
#pragma unroll 8
      for (int k = 0; k < STEP; ++k) {
        const C x = staged[lane][k];
        const Vec<C, ROWS> y = owned[k][warp];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) score[r] += y.at[r] * x;
      }
    }
  }
};

}  // namespace attention
