// Compact entries for short rows (key and index in as few bits as possible), and their bitonic sort in registers.
#pragma once
#include "sort/entry.cuh"

namespace sort {

// Key above the complement of the index: entries are distinct, a greater one comes first, none is 0. BYTES: of a key.
template <int BYTES> struct Compact {
  using E = u32;  // indices below 65,535
  static constexpr int BITS = 32;
  static __device__ __forceinline__ E of(u32 key, u32 place) { return (key << 16) + (0xffff - place); }
  static __device__ __forceinline__ u32 place(E x) { return ~x & 0xffff; }
  static __device__ __forceinline__ E with(E x, int bit) { return x | 1u << bit; }
};
template <> struct Compact<4> {
  using E = u64;
  static constexpr int BITS = 64;
  static __device__ __forceinline__ E of(u32 key, u32 place) { return entry(key, place); }
  static __device__ __forceinline__ u32 place(E x) { return index_of(x); }
  static __device__ __forceinline__ E with(E x, int bit) { return x | u64(1) << bit; }
};
template <class E> __device__ __forceinline__ E greater(const E& a, const E& b) { return a < b ? b : a; }
template <class E> __device__ __forceinline__ E lesser(const E& a, const E& b) { return a < b ? a : b; }

__device__ __forceinline__ u32 from_lane(u32 x, u32 mask) { return __shfl_xor_sync(~0u, x, mask); }
__device__ __forceinline__ u64 from_lane(u64 x, u32 mask) { return __shfl_xor_sync(~0u, x, mask); }

// Compare-exchange of one thread's registers at a distance of `distance` (MIRRORED: within 2 * distance), greater
// first.
template <int N, class E> __device__ __forceinline__ void exchange_within(E (&x)[N], int distance, bool mirrored) {
#pragma unroll
  for (int r = 0; r < N; ++r) {
    const int other = mirrored ? r ^ (2 * distance - 1) : r ^ distance;
    if (r < other) {
      const E a = x[r];
      x[r] = greater(a, x[other]);
      x[other] = lesser(a, x[other]);
    }
  }
}

// Bitonic sort of LANES * N entries, descending; thread `lane` holds entries lane * N to lane * N + N - 1. LANES: 1 or
// 32. The first step of each merge is mirrored, so that every comparison puts the greater first.
template <int LANES, int N, class E> __device__ __forceinline__ void sort_registers(E (&x)[N], u32 lane) {
#pragma unroll
  for (int size = 2; size <= LANES * N; size *= 2) {
#pragma unroll
    for (int step = size / 2; step >= 1; step /= 2) {
      const bool mirrored = step == size / 2;
      if (step < N) {
        exchange_within(x, step, mirrored);
        continue;
      }
      const u32 mask = mirrored ? size / N - 1 : step / N;
      const bool first = !(lane & (step / N));
      E other[N];
#pragma unroll
      for (int r = 0; r < N; ++r) other[r] = from_lane(x[mirrored ? N - 1 - r : r], mask);
#pragma unroll
      for (int r = 0; r < N; ++r) x[r] = first ? greater(x[r], other[r]) : lesser(x[r], other[r]);
    }
  }
}

}  // namespace sort
