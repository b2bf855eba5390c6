// RoPE of K on its way into the cache: Unrotated (also for V) and Rotated (by position).
#pragma once
#include "cache/request.cuh"
#include "position/angles.cuh"

namespace cache {

// Column of a thread's i-th vector of V columns, where LANES threads share the row.
struct Unrotated {
  static constexpr bool ROTATES = false;
  template <int V, int LANES> static __device__ __forceinline__ u32 column(u32 i, u32 lane, u32) {
    return (i * LANES + lane) * V;
  }
};

// Vectors come in pairs: one from each half of the first 2 * half columns, or adjacent if INTERLEAVED; half % V == 0.
template <class Position_, class Table_, bool TABLES, bool INTERLEAVED> struct Rotated {
  using Position = Position_;
  using Table = Table_;
  static constexpr bool ROTATES = true;
  position::Angles<Table, Position, TABLES> angles;
  float factor;

  template <int V, int LANES> static __device__ __forceinline__ u32 column(u32 i, u32 lane, u32 half) {
    const u32 chunk = (i / 2 * LANES + lane) * V, part = i % 2;
    return !INTERLEAVED && chunk < half ? chunk + part * half : 2 * chunk + part * V;
  }

  // The position of a request's i-th token: by default its index in the cache.
  template <bool RAGGED, class I>
  __device__ __forceinline__ i64 at(const Requests<RAGGED, I>& requests, u32 b, i64 i, i64 length) const {
    return angles.at(RAGGED ? 0 : b, RAGGED ? requests.span(b).begin + i : i, length + i);
  }

  // Whether some token of the request, among those this lane checks, has a position outside the cos/sin tables.
  template <bool RAGGED, int LANES, class I>
  __device__ __forceinline__ bool outside(
      const Requests<RAGGED, I>& requests, u32 b, i64 count, i64 length, u32 lane) const {
    if (!TABLES || count == 0) return false;
    if (!angles.positions) return !angles.known(length) || !angles.known(length + count - 1);
    bool bad = false;
    for (i64 i = lane; i < count; i += LANES) bad |= !angles.known(at(requests, b, i, length));
    return bad;
  }

  // Rotates the heads of a token at position `at`.
  template <int V, int LANES, int HEADS, int ITEMS, class Vector>
  __device__ __forceinline__ void rotate(Vector (&row)[HEADS][ITEMS], i64 at, u32 half, u32 lane) const {
#pragma unroll
    for (int j = 0; j < ITEMS / 2; ++j) {
      const u32 pair = (j * LANES + lane) * V;
      if (pair >= half) continue;
      auto angle = angles.template of<float, V>(at, pair);
      angle.template scale<false>(factor);
#pragma unroll
      for (int h = 0; h < HEADS; ++h) position::rotate<INTERLEAVED>(row[h][2 * j], row[h][2 * j + 1], angle);
    }
  }
};

}  // namespace cache
