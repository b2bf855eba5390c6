// to[m, i] = x[m, order[i]]: activation rows for the quantized products.
//
// Output:  contiguous along K, 16-byte aligned rows, zero-padded to `pitch`. An invalid index gives NaN, so it cannot
//          stay unnoticed.
// Threads: eight elements of a row per thread.
// Shared:  none.   Bound: DRAM bandwidth; in practice launch latency.
#include "core/dtype.cuh"
#include "ptx/overlap.cuh"

constexpr int THREADS = 128;

template <class T>
__global__ void __launch_bounds__(THREADS)
stage_tokens(const T* x, T* to, const i32* order, i64 row, i64 col, u32 K, u32 pitch) {
  overlap::wait();
  overlap::release();
  const u32 first = (blockIdx.x * THREADS + threadIdx.x) * 8;
  if (first >= pitch) return;
  Vec<T, 8> made;
#pragma unroll
  for (u32 e = 0; e < 8; ++e) {
    const u32 place = first + e, k = order && place < K ? u32(order[place]) : place;
    made.at[e] = k < K ? x[blockIdx.y * row + i64(k) * col] : place < K ? T{u16(0x7fff)} : T{};
  }
  *reinterpret_cast<Vec<T, 8>*>(to + u64(blockIdx.y) * pitch + first) = made;
}
