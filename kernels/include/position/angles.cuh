// Angles of RoPE: position times frequency, or a lookup in cos/sin tables.
#pragma once
#include "position/rotate.cuh"

namespace position {

// Strides in elements: positions (batch, token); tables with `rows` rows: (row, column).
struct Places { i64 batch, token, rows, row, column; };

// Without TABLES, `cosines` holds the frequencies.
template <class Table, class Position, bool TABLES> struct Angles {
  const Places& places;
  const Position* positions;
  const Table *cosines, *sines;

  // The position of a token: given, or `own` if positions is null.
  __device__ __forceinline__ i64 at(i64 batch, i64 token, i64 own) const {
    return positions ? i64(positions[batch * places.batch + token * places.token]) : own;
  }
  // Whether the tables have a row for the position.
  __device__ __forceinline__ bool known(i64 at) const { return !TABLES || (at >= 0 && at < places.rows); }
  // Rotation of pairs pair .. pair + V - 1; zeros where the position is unknown.
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
