// 16-byte chunks at any address, and their elements in reverse.
#pragma once
#include "core/shift.cuh"

constexpr int CHUNK = 16;

// Loads 16 bytes from any address by aligned words; false, and nothing is read, where these are not inside [low, high).
__device__ __forceinline__ bool load_chunk(uint4& value, u64 from, u64 low, u64 high) {
  const u64 first = from & ~u64(CHUNK - 1);
  const u32 shift = u32(from & (CHUNK - 1));
  if (first < low || first + (shift ? 2 * CHUNK : CHUNK) > high) return false;
  const uint4* words = reinterpret_cast<const uint4*>(first);
  value = words[0];
  if (shift) value = shifted(value, words[1], shift);
  return true;
}

// The 16 / WIDTH elements of a chunk in reverse order.
template <int WIDTH> __device__ __forceinline__ uint4 reversed(uint4 x) {
  if constexpr (WIDTH == 8) return make_uint4(x.z, x.w, x.x, x.y);
  if constexpr (WIDTH == 4) return make_uint4(x.w, x.z, x.y, x.x);
  constexpr u32 ORDER = WIDTH == 2 ? 0x1032 : 0x0123;
  return make_uint4(__byte_perm(x.w, 0, ORDER), __byte_perm(x.z, 0, ORDER), __byte_perm(x.y, 0, ORDER),
      __byte_perm(x.x, 0, ORDER));
}
