// dest[row, i] = source[row, i] for 4-bit elements.
//
// Threads: one destination byte per thread. At a row's ends the byte is read, one nibble is replaced, and it is written
//          back, so a neighbour outside the window keeps its bits. Rows start on bytes: no two threads share a byte.
// Strides: strides and phases count nibbles; the source may have any stride, including zero and negative.
// Shared:  none.   Bound: instruction issue.
#include "core/index.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ u32 nibble(const u8* base, i64 element) {
  return (base[element >> 1] >> ((element & 1) * 4)) & 15u;
}

template <class I, int R>
__global__ void __launch_bounds__(THREADS)
copy_nibbles(u8* dest, const u8* source, i64 extent, i64 source_step, i64 dest_phase, i64 source_phase, I count,
             typename DivisorOf<I>::type bytes_per_row, Dims<I, R, 2> dims) {
  I i = I(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  I row = bytes_per_row.divide(i);
  i64 offset[2] = {0, 0};
  dims.locate(row, offset);  // in nibbles; every destination row starts on a byte
  i64 first = i64(i - row * bytes_per_row.divisor) * 2 - dest_phase;  // the element in this byte's low nibble
  u8* to = dest + ((offset[0] + dest_phase + first) >> 1);
  bool low = first >= 0, high = first + 1 < extent;
  u32 value = 0, keep = 0;
  i64 from = offset[1] + source_phase + first * source_step;
  if (low) value = nibble(source, from); else keep |= 0x0f;
  if (high) value |= nibble(source, from + source_step) << 4; else keep |= 0xf0;
  if (keep) value |= *to & keep;
  *to = u8(value);
}
