// 8-bit codes of a row's values, which a functor computes: one scale per row, or per GROUP adjacent columns.
//
// Row:    two passes: max|y| (values of resident rows stay in registers), then the codes.
// Group:  one pass: GROUP / V adjacent lanes hold a group's columns and reduce its max|y| by shuffles.
// Codes:  scale, rounding and saturation are those of quantize_int8 and quantize_fp8 (rows/quantize.cuh).
#pragma once
#include "norm/gather.cuh"
#include "rows/cluster_reduce.cuh"
#include "rows/quantize.cuh"

namespace norms {

// Max over WIDTH adjacent lanes, a power of two; these lanes alone take part.
template <int WIDTH> __device__ __forceinline__ float segment_max(float x) {
  const u32 lane = threadIdx.x % 32;
  const u32 members = WIDTH == 32 ? ~0u : ((1u << WIDTH % 32) - 1) << lane / WIDTH * WIDTH;
#pragma unroll
  for (int mask = 1; mask < WIDTH; mask *= 2) x = fmaxf(x, __shfl_xor_sync(members, x, mask));
  return x;
}

// Codes of one value, or of two: e4m3 by the conversion of pairs where there is one (sm_89).
template <int V, class P> __device__ __forceinline__ void codes_of(P* to, const float* y, float inverse) {
#if __CUDA_ARCH__ >= 890
  if constexpr (Same<P, e4m3>::value && V > 1) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(y[1] * inverse), "f"(y[0] * inverse));
    to[0] = e4m3{u8(pair)}, to[1] = e4m3{u8(pair >> 8)};
    return;
  }
#endif
  to[0] = cache::Code<P>::of(y[0] * inverse);
  if constexpr (V > 1) to[1] = cache::Code<P>::of(y[1] * inverse);
}

// value(loaded, column, item, y) computes V values; CODES and SCALES are operands of `places`. The line is a `part` of
// the row, whose columns begin at a multiple of GROUP.
template <int CODES, int SCALES, int GROUP, bool WHOLE, class P, int CTAS, bool RESIDENT, class Loaded, int V, int ITEMS,
    int LANES, class I, class Load, class Value, class Places, class Row>
__device__ __forceinline__ void store_codes(rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I>& line, const Load& load,
    const Value& value, const Places& places, const Row& at, const rows::Part<CTAS, I>& part, bool live, P* codes,
    float* scales) {
  const auto put = [&](const float(&y)[V], I column, float inverse) {
    rows::Pack<P, V> made;
#pragma unroll
    for (int v = 0; v < V; v += V > 1 ? 2 : 1)
      codes_of<V>(made.part[v / made.WIDTH].at + v % made.WIDTH, y + v, inverse);
    scatter<WHOLE, CODES, V>(places, codes, at, part.first + column, made);
  };
  const auto widest = [](const float(&y)[V], float most) {
#pragma unroll
    for (int v = 0; v < V; ++v) most = cache::larger(most, y[v]);
    return most;
  };
  if constexpr (GROUP > 0) {
    line.pass(load, [&](Loaded& loaded, I column, int item) {
      float y[V];
      value(loaded, column, item, y);
      const float scale = cache::scale_of<P>(segment_max<GROUP / V>(widest(y, 0.0f)));
      put(y, column, 1.0f / scale);
      if (column % GROUP == 0) places.template of_row<SCALES>(scales, at)[(part.first + column) / GROUP] = scale;
    });
  } else {
    float most = 0.0f;
    line.pass(load, [&](Loaded& loaded, I column, int item) {
      value(loaded, column, item, loaded.y);
      most = widest(loaded.y, most);
    });
    const auto larger = [](float a, float b) { return fmaxf(a, b); };
    most = rows::cluster_reduce<CTAS, 2>(rows::group_reduce<LANES, 2>(most, larger), larger);
    const float scale = cache::scale_of<P>(most), inverse = 1.0f / scale;
    line.pass(load, [&](Loaded& loaded, I column, int item) {
      if constexpr (!RESIDENT) value(loaded, column, item, loaded.y);
      put(loaded.y, column, inverse);
    });
    if (live && part.first == 0 && threadIdx.x % LANES == 0) *places.template of_row<SCALES>(scales, at) = scale;
  }
}

}  // namespace norms
