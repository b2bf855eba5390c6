// Repacks int4 weights from one layout to another, or quantizes a float matrix; once per weight.
//
// repack, quantise: one word of the new layout per thread, gathered from eight codes (elements); `gather` maps a k of
//                   the new layout to a k of the old one.
// repack_groups:    scales and zero points of eight columns of a group per thread.
// scales_of:        one column of a group per thread, reduced serially.
// Shared:           none.   Bound: L2 and DRAM bandwidth.
#include "math/extrema.cuh"
#include "quantized/int4_layout.cuh"

constexpr int THREADS = 256;

template <class From, class To>
__global__ void __launch_bounds__(THREADS)
    repack(const typename From::Word* from, typename To::Word* to, const i32* gather, u32 K, u32 N, u64 words) {
  const u64 word = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (word >= words) return;
  u32 made = 0;
#pragma unroll
  for (u32 i = 0; i < To::PER; ++i) {
    const nibbles::Place at = To::place(word, i, K, N);
    const u32 k = gather && at.k < K ? min(u32(gather[at.k]), K - 1) : at.k;
    made |= (nibbles::code_at<From>(from, k, at.n, K, N) ^ To::FLIP) << 4 * i;
  }
  to[word] = typename To::Word(made);
}

template <class From, class To, class S>
__global__ void __launch_bounds__(THREADS) repack_groups(const S* scales, const void* zeros, S* to_scales,
    typename nibbles::Zeros<To>::Word* to_zeros, u32 N, u32 from_pitch, u32 to_pitch) {
  using Z = nibbles::Zeros<To>;
  const u32 group = blockIdx.y, first = (blockIdx.x * THREADS + threadIdx.x) * 8;
  if (first >= to_pitch) return;
  u32 word = 0;
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const u32 n = first + i;
    if (n < to_pitch) to_scales[u64(group) * to_pitch + n] = n < N ? scales[u64(group) * from_pitch + n] : S{};
    if (!to_zeros) continue;
    const u32 zero = n < N ? nibbles::zero_at<From>(zeros, group, n, N) : 8;
    if constexpr (Z::PER == 8) word |= (zero - Z::LESS & 15) << Z::place(i) * 4;
    else if (n < to_pitch) to_zeros[u64(group) * to_pitch + n] = u8(zero);
  }
  if constexpr (Z::PER == 8)
    if (to_zeros) to_zeros[u64(group) * Z::pitch(N) + first / 8] = word;
}

// Largest finite value of a 16-bit type.
template <class S> constexpr float LARGEST = Same<S, f16>::value ? 65504.0f : 3.3895313892515355e38f;

// A group's scale, finite and not 0, and zero point. Symmetric: max |w| / 7. ZEROS: (max - min) / 15, and the code of
// 0, at least `least`.
template <class T, class S, bool ZEROS>
__global__ void __launch_bounds__(THREADS)
scales_of(const T* w, S* scales, u8* zeros, i64 row, i64 col, u32 K, u32 N, u32 pitch, u32 group_size, u32 least) {
  const u32 n = blockIdx.x * THREADS + threadIdx.x, group = blockIdx.y, end = min(K, (group + 1) * group_size);
  if (n >= pitch) return;
  float low = 0, high = 0;
  if (n < N)
    for (u32 k = group * group_size; k < end; ++k) {
      const float x = convert<float>(w[k * row + n * col]);
      low = fminf(low, x);
      high = fmaxf(high, x);
    }
  const float wide = ZEROS ? __fdiv_rn(high - low, 15.0f) : __fdiv_rn(fmaxf(high, -low), 7.0f);
  S scale = convert<S>(fminf(wide, LARGEST<S>));
  if (convert<float>(scale) == 0) scale = convert<S>(1.0f);
  const u64 at = u64(group) * pitch + n;
  scales[at] = n < N ? scale : S{};
  if constexpr (ZEROS)
    zeros[at] = n < N ? u8(fminf(fmaxf(rintf(__fdiv_rn(-low, convert<float>(scale))), float(least)), 15.0f)) : 8;
}

// Quantizes a matrix to the tiled layout.
template <class T, class S, bool ZEROS>
__global__ void __launch_bounds__(THREADS) quantize(const T* w, const S* scales, const u8* zeros, u32* to, i64 row,
    i64 col, u32 K, u32 N, u32 pitch, u32 group_size, u64 words) {
  const u64 word = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (word >= words) return;
  u32 made = 0;
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    const nibbles::Place at = nibbles::Tiled::place(word, i, K, N);
    float code = 8;
    if (at.k < K && at.n < N) {
      const u64 place = u64(at.k / group_size) * pitch + at.n;
      const float zero = ZEROS ? zeros[place] : 8;
      code = rintf(__fdiv_rn(convert<float>(w[at.k * row + at.n * col]), convert<float>(scales[place]))) + zero;
    }
    made |= u32(fminf(fmaxf(code, 0.0f), 15.0f)) << 4 * i;
  }
  to[word] = made;
}
