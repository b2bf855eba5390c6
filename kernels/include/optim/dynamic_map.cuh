// The dynamic maps of 8-bit states (T. Dettmers et al., ICLR 2022): 256 numbers of [-1, 1], or UNSIGNED ones of [0, 1],
// in ascending order. 0 and 1 are among them. The others are the middles of the 2**n equal parts of [0.1, 1] times
// 10**(n - MOST), n from 0 to MOST = 6 and of either sign, or UNSIGNED from 1 to MOST = 7.
#pragma once
#include "core/dtype.cuh"

namespace optim {

constexpr int CODES = 256;

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
  // The nearest code: the borders that x is not below are counted. Of NaN it is 0.
  __device__ __forceinline__ u8 nearest(bool is_unsigned, float x) const {
    int code = 0;
#pragma unroll
    for (int step = CODES / 2; step; step /= 2) code += x >= border[is_unsigned][code + step] ? step : 0;
    return u8(code);
  }
};

}  // namespace optim
