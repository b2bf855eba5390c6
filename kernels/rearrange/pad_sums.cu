// out[j, ...] = sum of x over the places of a padded array that hold element j: the gradient of padding by the source's
// own elements (edge, reflect, symmetric, wrap).
//
// Places:   along an axis, those of the element itself in order, then those of its mirror image; the sum runs over the
//           product of all axes' places, the last axis fastest. The order of additions depends on the shape alone.
// Threads:  LANES per element; lane l adds the terms l, l + LANES, ..., and a shuffle tree adds the lanes.
// Shared:   none.   Bound: DRAM; latency where few elements have many terms.
#include "core/index.cuh"

constexpr int THREADS = 256;

// One axis: its extent and the padded one, the width before it (modulo the period where there is one), and how its
// elements recur: every `period` places, and mirrored (0: not), or, with `edge`, beyond the ends. `stride` is in bytes.
template <class I> struct PaddedAxis {
  typename DivisorOf<I>::type extent, period;
  I before, padded, mirror, edge;
  i64 stride;

  // The places of index j: `count` of the element itself, from `first` on, and `images` of its mirror image, from
  // `mirrored` on, each `step()` from the next.
  __device__ __forceinline__ void places(I j, I& first, I& count, I& mirrored, I& images) const {
    images = mirrored = 0;
    if (edge) {
      first = j == 0 ? 0 : before + j;
      count = (j + 1 == extent.divisor ? padded : before + j + 1) - first;
      return;
    }
    first = modulo(before + j);
    count = times(first);
    const I image = mirror - j;
    if (mirror && image >= extent.divisor && image < period.divisor) {
      mirrored = modulo(before + image);
      images = times(mirrored);
    }
  }
  __device__ __forceinline__ I step() const { return edge ? I(1) : period.divisor; }

  __device__ __forceinline__ I modulo(I place) const { return place - period.divide(place) * period.divisor; }
  __device__ __forceinline__ I times(I from) const {
    return from < padded ? period.divide(padded - 1 - from) + 1 : I(0);
  }
};

template <class I, int R> struct PaddedAxes {
  PaddedAxis<I> axis[R];
};

template <class T, class C, class I, int R, int LANES>
__global__ void __launch_bounds__(THREADS) pad_sums(T* out, const u8* x, I count, PaddedAxes<I, R> axes) {
  const I i = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  if (i >= count) return;  // all lanes of an element together; a warp is of one element, or has no shuffle
  // 1. The places of the element, axis by axis
  I first[R], places[R], mirrored[R], images[R], rest = i, terms = 1;
#pragma unroll
  for (int a = R - 1; a >= 0; --a) {
    const PaddedAxis<I>& axis = axes.axis[a];
    const I next = a > 0 ? axis.extent.divide(rest) : I(0), j = a > 0 ? rest - next * axis.extent.divisor : rest;
    axis.places(j, first[a], places[a], mirrored[a], images[a]);
    terms *= places[a] + images[a];
    rest = next;
  }
  // 2. The sum; nearly all elements have one term
  C sum = 0;
  for (I term = LANES > 1 ? threadIdx.x % LANES : 0; term < terms; term += LANES) {
    I left = term;
    i64 at = 0;
#pragma unroll
    for (int a = R - 1; a >= 0; --a) {
      const I every = places[a] + images[a], next = terms > 1 && a > 0 ? left / every : I(0), k = left - next * every;
      const I step = axes.axis[a].step();
      at += i64(k < places[a] ? first[a] + k * step : mirrored[a] + (k - places[a]) * step) * axes.axis[a].stride;
      left = next;
    }
    sum += convert<C>(*reinterpret_cast<const T*>(x + at));
  }
  // 3. Lanes
#pragma unroll
  for (int lane = LANES / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  if (LANES == 1 || threadIdx.x % LANES == 0) out[i] = convert<T>(sum);
}
