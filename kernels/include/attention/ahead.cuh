// Lines asked for before they are read, so that they come into L2 while the kernel ahead ends. Nothing is read by that: what others
// write meanwhile is seen.
#pragma once
#include "dtype.cuh"

namespace attention {

template <class T> __device__ __forceinline__ void ask(const T* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// ROWS rows of up to COLUMNS columns, by LANES threads: `rows` and `columns` are there, and line(i) says where row i begins.
template <int COLUMNS, int ROWS, int LANES, class Line> __device__ __forceinline__ void ask(int lane, int rows, int columns, const Line& line) {
  constexpr int EACH = 128 / sizeof(*line(0)), LINES = (COLUMNS + EACH - 1) / EACH;
#pragma unroll
  for (int i = lane; i < ROWS * LINES; i += LANES)
    if (i / LINES < rows && i % LINES * EACH < columns) ask(line(i / LINES) + i % LINES * EACH);
}

}  // namespace attention
