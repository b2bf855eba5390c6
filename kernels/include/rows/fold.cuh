// state = join(state, load(i)) over i = first, first + step, ... below end, in this order, FLIGHT loads in flight.
// A plain loop waits for each load where the compiler cannot count its turns.
#pragma once
#include "core/dtype.cuh"

namespace rows {

// join(state, none) is `state`.
template <int FLIGHT, class State, class Load, class Join>
__device__ __forceinline__ State fold(u32 first, u32 end, u32 step, State none, const Load& load, const Join& join) {
  State state = none;
  for (u32 base = first; base < end; base += FLIGHT * step) {
    State value[FLIGHT];
#pragma unroll
    for (int i = 0; i < FLIGHT; ++i) {
      value[i] = none;
      if (base + i * step < end) value[i] = load(base + i * step);
    }
#pragma unroll
    for (int i = 0; i < FLIGHT; ++i) state = join(state, value[i]);
  }
  return state;
}

}  // namespace rows
