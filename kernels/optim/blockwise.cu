// One step of an optimizer with 8-bit states, in place, on one array of parameters or on a list (optim/update.cu):
// state = map[code] * absmax, absmax the greatest size among BLOCK states (optim/dynamic_map.cuh).
//
// Mapping:  RESIDENT CTAs per SM, which take the `rows` chunks, or rows of `table`, in turn; a warp per BLOCK elements,
//           V adjacent ones per lane.
// Loads:    accesses of 16 bytes at most where a chunk's arrays are aligned to these, else one by one.
// Order:    a block's absmax is a maximum over the warp, each code the nearest: nothing depends on the grid.
// Lists:    blocks count from the first element of a row. Its columns: elements, the number of the first, and where it
//           begins in bytes in the parameter, the gradient, the states, their absmaxes, and MASTER.
// Skips:    a state that is not finite makes the absmax of its block so, and with it the block.
// Shared:   the states' maps, 13 KiB each.   Bound: DRAM, every array read, and all but the gradient written, once.
#include "math/extrema.cuh"
#include "optim/approximate.cuh"
#include "optim/dynamic_map.cuh"
#include "optim/runs.cuh"

constexpr int THREADS = 256, BLOCK = 256, V = BLOCK / 32;
constexpr int MOST = 9;  // arrays

struct ArrayBases { u64 of[MOST]; };

template <class T> __device__ __forceinline__ T* at(u64 begin, u64 place) {
  return reinterpret_cast<T*>(begin) + place;
}

// V elements of every array at `place`, `there` of which there are, or V if ALIGNED; codes are four per word.
template <class Rule, class P, class G, class C, bool MASTER> struct Elements {
  static constexpr int STATES = Rule::STATES, OF_MASTER = 2 + 2 * STATES, ARRAYS = OF_MASTER + MASTER;
  using Words = Vec<u32, V / 4>;
  C p[V], g[V];
  Words codes[STATES];

  template <bool ALIGNED> __device__ __forceinline__ void load(const u64* begin, u32 place, u32 there) {
    there = ALIGNED ? V : there;
    if constexpr (MASTER) optim::load_run<ALIGNED>(at<float>(begin[OF_MASTER], place), there, p);
    else optim::load_run<ALIGNED>(at<P>(begin[0], place), there, p);
    optim::load_run<ALIGNED>(at<G>(begin[1], place), there, g);
#pragma unroll
    for (int k = 0; k < STATES; ++k) {
      const u8* const from = at<u8>(begin[2 + k], place);
      if constexpr (ALIGNED) {
        codes[k] = *reinterpret_cast<const Words*>(from);
      } else {
        codes[k] = {};
#pragma unroll
        for (int v = 0; v < V; ++v)
          if (v < there) codes[k].at[v / 4] |= u32(from[v]) << v % 4 * 8;
      }
    }
  }
  template <bool ALIGNED> __device__ __forceinline__ void store(const u64* begin, u32 place, u32 there) const {
    there = ALIGNED ? V : there;
    optim::store_run<ALIGNED>(at<P>(begin[0], place), there, p);
    if constexpr (MASTER) optim::store_run<ALIGNED>(at<float>(begin[OF_MASTER], place), there, p);
#pragma unroll
    for (int k = 0; k < STATES; ++k) {
      u8* const to = at<u8>(begin[2 + k], place);
      if constexpr (ALIGNED) {
        *reinterpret_cast<Words*>(to) = codes[k];
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v)
          if (v < there) to[v] = u8(codes[k].at[v / 4] >> v % 4 * 8);
      }
    }
  }
};

// The step of V elements, computed in A. `next` are the states' numbers at first.
template <class Rule, class A, class C, int STATES>
__device__ __forceinline__ void advance(
    C (&p)[V], const C (&g)[V], C (&next)[STATES][V], const optim::StepScalars<C>& shared) {
  A factor[optim::FACTORS];
#pragma unroll
  for (int i = 0; i < optim::FACTORS; ++i) factor[i] = A(shared.factor[i]);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    A state[optim::MOST_STATES];
#pragma unroll
    for (int k = 0; k < STATES; ++k) state[k] = A(next[k][v]);
    p[v] = C(Rule::update(A(p[v]), A(g[v] * shared.scale), state, factor));
#pragma unroll
    for (int k = 0; k < STATES; ++k) next[k][v] = C(state[k]);
  }
}

