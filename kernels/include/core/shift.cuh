// Unaligned 16-byte reads from two aligned 16-byte words.
#pragma once
#include "core/dtype.cuh"

// Bytes [shift, shift + 16) of the two words; shift < 16.
__device__ __forceinline__ uint4 shifted(uint4 low, uint4 high, u32 shift) {
  u32 w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if (shift & 8) {
#pragma unroll
    for (int k = 0; k < 6; ++k) w[k] = w[k + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int k = 0; k < 5; ++k) w[k] = w[k + 1];
  }
  u32 bits = (shift & 3) * 8;
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
      __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}
