// One step of an optimizer with 8-bit states, in place, on one array of parameters or on a list (optim/update.cu):
// state = map[code] * absmax, absmax the greatest size among BLOCK states (optim/dynamic_map.cuh).
//
// Mapping:  a CTA per chunk or row of `table`, a warp per BLOCK elements of it, V adjacent ones per lane.
// Loads:    accesses of 16 bytes at most where a chunk's arrays are aligned to these, else one by one.
// Order:    a block's absmax is a maximum by shuffles, each code the nearest: nothing depends on the grid.
// Lists:    blocks count from the first element of a row. Its columns: elements, the number of the first, and where it
//           begins in bytes in the parameter, the gradient, the states, their absmaxes, and MASTER.
// Skips:    a state that is not finite makes the absmax of its block so, and with it the block.
// Shared:   both maps, 4 KiB.   Bound: DRAM, every array read, and all but the gradient written, once.
#include "math/extrema.cuh"
#include "optim/dynamic_map.cuh"
#include "optim/rules.cuh"
#include "optim/runs.cuh"
#include "rows/group.cuh"

constexpr int THREADS = 256, BLOCK = 256, V = BLOCK / 32;
constexpr int MOST = 9;  // arrays

struct ArrayBases { u64 of[MOST]; };

template <class T> __device__ __forceinline__ T* at(u64 begin, u64 place) {
  return reinterpret_cast<T*>(begin) + place;
}

template <class T, class C> __device__ __forceinline__ void load(bool whole, const T* from, u32 count, C (&x)[V]) {
  if (whole) optim::load_run<true>(from, count, x);
  else optim::load_run<false>(from, count, x);
}

template <class T, class C> __device__ __forceinline__ void store(bool whole, T* to, u32 count, const C (&x)[V]) {
  if (whole) optim::store_run<true>(to, count, x);
  else optim::store_run<false>(to, count, x);
}

template <class Rule, class P, class G, class C, bool MASTER, bool LISTED, bool CHANCE, u32 UNSIGNED>
__global__ void __launch_bounds__(THREADS)
    optim_update_blocks(const __grid_constant__ ArrayBases bases, const i64* table, u64 whole, u32 chunk,
                  const optim::StepScalars<C>* scalars, u64 seed) {
  constexpr int STATES = Rule::STATES, ARRAYS = 2 + 2 * STATES + MASTER;
  __shared__ optim::DynamicMaps maps;
  const optim::StepScalars<C> shared = *scalars;
  if (shared.skip != C(0)) return;
  maps.make();

  // 1. where the chunk begins in every array
  const u64 first = u64(blockIdx.x) * chunk;
  const i64* row = table + i64(blockIdx.x) * (2 + ARRAYS);
  const u32 count = LISTED ? u32(row[0]) : whole - first < chunk ? u32(whole - first) : chunk;
  const u64 position = LISTED ? u64(row[1]) : first;
  u64 begin[ARRAYS];
  bool aligned = true;
#pragma unroll
  for (int k = 0; k < ARRAYS; ++k) {
    const bool absmax = k >= 2 + STATES && k < 2 + 2 * STATES;
    const u32 size = k == 0 ? sizeof(P) : k == 1 ? sizeof(G) : k < 2 + STATES ? sizeof(u8) : sizeof(float);
    const u64 bytes = LISTED ? u64(row[2 + k]) : (absmax ? first / BLOCK : first) * size;
    begin[k] = bases.of[k] + bytes;
    aligned &= absmax || begin[k] % (V * size < 16 ? V * size : 16) == 0;
  }

  for (u32 block = threadIdx.x / 32; block * BLOCK < count; block += THREADS / 32) {
    // 2. the elements of a lane, `there` of which there are
    const u32 place = block * BLOCK + threadIdx.x % 32 * V;
    const u32 there = place >= count ? 0 : count - place < V ? count - place : V;
    const bool vectors = aligned && there % V == 0, leads = threadIdx.x % 32 == 0;
    C p[V], g[V], next[STATES][V];
    u8 codes[STATES][V];
    if constexpr (MASTER) load(vectors, at<float>(begin[ARRAYS - 1], place), there, p);
    else load(vectors, at<P>(begin[0], place), there, p);
    load(vectors, at<G>(begin[1], place), there, g);
    float absmax[STATES];
#pragma unroll
    for (int k = 0; k < STATES; ++k) {
      load(vectors, at<u8>(begin[2 + k], place), there, codes[k]);
      absmax[k] = leads ? *at<float>(begin[2 + STATES + k], block) : 0;
      absmax[k] = __shfl_sync(~0u, absmax[k], 0);
    }

    // 3. the step
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C state[optim::MOST_STATES];
#pragma unroll
      for (int k = 0; k < STATES; ++k)
        state[k] = C(__fmul_rn(maps.number[UNSIGNED >> k & 1][codes[k][v]], absmax[k]));
      p[v] = Rule::update(p[v], g[v] * shared.scale, state, shared.factor);
#pragma unroll
      for (int k = 0; k < STATES; ++k) next[k][v] = state[k];
    }
    if constexpr (CHANCE) optim::round_by_chance(p, seed, position + place, u64(shared.step));

    // 4. the states' absmaxes and codes
#pragma unroll
    for (int k = 0; k < STATES; ++k) {
      float most = 0;
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v < there) most = math::maximum(most, ::fabsf(float(next[k][v])));
      most = rows::group_reduce<32>(most, [](float a, float b) { return math::maximum(a, b); });
      maps.encode(UNSIGNED >> k & 1, next[k], most, codes[k]);
      store(vectors, at<u8>(begin[2 + k], place), there, codes[k]);
      if (leads) *at<float>(begin[2 + STATES + k], block) = most;
    }
    store(vectors, at<P>(begin[0], place), there, p);
    if constexpr (MASTER) store(vectors, at<float>(begin[ARRAYS - 1], place), there, p);
  }
}