template <class Rule, class P, class G, class C, bool MASTER, bool LISTED, bool CHANCE, u32 UNSIGNED, int RESIDENT>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    optim_update_blocks(const __grid_constant__ ArrayBases bases, const i64* table, u64 whole, u32 chunk, u32 rows,
                  const optim::StepScalars<C>* scalars, u64 seed) {
  constexpr int STATES = Rule::STATES, ARRAYS = Elements<Rule, P, G, C, MASTER>::ARRAYS;
  constexpr u32 ALL = (1 << STATES) - 1;
  __shared__ u64 begins[THREADS / 32][ARRAYS];
  u64* const begin = begins[threadIdx.x / 32];
  const u32 lane = threadIdx.x % 32;
  __shared__ optim::DynamicMap<false> signed_map;
  __shared__ optim::DynamicMap<true> unsigned_map;
  const optim::StepScalars<C> shared = *scalars;
  if (shared.skip != C(0)) return;
  if constexpr (UNSIGNED != ALL) signed_map.make();
  if constexpr (UNSIGNED != 0) unsigned_map.make();
  const bool approximates = optim::approximates<Rule>(shared.factor);

  for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
    // 1. where the chunk begins in every array, one per lane
    const u64 first = u64(row) * chunk;
    const i64* columns = table + i64(row) * (2 + ARRAYS);
    const u32 count = LISTED ? u32(columns[0]) : whole - first < chunk ? u32(whole - first) : chunk;
    const u64 position = LISTED ? u64(columns[1]) : first;
    bool aligned = true;
    __syncwarp();
    if (lane < ARRAYS) {
      const bool absmax = lane >= 2 + STATES && lane < 2 + 2 * STATES;
      const u32 size = lane == 0 ? sizeof(P) : lane == 1 ? sizeof(G) : lane < 2 + STATES ? sizeof(u8) : sizeof(float);
      const u64 bytes = LISTED ? u64(columns[2 + lane]) : (absmax ? first / BLOCK : first) * size;
      begin[lane] = bases.of[lane] + bytes;
      aligned = absmax || (bases.of[lane] + bytes) % (V * size < 16 ? V * size : 16) == 0;
    }
    aligned = __all_sync(~0u, aligned);
    __syncwarp();

    for (u32 block = threadIdx.x / 32; block * BLOCK < count; block += THREADS / 32) {
      // 2. the elements of a lane, `there` of which there are
      const u32 place = block * BLOCK + lane * V;
      const u32 there = place >= count ? 0 : count - place < V ? count - place : V;
      const bool vectors = aligned && there == V;
      Elements<Rule, P, G, C, MASTER> own;
      if (vectors) own.template load<true>(begin, place, there);
      else own.template load<false>(begin, place, there);
      C next[STATES][V];
      float absmax[STATES];
#pragma unroll
      for (int k = 0; k < STATES; ++k) absmax[k] = *at<float>(begin[2 + STATES + k], block);
      __syncwarp();  // lane 0 replaces these
#pragma unroll
      for (int k = 0; k < STATES; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const u32 word = own.codes[k].at[v / 4];
          const float number =
              UNSIGNED >> k & 1 ? unsigned_map.number_at(word, v % 4) : signed_map.number_at(word, v % 4);
          next[k][v] = C(__fmul_rn(number, absmax[k]));
        }
      }

      // 3. the step
      if constexpr (optim::approximable<Rule, C>()) {
        if (approximates) advance<Rule, optim::Approximate>(own.p, own.g, next, shared);
        else advance<Rule, C>(own.p, own.g, next, shared);
      } else {
        advance<Rule, C>(own.p, own.g, next, shared);
      }
      if constexpr (CHANCE) optim::round_by_chance(own.p, seed, position + place, u64(shared.step));

      // 4. the states' absmaxes and codes; absent elements count as 0
#pragma unroll
      for (int k = 0; k < STATES; ++k) {
        if (there < V) {
#pragma unroll
          for (int v = 0; v < V; ++v)
            if (v >= there) next[k][v] = 0;
        }
        float most = 0;
#pragma unroll
        for (int v = 0; v < V; ++v) most = math::maximum(most, ::fabsf(float(next[k][v])));
        most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));  // as integers NaN is the greatest
        if (UNSIGNED >> k & 1) unsigned_map.encode(next[k], most, own.codes[k].at);
        else signed_map.encode(next[k], most, own.codes[k].at);
        if (lane == 0) *at<float>(begin[2 + STATES + k], block) = most;
      }
      if (vectors) own.template store<true>(begin, place, there);
      else own.template store<false>(begin, place, there);
    }
  }
}
