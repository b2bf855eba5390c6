// sums[line] = sum of x[line, k] over k, for zero points.
//
// Threads: one warp per line, accesses of BYTES, dp4a with ones.
// Shared:  none.   Bound: DRAM bandwidth.
#include "core/dtype.cuh"
#include "ptx/overlap.cuh"

__device__ __forceinline__ int sum_of_four(u32 word, int sum, i8) { return __dp4a(int(word), 0x01010101, sum); }
__device__ __forceinline__ int sum_of_four(u32 word, int sum, u8) { return int(__dp4a(word, 0x01010101u, u32(sum))); }

template <class T, int BYTES, int THREADS>
__global__ void __launch_bounds__(THREADS) line_sums(const T* x, i64 step, u32 lines, u32 k, int* sums) {
  const u32 line = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  overlap::wait();
  if (line >= lines) return;
  const T* from = x + line * step;
  // 1. Sum vectors, then the tail
  int sum = 0;
#pragma unroll 4
  for (u32 at = lane * BYTES; at + BYTES <= k; at += 32 * BYTES) {
    const Vec<T, BYTES> part = *reinterpret_cast<const Vec<T, BYTES>*>(from + at);
    if constexpr (BYTES < 4) {
      sum += int(part.at[0]);
    } else {
#pragma unroll
      for (int i = 0; i < BYTES / 4; ++i) sum = sum_of_four(reinterpret_cast<const u32*>(part.at)[i], sum, T(0));
    }
  }
  for (u32 at = k - k % BYTES + lane; at < k; at += 32) sum += int(from[at]);
  // 2. Reduce over the warp
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane == 0) sums[line] = sum;
}
