// Rows of f32, f16 or bf16 to GGUF blocks.
//
// Threads: 8 consecutive values of a row per thread, by accesses of V elements; 4 threads per block of 32, a warp per
//          block of 256. Values past the row's end and non-finite values count as 0.
// Shared:  none.   Bound: DRAM, values read once; for 16-bit types issue is close, at about 20 instructions per value.
#include "core/index.cuh"
#include "ptx/overlap.cuh"
#include "quantized/gguf/quantize.cuh"

template <class Make, class T, int V, int ALIGN, int THREADS, class I>
__global__ void __launch_bounds__(THREADS)
gguf_quantize(u8* out, const T* from, typename DivisorOf<I>::type blocks_of_row, I blocks, u32 columns) {
  overlap::wait();
  const I index = I(blockIdx.x) * (THREADS / Make::LANES) + threadIdx.x / Make::LANES;
  const bool stores = index < blocks;
  const I row = stores ? blocks_of_row.divide(index) : 0;
  const u32 first = u32((stores ? index : 0) - row * blocks_of_row.divisor) * (Make::LANES * 8) +
      threadIdx.x % Make::LANES * 8;
  from += i64(row) * columns + first;

  // 1. Load eight values, non-finite ones as 0
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; i += V) {
    Vec<T, V> some{};
    if (stores && first + i < columns) some = *reinterpret_cast<const Vec<T, V>*>(from + i);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float each = convert<float>(some.at[k]);
      x[i + k] = fabsf(each) < __uint_as_float(0x7f800000) ? each : 0.0f;
    }
  }
  // 2. Quantize and store the block
  Make::template make<ALIGN>(out + i64(index) * Make::BYTES, x, stores);
}
