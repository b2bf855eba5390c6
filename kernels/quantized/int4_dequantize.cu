// out[k, n] = (code - zero) scale for int4 weights in any layout, in f32, rounded once.
//
// dequantize:       eight consecutive k's of a column per thread; vector stores if out is contiguous along k (WIDE).
//                   ORDER, the meaning of `order`: none, the group of each k (act-order; an invalid group gives NaN),
//                   or the output k of each weight k (an invalid k is not stored).
// dequantize_tiles: tiled layout; 16 bytes per thread, four runs of eight k's, about 5 instructions per weight.
// Shared:           none.   Bound: DRAM, writing the result.
#include "core/index.cuh"
#include "quantized/int4_layout.cuh"

constexpr int THREADS = 256;
enum Order { SEQUENTIAL, BY_GROUP, BY_INDEX };

template <class Layout, class T, class S, Order ORDER, bool WIDE, class I>
__global__ void __launch_bounds__(THREADS) dequantize(T* out, const typename Layout::Word* codes, const S* scales,
    const void* zeros, const i32* order, i64 row, i64 col, u32 K, u32 N, u32 pitch, Divisor32 group_size, u32 groups,
    typename DivisorOf<I>::type along, I eights) {
  const I i = I(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= eights) return;
  const u32 n = u32(along.divide(i)), k8 = u32(i - I(n) * along.divisor), own = group_size.divide(k8 * 8);
  const auto factor = [&](u32 group) { return convert<float>(scales[u64(group) * pitch + n]); };
  const auto zero = [&](u32 group) { return float(nibbles::zero_at<Layout>(zeros, group, n, N)); };
  // 1. Decode eight weights
  float x[8];
  const float shared_factor = ORDER == BY_GROUP ? 0 : factor(own);
  const float shared_zero = ORDER == BY_GROUP ? 0 : zero(own);
#pragma unroll
  for (u32 e = 0; e < 8; ++e) {
    const u32 k = k8 * 8 | e;
    u32 code;
    if constexpr (WIDE) code = nibbles::code_inside<Layout>(codes, k, n, K, N);
    else code = nibbles::code_at<Layout>(codes, k, n, K, N);
    if constexpr (ORDER == BY_GROUP) {
      const u32 group = k < K ? u32(order[k]) : 0;
      x[e] = group < groups ? (float(code) - zero(group)) * factor(group) : __int_as_float(0x7fc00000);
    } else {
      x[e] = (float(code) - shared_zero) * shared_factor;
    }
  }
  // 2. Store, as vectors or one by one
  if constexpr (WIDE) {
    T* to = out + n * col + k8 * 8;
    if constexpr (sizeof(T) == 2) {
      *reinterpret_cast<Vec<T, 8>*>(to) = round_to<T, 8>(x);
    } else {
      *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
      *reinterpret_cast<float4*>(to + 4) = {x[4], x[5], x[6], x[7]};
    }
  } else {
#pragma unroll
    for (u32 e = 0; e < 8; ++e)
      if (const u32 k = k8 * 8 | e; k < K)
        if (const u32 to = ORDER == BY_INDEX ? u32(order[k]) : k; to < K) out[to * row + n * col] = convert<T>(x[e]);
  }
}

// Tiled layout to 16-bit floats contiguous along k. K is a multiple of 8, and a group holds whole runs of 8. `blocks`:
// tiles along K.
template <class T, class S>
__global__ void __launch_bounds__(THREADS) dequantize_tiles(T* out, const uint4* codes, const S* scales,
    const u8* zeros, i64 col, u32 K, u32 N, u32 pitch, Divisor32 group_size, Divisor32 blocks, u32 lanes) {
  const u32 i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= lanes) return;
  const u32 tile = i / 32, lane = i % 32, strip = blocks.divide(tile), first = strip * 16 + lane / 4 * 2;
  const uint4 q = codes[i];
#pragma unroll
  for (u32 half = 0; half < 2; ++half) {
    const u32 k = (tile - strip * blocks.divisor) * 64 + half * 32 + lane % 4 * 8,
              words[2] = {half ? q.z : q.x, half ? q.w : q.y};
    if (k >= K) break;
    const u64 at = u64(group_size.divide(k)) * pitch + first;
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
      if (first + row >= N) break;
      // 2^23 + code by OR into the mantissa: no conversion
      const float factor = convert<float>(scales[at + row]), base = 8388608.0f + (zeros ? zeros[at + row] : 8);
      float x[8];
#pragma unroll
      for (u32 e = 0; e < 8; ++e)
        x[e] = (__uint_as_float(0x4b000000 | (words[e / 4] >> (row + e % 4 / 2 * 2 + e % 2 * 4) * 4 & 15)) - base) *
            factor;
      *reinterpret_cast<Vec<T, 8>*>(out + (first + row) * col + k) = round_to<T, 8>(x);
    }
  }
}
