// out = epilogue(x w^T) of tokens x and NF4 weights w [N, K], every byte of which is read once for TOKENS tokens.
//
// Weights are mma.sync's a operand and tokens its b. A CTA has STRIPS strips of 16 rows of w; its warps take slabs of 256 of K in
// turn, each through a ring of STAGES in shared memory that it fills by cp.async. A byte of codes is a pair of values as it stands
// in a fragment: one read of a table of 256 pairs, of which each lane has one in a bank of its own. Values are rounded to T; the
// sum of 64 of K is multiplied with its block's magnitude in f32, which a lane reads a slab ahead.
// Shared memory: 32 KB of pairs, with DOUBLE 1 KB of the map, then WARPS STAGES (STRIPS 2 KB + TOKENS 512 bytes), later the warps'
// sums, which are added in their order.
// Grid: `tiles` of tokens and groups of strips along x, CTAs of the same weights next to each other; splits of K along y, whose results lie `slab` elements apart and are added up by reduce.cu.
// Bound: bandwidth, 0.56 bytes a weight over 4.6 TB/s, of N = K = 8192 in 8.2 us; about 1.7 instructions a weight and lane, and
// 28 cycles of shared memory for 1024 weights, where 29 would take as long as memory.
#include "async_copy.cuh"
#include "epilogue.cuh"
#include "mma.cuh"
#include "overlap.cuh"
#include "quantized/nf4.cuh"

namespace nf4 {

constexpr u32 PAIRS = 256 * 32 * 4, MAP = 256 * 4;
constexpr u32 DEPTH = 256, CHUNKS = DEPTH / CHUNK;  // of a slab

__device__ __forceinline__ uint4 load_four(u32 from) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(from) : "memory");
  return x;
}
__device__ __forceinline__ uint2 load_two(u32 from) {
  uint2 x;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(from) : "memory");
  return x;
}

// 256 of K of STRIPS strips: 128 bytes of codes a row, in pieces of 16 that are put where rows next to each other have them in other
// banks; and of TOKENS rows of activations, [8][token][64 bytes]: of each half of 64, eight of K for each of four lanes.
template <class T, int STRIPS, int TOKENS> struct Rows {
  static constexpr u32 CODES = STRIPS * 16 * 128, ACTIVATIONS = TOKENS * DEPTH * 2, BYTES = CODES + ACTIVATIONS;
  static __device__ __forceinline__ u32 piece(u32 row, u32 i) { return row * 128 + (i ^ row % 4 * 2) * 16; }

  // A warp's copies; rows of w past the last are that one again.
  static __device__ __forceinline__ void fetch(u32 to, const u8* codes, const T* x, u32 pitch, u32 m, u32 n, u32 k, u32 first, u32 slab, u32 lane) {
#pragma unroll
    for (u32 i = 0; i < STRIPS * 4; ++i) {
      const u32 row = i * 4 + lane / 8, at = slab * (DEPTH / 2) + lane % 8 * 16;
      const bool there = at < k / 2;
      copy_async<16>(to + piece(row, lane % 8), codes + (there ? u64(min(first + row, n - 1)) * (k / 2) + at : 0), there ? 16 : 0);
    }
#pragma unroll
    for (u32 i = 0; i < TOKENS; ++i) {
      const u32 p = i * 32 + lane, token = p / 4 % TOKENS, half = p / (4 * TOKENS);
      const u32 at = slab * DEPTH + half / 2 * CHUNK + p % 4 * 16 + half % 2 * 8;
      const bool there = token < m && at < k;
      copy_async<16>(to + CODES + p * 16, x + (there ? token * pitch + at : 0), there ? 16 : 0);
    }
  }
};

}  // namespace nf4

