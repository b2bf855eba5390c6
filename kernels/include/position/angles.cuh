// Where the angles of rotary embedding come from: positions, times frequencies or looked up in tables.
#pragma once
#include "position/rotate.cuh"

namespace position {

// In elements: strides of positions by (batch, token), and of tables, of `rows`, by (row, column).
struct Places { i64 batch, token, rows, row, column; };

// Without TABLES `cosines` are the frequencies.
template <class Table, class Position, bool TABLES> struct Angles {
  const Places& places;
  const Position* positions;
  const Table *cosines, *sines;

  // A token's position: its own where none are given.
  __device__ __forceinline__ i64 at(i64 batch, i64 token, i64 own) const {
    return positions ? i64(positions[batch * places.batch + token * places.token]) : own;
  }
  __device__ __forceinline__ bool known(i64 at) const { return !TABLES || (at >= 0 && at < places.rows); }
  // Of V pairs from `pair` on, 0 where the position is not known.
  template <class C, int V> __device__ __forceinline__ Rotation<C, V> of(i64 at, i64 pair) const {
    Rotation<C, V> rotation = {};
    if constexpr (TABLES) {
      const i64 from = at * places.row + pair * places.column;
      if (known(at)) rotation.by_table(cosines + from, sines + from);
    } else {
      rotation.by_frequency(at, cosines + pair);
    }
    return rotation;
  }
};

}  // namespace position
