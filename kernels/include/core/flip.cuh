// Transposes blocks of elements in registers.
#pragma once
#include "core/dtype.cuh"

// Transposes N vectors of N elements. 8- and 16-bit elements are permuted with PRMT, so that they are never unpacked.
template <class T, int N> __device__ __forceinline__ void flip(Vec<T, N> (&rows)[N]) {
  Vec<T, N> transposed[N];
  if constexpr (sizeof(T) == 2 && N > 1) {
    u32 from[N][N / 2], to[N][N / 2];
    memcpy(from, rows, sizeof(from));
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N / 2; ++j)
        to[i][j] = __byte_perm(from[2 * j][i / 2], from[2 * j + 1][i / 2], i % 2 ? 0x7632 : 0x5410);
    memcpy(transposed, to, sizeof(to));
  } else if constexpr (sizeof(T) == 1 && N % 4 == 0) {
    u32 from[N][N / 4], to[N][N / 4];
    memcpy(from, rows, sizeof(from));
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
#pragma unroll
      for (int j = 0; j < N / 4; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // columns 0 and 1 of the 4 x 4, then 2 and 3
          const u32 top = __byte_perm(from[4 * i][j], from[4 * i + 1][j], half ? 0x7362 : 0x5140);
          const u32 bottom = __byte_perm(from[4 * i + 2][j], from[4 * i + 3][j], half ? 0x7362 : 0x5140);
          to[4 * j + 2 * half][i] = __byte_perm(top, bottom, 0x5410);
          to[4 * j + 2 * half + 1][i] = __byte_perm(top, bottom, 0x7632);
        }
    memcpy(transposed, to, sizeof(to));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) transposed[i].at[j] = rows[j].at[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) rows[i] = transposed[i];
}
