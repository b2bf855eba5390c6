// NF4 lookup table in shared memory: a byte of two codes gives the pair of values, rounded to T, as one fragment
// register.
//
// Each of the 256 bytes has a line of 256 bytes: its pair, replicated for 32 lanes, one bank per lane, without
// conflicts; then, with DOUBLE, the byte's value in the absmax map, replicated likewise. The address is the byte
// shifted plus the lane: one PRMT.
#pragma once
#include "quantized/nf4.cuh"

namespace nf4 {

constexpr u32 LINE = 256, LINES = 256 * LINE, OF_LINE = LINE / 2;  // bytes; offset of the map's values in a line

// Replicates a 32-bit number over half a line; neighbouring threads start at different banks.
__device__ __forceinline__ void fill(u8* line, u32 number, u32 thread) {
#pragma unroll
  for (u32 i = 0; i < 8; ++i)
    *reinterpret_cast<uint4*>(line + (i + thread) % 8 * 16) = {number, number, number, number};
}

template <class T, bool DOUBLE, u32 THREADS> __device__ __forceinline__ void make_table(u8* pool) {
  for (u32 i = threadIdx.x; i < 256; i += THREADS) {
    fill(pool + i * LINE, round_pair(VALUES[i / 16], VALUES[i % 16], T{}), i);
    if constexpr (DOUBLE) fill(pool + i * LINE + OF_LINE, __float_as_uint(mapped(i)), i);
  }
}

// Table offset of the pair of byte `i` of a word, in the lane's bank.
__device__ __forceinline__ u32 index_of(u32 word, u32 i, u32 lane) {
  return __byte_perm(word, lane * 4, 0x5504 | i << 4);
}

}  // namespace nf4
