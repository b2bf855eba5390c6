// Appends whose position is read on the device, so that a captured CUDA graph can follow a moving cache.
//
// append_runs: `parts` (source, cache) pairs, each a [sequences, heads, tokens, head_dim] copy in WIDTH-byte words. A
// sequence's position is checked against [0, limit - tokens]; outside, nothing of it is written and status says 1. The
// source is loaded before the position is tested, so that the two latencies overlap. UNROLL words a thread.
// No shared memory. Bound: memory latency when small, bandwidth when large.
#include "index.cuh"

template <int BYTES> struct Word;
template <> struct Word<1> { using type = u8; };
template <> struct Word<2> { using type = u16; };
template <> struct Word<4> { using type = u32; };
template <> struct Word<8> { using type = u64; };
template <> struct Word<16> { using type = uint4; };

// Loads that stay where they are written: the compiler would otherwise sink them behind the test of the position, and the
// two latencies would add up.
__device__ __forceinline__ u8 load_now(const u8* p) { u16 x; asm volatile("ld.global.u8 %0, [%1];" : "=h"(x) : "l"(p)); return u8(x); }
__device__ __forceinline__ u16 load_now(const u16* p) { u16 x; asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(p)); return x; }
__device__ __forceinline__ u32 load_now(const u32* p) { u32 x; asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p)); return x; }
__device__ __forceinline__ u64 load_now(const u64* p) { u64 x; asm volatile("ld.global.u64 %0, [%1];" : "=l"(x) : "l"(p)); return x; }
__device__ __forceinline__ uint4 load_now(const uint4* p) {
  uint4 x;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
  return x;
}

// The operand that moves: `count` words laid out by R axes, the first of which is the sequence.
template <class I, class Position, int R, int WIDTH, int THREADS, int UNROLL, int PARTS>
__global__ void __launch_bounds__(THREADS)
append_runs(u8* dest0, u8* dest1, const u8* source0, const u8* source1, const Position* position, i32* status, I sequences,
            i64 limit, i64 dest_step, I count, typename DivisorOf<I>::type words_per_sequence, Dims<I, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  const u8* source = PARTS == 2 && blockIdx.y ? source1 : source0;
  u8* dest = PARTS == 2 && blockIdx.y ? dest1 : dest0;
  I base = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  i64 at[UNROLL], to[UNROLL];
  T value[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (base + u * THREADS < count) at[u] = i64(position[words_per_sequence.divide(base + u * THREADS)]);
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (base + u * THREADS < count) {
      i64 offset[2] = {0, 0};
      dims.locate(base + u * THREADS, offset);
      to[u] = offset[0];
      value[u] = load_now(reinterpret_cast<const T*>(source + offset[1]));
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (base + u * THREADS < count && at[u] >= 0 && at[u] <= limit)
      *reinterpret_cast<T*>(dest + to[u] + at[u] * dest_step) = value[u];
  if (status && blockIdx.y == 0) {
    for (I s = I(blockIdx.x) * THREADS + threadIdx.x; s < sequences; s += I(gridDim.x) * THREADS) {
      i64 first = i64(position[s]);
      status[s] = first >= 0 && first <= limit ? 0 : 1;
    }
  }
}
