// cache[b, ..., (position[b] + t) % length, ...] = source[b, ..., t, ...]: a circular cache of `length` places.
//
// append_wrapped: PARTS (source, cache) pairs in WIDTH-byte words; the axes of a word are sequence, token, the rest.
//                 A negative position writes nothing of its sequence and sets its status to 1.
// Threads:        one word per thread; the position is read on the device (for CUDA graphs).
// Shared:         none.   Bound: memory latency for small copies, DRAM bandwidth for large ones.
#include "core/index.cuh"

template <class I, class Position, int R, int WIDTH, int THREADS, int PARTS>
__global__ void __launch_bounds__(THREADS) append_wrapped(u8* dest0, u8* dest1, const u8* source0, const u8* source1,
    const Position* position, i32* status, I sequences, u64 length, i64 dest_step, I count,
    typename DivisorOf<I>::type words_per_sequence, typename DivisorOf<I>::type words_per_token, Dims<I, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  const I i = I(blockIdx.x) * THREADS + threadIdx.x;
  if (count == 0) {  // no tokens: only the status
    for (I s = i; status && s < sequences; s += I(gridDim.x) * THREADS) status[s] = i64(position[s]) >= 0 ? 0 : 1;
    return;
  }
  if (i >= count) return;
  const u8* source = PARTS == 2 && blockIdx.y ? source1 : source0;
  u8* dest = PARTS == 2 && blockIdx.y ? dest1 : dest0;
  const I sequence = words_per_sequence.divide(i);
  const I within = i - sequence * words_per_sequence.divisor;
  const i64 at = i64(position[sequence]);
  i64 offset[2] = {0, 0};
  dims.locate(i, offset);
  const T value = *reinterpret_cast<const T*>(source + offset[1]);
  if (status && blockIdx.y == 0 && within == 0) status[sequence] = at >= 0 ? 0 : 1;
  if (at < 0) return;
  u64 place = u64(at) % length + u64(words_per_token.divide(within));  // both terms are less than `length`
  if (place >= length) place -= length;
  *reinterpret_cast<T*>(dest + offset[0] + i64(place) * dest_step) = value;
}
