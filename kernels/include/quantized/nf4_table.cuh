// NF4 codes as mma.sync multiplies them: a byte of codes is a pair of values as it stands in a fragment, looked up in shared memory.
//
// A line of 256 bytes for each byte of codes: its pair, rounded to T, for 32 lanes, each of which has a bank of its own; and with
// DOUBLE, behind that, what the map makes of the byte. So a line's address is the byte, moved: one permutation of bytes.
#pragma once
#include "quantized/nf4.cuh"

namespace nf4 {

constexpr u32 LINE = 256, LINES = 256 * LINE, OF_LINE = LINE / 2;  // bytes; where the map's values begin

// A number of 32 bits for each lane of a line: threads next to each other begin with other banks.
__device__ __forceinline__ void fill(u8* line, u32 number, u32 thread) {
#pragma unroll
  for (u32 i = 0; i < 8; ++i) *reinterpret_cast<uint4*>(line + (i + thread) % 8 * 16) = {number, number, number, number};
}

template <class T, bool DOUBLE, u32 THREADS> __device__ __forceinline__ void make_table(u8* pool) {
  for (u32 i = threadIdx.x; i < 256; i += THREADS) {
    fill(pool + i * LINE, round_pair(VALUES[i / 16], VALUES[i % 16], T{}), i);
    if constexpr (DOUBLE) fill(pool + i * LINE + OF_LINE, __float_as_uint(mapped(i)), i);
  }
}

// Where in the table a lane finds the pair of byte `i` of a word.
__device__ __forceinline__ u32 place_of(u32 word, u32 i, u32 lane) { return __byte_perm(word, lane * 4, 0x5504 | i << 4); }

}  // namespace nf4
