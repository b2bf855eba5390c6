// Elements picked along one axis by an array of indices.
//
// take_along: one element of the result a thread and turn, UNROLL turns, walked in the result's order; an index is read, then
// the element that it names. What is out of range is never read: mode 0 gives zero bytes and sets `status`, 1 takes the nearest
// index, 2 counts on from the other end. No shared memory. Bound: bandwidth, and the sectors that the picked elements share.
#include "index.cuh"

constexpr int RAISE = 0, CLIP = 1, WRAP = 2;
constexpr int TAKE_THREADS = 256;

// An index as one of [0, extent); negative where there is none.
template <int MODE> __device__ __forceinline__ i64 within(i64 at, i64 extent) {
  if constexpr (MODE == CLIP) return at < 0 ? 0 : at < extent ? at : extent - 1;
  if (at >= 0 && at < extent) return at;
  if constexpr (MODE == WRAP) {
    const i64 rest = at % extent;
    return rest < 0 ? rest + extent : rest;
  }
  return at < 0 && at >= -extent ? at + extent : -1;
}

// `dims`: the result's axes with byte strides of out, indices and x, the last of which stands still along the axis taken.
template <class I, class Index, int R, int WIDTH, int MODE, int UNROLL>
__global__ void __launch_bounds__(TAKE_THREADS)
take_along(u8* out, const u8* x, const u8* indices, i32* status, i64 extent, i64 step, I count, Dims<I, R, 3> dims) {
  using T = typename Word<WIDTH>::type;
  const I first = I(blockIdx.x) * (TAKE_THREADS * UNROLL) + threadIdx.x;
  i64 offset[UNROLL][3], at[UNROLL];
  T value[UNROLL];
  bool bad = false;
  // Indices, all under way at once
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I i = first + u * TAKE_THREADS < count ? first + u * TAKE_THREADS : count - 1;  // a thread too many repeats the last
    offset[u][0] = offset[u][1] = offset[u][2] = 0;
    dims.locate(i, offset[u]);
    at[u] = i64(*reinterpret_cast<const Index*>(indices + offset[u][1]));
  }
  // The elements that they name
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const i64 from = within<MODE>(at[u], extent);
    value[u] = T{};
    if (from >= 0) value[u] = *reinterpret_cast<const T*>(x + offset[u][2] + from * step);
    bad |= from < 0;
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (first + u * TAKE_THREADS < count) *reinterpret_cast<T*>(out + offset[u][0]) = value[u];
  // One atomic a warp that met a bad index
  if constexpr (MODE == RAISE) {
    if (__any_sync(~0u, bad) && threadIdx.x % 32 == 0) atomicOr(status, 1);
  }
}
