// out = epilogue(x w) of any number of tokens x and int4 weights in the tiled layout; of one weight, or of several that share the
// tokens.
//
// Weights are mma.sync's a operand, unpacked in registers, and tokens its b. A CTA has TOKENS tokens and WARPS 16 STRIPS columns of
// the result; a warp has STRIPS strips of them and all the tokens. Slabs of 128 of K come by cp.async through STAGES stages: weights,
// which only the warp reads that copies them, and tokens, which all read; one barrier a slab.
// Shared memory: STAGES (WARPS STRIPS 1.1 KB + TOKENS 256 bytes). Registers: two sets of sums of 4 STRIPS TOKENS / 8 each, one
// of a group, one of all.
// Grid: tiles of tokens first, so that those that share weights are in flight together, then columns; splits of K along y, whose
// results lie `slab` elements apart and are added up by reduce.cu.
// Bound: bandwidth for few tokens, then mma.sync's rate (on Hopper about 0.62 of wgmma's).
#include "epilogue.cuh"
#include "overlap.cuh"
#include "quantized/int4_fragment.cuh"
#include "quantized/int4_weight.cuh"

template <class T, class S, int TOKENS, int STRIPS, int WARPS, int STAGES, int GROUP, bool ZEROS, class Epi, int COUNT>
__global__ void __launch_bounds__(WARPS * 32, 8 / WARPS)
int4_mma(const T* x, nibbles::Weights<S, Epi, COUNT> weights, u32 pitch, u32 m, u32 k, u32 blocks, u32 groups, u32 slabs_per_split,
         u64 slab) {
  using Slab = nibbles::Slab<T, S, STRIPS, TOKENS, GROUP, ZEROS>;
  constexpr u32 STAGE = WARPS * Slab::WEIGHTS + Slab::ACTIVATIONS;
  extern __shared__ __align__(128) u8 pool[];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, ring = shared_address(pool);
  const u32 tiles = (m + TOKENS - 1) / TOKENS, column = blockIdx.x / tiles, token = (blockIdx.x - column * tiles) * TOKENS;
  nibbles::Weight<S, Epi> own = weights.of(column);
  const u32 strips = (own.n + 15) / 16, first = ((column - own.first) * WARPS + warp) * STRIPS;
  const u32 begin = blockIdx.y * slabs_per_split, end = min((blocks + 1) / 2, begin + slabs_per_split);
  constexpr u32 TOKENS_AT = WARPS * Slab::WEIGHTS;  // in a stage
  x += u64(token) * pitch;
  overlap::wait();

  u32 coming = begin;
  const auto fetch = [&](u32 stage) {
    if (coming < end) {
      const u32 to = ring + stage * STAGE;
      Slab::fetch(to + warp * Slab::WEIGHTS, own.codes, own.scales, own.zeros, first, strips, coming, blocks, groups, lane);
      Slab::template fetch_tokens<WARPS * 32>(to + TOKENS_AT, x, pitch, m - token, k, coming, threadIdx.x);
    }
    commit_copies();
    ++coming;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // Slabs, each while the next are under way
  float acc[STRIPS][Slab::TILES][4] = {};
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = begin; at < end; ++at) {
    await_copies<STAGES - 2>();
    __syncthreads();
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 from = ring + stage * STAGE;
    Slab::multiply(acc, from + warp * Slab::WEIGHTS, from + TOKENS_AT, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  overlap::release();
  await_copies<0>();

  // Pairs of columns leave
  own.epilogue.out += blockIdx.y * slab;
#pragma unroll
  for (int s = 0; s < STRIPS; ++s) {
    const u32 to = (first + s) * 16 + lane / 4 * 2;
    if (to >= own.n) break;
#pragma unroll
    for (int tile = 0; tile < Slab::TILES; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const u32 row = token + tile * 8 + lane % 4 * 2 + e;
        float pair[2] = {acc[s][tile][e], acc[s][tile][e + 2]};
        if (row < m) own.epilogue.store(pair, row, to, to + 1 < own.n);
      }
  }
}
