// Keeps the loads of a resident row in flight together. Otherwise the compilers move what is computed from a vector
// into the branch that loads it, or the load down to there, and a thread waits for each before it loads the next.
#pragma once
#include "rows/row.cuh"

namespace rows {

// What is computed from `pack` is computed behind this point.
template <class T, int V> __device__ __forceinline__ void hold(Pack<T, V>& pack) {
  constexpr int WORDS = V * int(sizeof(T)) / 4;
  if constexpr (WORDS > 0) {
    union Both { Pack<T, V> pack; u32 word[WORDS]; __device__ Both() {} } both;
    both.pack = pack;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) asm volatile("" : "+r"(both.word[i]));
    pack = both.pack;
  }
}

// The loaded `parts` of each vector of a resident row. The barrier is no instruction: no load is moved behind it.
template <bool RESIDENT, class Loaded, int V, int ITEMS, int LANES, class I, class... Packs>
__device__ __forceinline__ void hold(Row<RESIDENT, Loaded, V, ITEMS, LANES, I>& line, Packs Loaded::*... parts) {
  if constexpr (RESIDENT) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) (hold(line.item[i].*parts), ...);
    __syncwarp();
  }
}

}  // namespace rows