template <class T, bool DOUBLE, int TOKENS, int STRIPS, int WARPS, int STAGES, class Epi>
__global__ void __launch_bounds__(WARPS * 32, 1)
nf4_gemv(const T* x, const u8* codes, nf4::Magnitudes<DOUBLE> magnitudes, Epi epilogue, u32 pitch, u32 m, u32 n, u32 k, u32 shift,
         u32 slabs_per_split, u32 tiles, u64 slab) {
  using Stage = nf4::Rows<T, STRIPS, TOKENS>;
  using Raw = typename nf4::Magnitudes<DOUBLE>::Raw;
  constexpr u32 ROWS = STRIPS * 16, TILES = (TOKENS + 7) / 8, WIDTH = TILES * 8;
  extern __shared__ __align__(128) u8 pool[];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const u32 table = shared_address(pool) + lane * 4, start = nf4::PAIRS + (DOUBLE ? nf4::MAP : 0);
  const u32 ring = shared_address(pool) + start + warp * STAGES * Stage::BYTES;
  const u32 group = blockIdx.x / tiles, before = (blockIdx.x - group * tiles) * TOKENS;  // tokens of other tiles
  const u32 first = group * ROWS, chunks = k / nf4::CHUNK;
  const u32 begin = blockIdx.y * slabs_per_split, end = min((k + nf4::DEPTH - 1) / nf4::DEPTH, begin + slabs_per_split);
  const float* map = reinterpret_cast<const float*>(pool + nf4::PAIRS);
  x += u64(before) * pitch;
  m = min(m - before, TOKENS);
  overlap::wait();

  u32 coming = begin + warp;
  const auto fetch = [&](u32 stage) {
    if (coming < end) Stage::fetch(ring + stage * Stage::BYTES, codes, x, pitch, m, n, k, first, coming, lane);
    commit_copies();
    coming += WARPS;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // The tables, while the first slabs come
#pragma unroll
  for (u32 i = threadIdx.x; i < nf4::PAIRS / 16; i += WARPS * 32) {
    const u32 pair = round_pair(nf4::VALUES[i / 8 / 16], nf4::VALUES[i / 8 % 16], T{});
    reinterpret_cast<uint4*>(pool)[i] = {pair, pair, pair, pair};
  }
  if constexpr (DOUBLE)
    for (u32 i = threadIdx.x; i < 256; i += WARPS * 32) reinterpret_cast<float*>(pool + nf4::PAIRS)[i] = nf4::mapped(i);

  // Magnitudes of a slab: lane (g, t) has those of rows g and g + 8, of the slab's 64 number t
  const float offset = magnitudes.added();
  Raw next[STRIPS][2] = {};
  const auto ask = [&](u32 at) {
    const u32 chunk = min(at * nf4::CHUNKS + t, chunks - 1);
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) next[i / 2][i % 2] = magnitudes.read(u32((u64(min(first + i * 8 + g, n - 1)) * chunks + chunk) >> shift));
  };
  if (begin + warp < end) ask(begin + warp);
  __syncthreads();

  // Slabs, each while the next are under way
  float acc[STRIPS][TILES][4] = {};
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = begin + warp; at < end; at += WARPS) {
    float absmax[STRIPS][2];
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i)
      absmax[i / 2][i % 2] = at * nf4::CHUNKS + t < chunks ? magnitudes.value(next[i / 2][i % 2], map, offset) : 0.0f;
    if (at + WARPS < end) ask(at + WARPS);
    await_copies<STAGES - 2>();
    __syncwarp();
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 from = ring + stage * Stage::BYTES;
#pragma unroll(STRIPS == 1 ? 2 : 1)
    for (u32 chunk = 0; chunk < nf4::CHUNKS; ++chunk) {
      uint2 words[STRIPS][2];
#pragma unroll
      for (u32 i = 0; i < STRIPS * 2; ++i) words[i / 2][i % 2] = nf4::load_two(from + Stage::piece(i * 8 + g, chunk * 2 + t / 2) + t % 2 * 8);
      float sum[STRIPS][TILES][4] = {};
#pragma unroll
      for (u32 half = 0; half < 2; ++half) {
        uint4 b[TILES] = {};
#pragma unroll
        for (u32 tile = 0; tile < TILES; ++tile)
          if (TOKENS % 8 == 0 || g < TOKENS)
            b[tile] = nf4::load_four(from + Stage::CODES + (((chunk * 2 + half) * TOKENS + tile * 8 + g) * 4 + t) * 16);
#pragma unroll
        for (u32 step = 0; step < 2; ++step)
#pragma unroll
          for (u32 s = 0; s < STRIPS; ++s) {
            u32 a[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
              const u32 word = half ? words[s][i % 2].y : words[s][i % 2].x;
              load_shared(a[i], table + __byte_perm(word, 0, 0x4440 | (step * 2 + i / 2)) * 128);
            }
#pragma unroll
            for (u32 tile = 0; tile < TILES; ++tile) {
              const u32 pair[2] = {step ? b[tile].z : b[tile].x, step ? b[tile].w : b[tile].y};
              Mma<T>::run(sum[s][tile], a, pair);
            }
          }
      }
#pragma unroll
      for (u32 s = 0; s < STRIPS; ++s)
#pragma unroll
        for (u32 h = 0; h < 2; ++h) {
          const float factor = __shfl_sync(~0u, absmax[s][h], g * 4 + chunk);
#pragma unroll
          for (u32 i = 0; i < TILES * 2; ++i) {
            float& all = acc[s][i / 2][h * 2 + i % 2];
            all = __fmaf_rn(factor, sum[s][i / 2][h * 2 + i % 2], all);
          }
        }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  overlap::release();

  // The warps' sums meet, [warp][token][row]
  await_copies<0>();
  __syncthreads();
  const auto sums = reinterpret_cast<float*>(pool + start);
#pragma unroll
  for (u32 i = 0; i < STRIPS * TILES * 4; ++i) {
    const u32 s = i / (TILES * 4), tile = i / 4 % TILES, e = i % 4, token = tile * 8 + t * 2 + e % 2;
    if (token < TOKENS) sums[(warp * WIDTH + token) * ROWS + s * 16 + e / 2 * 8 + g] = acc[s][tile][e];
  }
  __syncthreads();
  epilogue.out += blockIdx.y * slab;
  for (u32 i = threadIdx.x; i < m * (ROWS / 2); i += WARPS * 32) {
    const u32 token = i / (ROWS / 2), row = i % (ROWS / 2) * 2;
    if (first + row >= n) continue;
    float pair[2] = {};
#pragma unroll
    for (u32 w = 0; w < WARPS; ++w) {
      const Vec<float, 2> part = *reinterpret_cast<const Vec<float, 2>*>(sums + (w * WIDTH + token) * ROWS + row);
      pair[0] += part.at[0];
      pair[1] += part.at[1];
    }
    epilogue.store(pair, before + token, first + row, first + row + 1 < n);
  }
}
