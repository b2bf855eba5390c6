// An index along an axis of `extent`, by the mode for indices out of range.
#pragma once
#include "core/dtype.cuh"

constexpr int RAISE = 0, CLIP = 1, WRAP = 2, STRICT = 3;

// An index as one of [0, extent); negative if out of range. RAISE: negative indices count from the end; CLIP: nearest;
// WRAP: modulo; STRICT: negative indices are out of range. Any other mode is RAISE, of which take.cu reports nothing.
template <int MODE> __device__ __forceinline__ i64 within(i64 at, i64 extent) {
  if constexpr (MODE == CLIP) return at < 0 ? 0 : at < extent ? at : extent - 1;
  if (at >= 0 && at < extent) return at;
  if constexpr (MODE == STRICT) return -1;
  if constexpr (MODE == WRAP) {
    const i64 rest = at % extent;
    return rest < 0 ? rest + extent : rest;
  }
  return at < 0 && at >= -extent ? at + extent : -1;
}
