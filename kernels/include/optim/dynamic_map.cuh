// The dynamic maps of 8-bit states (T. Dettmers et al., ICLR 2022): 256 numbers of [-1, 1], or UNSIGNED ones of [0, 1],
// in ascending order. 0 and 1 are among them. The others are the middles of the 2**n equal parts of [0.1, 1] times
// 10**(n - MOST), n from 0 to MOST = 6 and of either sign, or UNSIGNED from 1 to MOST = 7.
#pragma once
#include "core/dtype.cuh"
#include "math/approx.cuh"

namespace optim {

constexpr int CODES = 256;
constexpr float LOG2_10 = 3.3219280948873623f;

template <bool UNSIGNED> __device__ __forceinline__ float number_of(int code) {
  constexpr int MOST = UNSIGNED ? 7 : 6;
  const int place = UNSIGNED ? code + 1 : ::abs(code - 127);  // 2**n and on: the parts of decade n
  if (place <= int(UNSIGNED)) return 0;
  const int decade = 31 - __clz(place);
  if (decade > MOST) return 1;
  double power = 1;
  for (int n = decade; n < MOST; ++n) power *= 10;
  const double part = (double(place - (1 << decade)) + 0.5) / double(1 << decade);
  return float((UNSIGNED || code > 127 ? 1.0 : -1.0) * (0.1 + 0.9 * part) / power);
}

// Both maps, in shared memory. `border` is halfway to the number before, in f32, and belongs to the greater of the two.
struct DynamicMaps {
  float number[2][CODES], border[2][CODES];

  // By a CTA of CODES threads.
  __device__ __forceinline__ void make() {
    const int code = threadIdx.x;
    number[0][code] = number_of<false>(code);
    number[1][code] = number_of<true>(code);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2; ++k) border[k][code] = code ? (number[k][code - 1] + number[k][code]) / 2 : 0;
    __syncthreads();
  }
  // The nearest code: as many as there are borders that x is not below; of NaN 0. What the logarithm says is off by one
  // at most, which two borders right.
  __device__ __forceinline__ u8 nearest(bool is_unsigned, float x) const {
    const float most = is_unsigned ? 7 : 6, size = is_unsigned ? fmaxf(x, 0.0f) : ::fabsf(x);
    float log2_size;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2_size) : "f"(size));
    const float decade = fminf(fmaxf(floorf(log2_size / LOG2_10) + most + 1.0f, is_unsigned), most);
    const float parts = float(1 << int(decade));
    const float part = (size * math::ex2_ftz((most - decade) * LOG2_10) - 0.1f) * (parts / 0.9f);
    const int place = int(parts) + int(floorf(part)), side = x < 0 ? -place : place;
    int code = min(max(is_unsigned ? place - 1 : 127 + side, 0), CODES - 1);
    const float* const borders = border[is_unsigned];
    if (code && x < borders[code]) --code;
    else if (code < CODES - 1 && x >= borders[code + 1]) ++code;
    return u8(x == x ? code : 0);
  }
};

}  // namespace optim
