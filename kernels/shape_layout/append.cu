// cache[..., position + i, ...] = source[..., i, ...], the position read on the device (for CUDA graphs).
//
// append_runs: PARTS (source, cache) pairs, each a [sequences, heads, tokens, head_dim] copy in WIDTH-byte words. A
//              position outside [0, limit] writes nothing of its sequence and sets its status to 1.
// Threads:     UNROLL words per thread; position and source are loaded concurrently, stores are predicated.
// Shared:      none.   Bound: memory latency for small copies, DRAM bandwidth for large ones.
#include "core/index.cuh"

// Predicated store. A branch on a value just loaded stalls instruction fetch until the load completes: 0.15 us here.
__device__ __forceinline__ void store_if(bool yes, u8* p, u8 x) {
  asm volatile("{.reg .pred q; setp.ne.u32 q, %0, 0; @q st.global.u8 [%1], %2;}" ::"r"(u32(yes)), "l"(p), "h"(u16(x)));
}
__device__ __forceinline__ void store_if(bool yes, u16* p, u16 x) {
  asm volatile("{.reg .pred q; setp.ne.u32 q, %0, 0; @q st.global.u16 [%1], %2;}" ::"r"(u32(yes)), "l"(p), "h"(x));
}
__device__ __forceinline__ void store_if(bool yes, u32* p, u32 x) {
  asm volatile("{.reg .pred q; setp.ne.u32 q, %0, 0; @q st.global.u32 [%1], %2;}" ::"r"(u32(yes)), "l"(p), "r"(x));
}
__device__ __forceinline__ void store_if(bool yes, u64* p, u64 x) {
  asm volatile("{.reg .pred q; setp.ne.u32 q, %0, 0; @q st.global.u64 [%1], %2;}" ::"r"(u32(yes)), "l"(p), "l"(x));
}
__device__ __forceinline__ void store_if(bool yes, uint4* p, uint4 x) {
  asm volatile("{.reg .pred q; setp.ne.u32 q, %0, 0; @q st.global.v4.u32 [%1], {%2, %3, %4, %5};}" ::"r"(u32(yes)),
      "l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w));
}

// Copies `count` words with R axes per pair; with MANY the first axis is the sequence.
template <class I, class Position, int R, int WIDTH, int THREADS, int UNROLL, int PARTS, bool MANY>
__global__ void __launch_bounds__(THREADS) append_runs(u8* dest0, u8* dest1, const u8* source0, const u8* source1,
    const Position* position, i32* status, I sequences, i64 limit, i64 dest_step, I count,
    typename DivisorOf<I>::type words_per_sequence, Dims<I, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  if (count == 0) {  // no tokens: only the status
    for (I s = I(blockIdx.x) * THREADS + threadIdx.x; status && s < sequences; s += I(gridDim.x) * THREADS)
      status[s] = i64(position[s]) >= 0 && i64(position[s]) <= limit ? 0 : 1;
    return;
  }
  const u8* source = PARTS == 2 && blockIdx.y ? source1 : source0;
  u8* dest = PARTS == 2 && blockIdx.y ? dest1 : dest0;
  const I first = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  // 1. Load positions and source words
  I sequence[UNROLL];
  i64 at[UNROLL], to[UNROLL];
  T value[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I i = first + u * THREADS < count ? first + u * THREADS : count - 1;  // excess threads repeat the last word
    i64 offset[2] = {0, 0};
    sequence[u] = MANY ? words_per_sequence.divide(i) : 0;
    at[u] = i64(position[sequence[u]]);
    dims.locate(i, offset);
    to[u] = offset[0];
    value[u] = *reinterpret_cast<const T*>(source + offset[1]);
  }
  // 2. Check positions, store words and status
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const bool fits = at[u] >= 0 && at[u] <= limit;
    store_if(fits, reinterpret_cast<T*>(dest + to[u] + at[u] * dest_step), value[u]);
    const bool reports = status && blockIdx.y == 0 &&
        first + u * THREADS == (MANY ? sequence[u] * words_per_sequence.divisor : 0);
    store_if(reports, reinterpret_cast<u32*>(status + sequence[u]), fits ? 0u : 1u);
  }
}
