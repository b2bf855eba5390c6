// Which of equal indices is the last one, and which places no index names, as indices for take.cu: NOWHERE where its
// result is 0, which it does not report.
//
// mark_last: last[key] = 1 + the largest position of an index of that key: a maximum of integers, in whatever order.
// pick_last: picked[position] = the place along the axis that the index names if it is the last one of its key.
// keep_rest: last[key] = the key's place along the axis if no index names it.
// Grid:      one thread per index or key.   Shared: none.
// Bound:     DRAM, indices read twice and one word at a random key for each, and three words per key.
#include "indexing/within.cuh"
#include "core/index.cuh"

constexpr int LAST_THREADS = 256;
constexpr u32 NOWHERE = 1u << 31;  // as an i32 below every index from the end

// An index: the place that it names along the axis, negative if it is out of range, and the key of that place. `dims`:
// as in sorted_keys.cu.
template <class Index, int MODE> struct Named {
  i64 line;
  u32 key;

  template <int R>
  __device__ __forceinline__
  Named(const u8* index, i64 extent, u32 key_step, u32 position, const Dims<u32, R, 2>& dims) {
    i64 at[2] = {};
    dims.locate(position, at);
    line = within<MODE>(i64(*reinterpret_cast<const Index*>(index + at[0])), extent);
    key = u32(at[1]) + u32(line) * key_step;
  }
};

template <class Index, int R, int MODE>
__global__ void __launch_bounds__(LAST_THREADS)
mark_last(u32* last, const u8* index, i64 extent, u32 key_step, u32 count, Dims<u32, R, 2> dims) {
  const u32 position = blockIdx.x * LAST_THREADS + threadIdx.x;
  if (position >= count) return;
  const Named<Index, MODE> named(index, extent, key_step, position, dims);
  if (named.line >= 0) atomicMax(last + named.key, position + 1);
}

template <class Index, int R, int MODE>
__global__ void __launch_bounds__(LAST_THREADS)
pick_last(u32* picked, const u32* last, const u8* index, i64 extent, u32 key_step, u32 count, Dims<u32, R, 2> dims) {
  const u32 position = blockIdx.x * LAST_THREADS + threadIdx.x;
  if (position >= count) return;
  const Named<Index, MODE> named(index, extent, key_step, position, dims);
  picked[position] = named.line >= 0 && last[named.key] == position + 1 ? u32(named.line) : NOWHERE;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS) keep_rest(u32* last, u32 extent, u32 key_step, u32 keys) {
  const u32 key = blockIdx.x * THREADS + threadIdx.x;
  if (key >= keys) return;
  last[key] = last[key] ? NOWHERE : key / key_step % extent;
}
