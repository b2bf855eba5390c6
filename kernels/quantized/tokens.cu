// Rows of activations as the kernels of quantised weights take them: neighbours along K side by side, on multiples of 16 bytes, filled
// up with zeros, and in the order in which the weights are kept; a number that is no k makes NaN, so that it does not go unseen. A
// thread makes eight elements of a row. No shared memory.
// Bound: bandwidth; in practice the launch.
#include "dtype.cuh"
#include "overlap.cuh"

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
