// out = epilogue(x w^T) of tokens x and NF4 weights w [N, K], every byte of which is read once for TOKENS tokens.
//
// Weights are mma.sync's a operand and tokens its b. A warp has STRIPS strips of 16 rows of w; ACROSS warps side by side share tokens,
// and ALONG such groups take slabs of DEPTH of K in turn, each through a ring of STAGES in shared memory that it fills by cp.async.
// A byte of codes is a pair of values as it stands in a fragment: one read of a table of 256 pairs, of which each lane has one in a
// bank of its own. Values are rounded to T; the sum of 64 of K is multiplied with its block's magnitude in f32, which a lane reads a
// slab ahead. Fewer than 8 tokens leave columns of b free, in which other 64s of the same slab are multiplied at the same time.
// Shared memory: 64 KB, a line of 256 bytes for each byte of codes: its pair for 32 lanes, and with DOUBLE the map's value. So a
// line's address is that byte, moved. Then ALONG STAGES (ACROSS STRIPS DEPTH 8 + TOKENS DEPTH 2) bytes, later the sums of all groups,
// which are added in their order.
// Grid: `tiles` of tokens and groups of rows along x, CTAs of the same weights next to each other; splits of K along y, whose results
// lie `slab` elements apart and are added up by reduce.cu.
// Bound: bandwidth, 0.56 bytes a weight over 4.6 TB/s, of N = K = 8192 in 8.2 us; about 1.3 instructions a weight and lane. Of shared
// memory 1024 weights take 16 cycles for pairs, 8 for codes and, by 8 tokens, 8 / STRIPS, where 32 would take as long as memory.
#include "async_copy.cuh"
#include "barrier.cuh"
#include "epilogue.cuh"
#include "mma.cuh"
#include "overlap.cuh"
#include "quantized/nf4.cuh"

namespace nf4 {

constexpr u32 LINE = 256, LINES = 256 * LINE, OF_LINE = LINE / 2;  // bytes; where the map's values begin

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

// The same where `mine`; elsewhere `x` stays what it was.
__device__ __forceinline__ void load_four(uint4& x, u32 from, bool mine) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w) : "r"(from), "r"(u32(mine)) : "memory");
}

// A number of 32 bits for each lane of a line: threads next to each other begin with other banks.
__device__ __forceinline__ void fill(u8* line, u32 number, u32 thread) {
#pragma unroll
  for (u32 i = 0; i < 8; ++i) *reinterpret_cast<uint4*>(line + (i + thread) % 8 * 16) = {number, number, number, number};
}

// DEPTH of K of ACROSS STRIPS strips: codes in pieces of 16 bytes, which are put where rows that are read together have them in other
// banks; and of TOKENS rows of activations, [octet][token][lane t][8]. In SPREAD columns of b, 64s of K lie side by side.
// A lane takes WORDS words of a row at once: of a stretch of 32 WORDS of K, 8 WORDS in a row.
template <class T, int STRIPS_, int TOKENS_, int ACROSS, int DEPTH_> struct Rows {
  using Element = T;
  static constexpr u32 STRIPS = STRIPS_, TOKENS = TOKENS_, DEPTH = DEPTH_, CHUNKS = DEPTH / CHUNK;
  static constexpr u32 TILES = (TOKENS + 7) / 8, FREE = TOKENS < 8 ? 8 / TOKENS : 1, SPREAD = FREE < CHUNKS ? FREE : CHUNKS;
  static constexpr u32 COLUMNS = TOKENS * SPREAD;  // of b
  static constexpr u32 WORDS = SPREAD == 1 ? 2 : 4, PER_ROUND = SPREAD == 1 ? 1 : SPREAD / 2;  // stretches
  static constexpr u32 PIECES = DEPTH / 32, ROW = PIECES * 16;
  static constexpr u32 CODES = STRIPS * 16 * ROW, ACTIVATIONS = TOKENS * DEPTH * 2, BYTES = ACROSS * CODES + ACTIVATIONS;
  static __device__ __forceinline__ u32 piece(u32 row, u32 i) {
    const u32 swapped = DEPTH == 256 ? (WORDS == 4 ? row % 2 * 4 : row % 4 * 2) : WORDS == 4 ? 0 : row / 2 % 2 * 2;
    return row * ROW + (i ^ swapped) * 16;
  }

  // Where eight of a token go, number `i` of a slab.
  static __device__ __forceinline__ u32 place(u32 i, u32 token) {
    const u32 octet = i / (4 * WORDS) * WORDS + i % WORDS, t = i / WORDS % 4;
    return ((octet * TOKENS + token) * 4 + t) * 16;
  }
  // A lane's words of a row's stretch.
  static __device__ __forceinline__ void load(u32 (&words)[WORDS], u32 from, u32 row, u32 stretch, u32 t) {
    if constexpr (WORDS == 4) {
      const uint4 all = load_four(from + piece(row, stretch * 4 + t));
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
      const uint2 all = load_two(from + piece(row, stretch * 2 + t / 2) + t % 2 * 8);
      words[0] = all.x, words[1] = all.y;
    }
  }
};

// A thread's copies of slabs: rows of w past the last are that one again, tokens past the last zeros. Places are made once, and
// counted in 32 bits, those of codes from the warp's first row on.
template <class Slab, int ACROSS> struct Copies {
  using T = typename Slab::Element;
  static constexpr u32 COPIES = Slab::STRIPS * Slab::PIECES / 2, AT_ONCE = 32 / Slab::PIECES;  // of 16 bytes; rows
  static constexpr u32 ALL = Slab::ACTIVATIONS / 16, THREADS = ACROSS * 32, ROUNDS = (ALL + THREADS - 1) / THREADS;
  static constexpr u32 PER_TOKEN = Slab::DEPTH / 8;
  const u8* codes;
  const T* x;
  u32 half, thread, into;  // bytes of a row of codes; where the first of a thread's pieces of tokens goes
  u32 row[COPIES], token[ROUNDS], limit[ROUNDS];

  __device__ __forceinline__ Copies(const u8* codes, const T* x, u32 pitch, u32 m, u32 n, u32 k, u32 first, u32 thread)
      : codes(codes + u64(min(first, n - 1)) * (k / 2)), x(x), half(k / 2), thread(thread), into(Slab::place(thread % PER_TOKEN, thread / PER_TOKEN)) {
    const u32 lane = thread % 32;
#pragma unroll
    for (u32 i = 0; i < COPIES; ++i) row[i] = (min(first + i * AT_ONCE + lane / Slab::PIECES, n - 1) - min(first, n - 1)) * half + lane % Slab::PIECES * 16;
#pragma unroll
    for (u32 i = 0; i < ROUNDS; ++i) {
      const u32 own = (i * THREADS + thread) / PER_TOKEN, at = thread % PER_TOKEN * 8;
      const bool there = own < min(m, Slab::TOKENS);
      token[i] = there ? own * pitch + at : 0;
      limit[i] = there ? max(k, at) - at : 0;
    }
  }

  __device__ __forceinline__ void bring(u32 weights, u32 tokens, u32 slab) const {
    const u32 lane = thread % 32, at = slab * (Slab::DEPTH / 2), there = at + lane % Slab::PIECES * 16 < half ? 16 : 0;
    const u8* const from = codes + at;
#pragma unroll
    for (u32 i = 0; i < COPIES; ++i) copy_async<16>(weights + Slab::piece(i * AT_ONCE + lane / Slab::PIECES, lane % Slab::PIECES), from + row[i], there);
#pragma unroll
    for (u32 i = 0; i < ROUNDS; ++i)
      if (ALL % THREADS == 0 || i * THREADS + thread < ALL)
        copy_async<16>(tokens + into + i * (THREADS / PER_TOKEN) * 64, x + u64(token[i] + slab * Slab::DEPTH), slab * Slab::DEPTH < limit[i] ? 16 : 0);
  }
};

}  // namespace nf4

template <class T, bool DOUBLE, int TOKENS, int STRIPS, int ACROSS, int ALONG, int STAGES, int DEPTH, class Epi>
__global__ void __launch_bounds__(ACROSS * ALONG * 32, 1)
nf4_gemv(const T* x, const u8* codes, nf4::Magnitudes<DOUBLE> magnitudes, Epi epilogue, u32 pitch, u32 m, u32 n, u32 k, u32 shift,
         u32 slabs_per_split, u32 tiles, u64 slab) {
  using Slab = nf4::Rows<T, STRIPS, TOKENS, ACROSS, DEPTH>;
  using Raw = typename nf4::Magnitudes<DOUBLE>::Raw;
  constexpr u32 ROWS = ACROSS * STRIPS * 16, TILES = Slab::TILES, SPREAD = Slab::SPREAD, CHUNKS = Slab::CHUNKS, WORDS = Slab::WORDS;
  constexpr u32 THREADS = ACROSS * ALONG * 32, CHAINS = STRIPS * TILES < 4 ? 2 : 1;  // sums of a round: products of one wait for each other
  extern __shared__ __align__(256) u8 pool[];
  const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, side = threadIdx.x / 32 % ACROSS, turn = threadIdx.x / (32 * ACROSS);
  const u32 ring = shared_address(pool) + nf4::LINES + turn * STAGES * Slab::BYTES;
  const u32 group = blockIdx.x / tiles, before = (blockIdx.x - group * tiles) * TOKENS;  // tokens of other tiles
  const u32 first = group * ROWS + side * (STRIPS * 16), chunks = k / nf4::CHUNK;
  const u32 begin = blockIdx.y * slabs_per_split, end = min((k + DEPTH - 1) / DEPTH, begin + slabs_per_split);
  x += u64(before) * pitch;
  m = min(m - before, TOKENS);
  // The table, which takes nothing of what others write
  for (u32 i = threadIdx.x; i < 256; i += THREADS) {
    nf4::fill(pool + i * nf4::LINE, round_pair(nf4::VALUES[i / 16], nf4::VALUES[i % 16], T{}), lane);
    if constexpr (DOUBLE) nf4::fill(pool + i * nf4::LINE + nf4::OF_LINE, __float_as_uint(nf4::mapped(i)), lane);
  }
  overlap::wait();

  const nf4::Copies<Slab, ACROSS> copies(codes, x, pitch, m, n, k, first, threadIdx.x % (32 * ACROSS));
  // Every CTA begins with another slab, or all would wait for the same lines of L2
  const u32 turned = blockIdx.x * 7 % max(end - min(begin, end), 1u);
  const auto slab_of = [&](u32 at) { return at + turned < end ? at + turned : at + turned - (end - begin); };
  u32 coming = begin + turn;
  const auto fetch = [&](u32 stage) {
    const u32 to = ring + stage * Slab::BYTES;
    if (coming < end) copies.bring(to + side * Slab::CODES, to + ACROSS * Slab::CODES, slab_of(coming));
    commit_copies();
    coming += ALONG;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // Magnitudes of a slab: lane (g, t) has those of rows g and g + 8, of the slab's 64 number t
  const float offset = magnitudes.added();
  const float* const map = reinterpret_cast<const float*>(pool + nf4::OF_LINE) + lane;
  Raw next[STRIPS][2] = {};
  u32 blocks[STRIPS][2];  // before the row's first, in 64s
#pragma unroll
  for (u32 i = 0; i < STRIPS * 2; ++i) blocks[i / 2][i % 2] = min(first + i * 8 + g, n - 1) * chunks;
  const auto ask = [&](u32 at) {
    const u32 chunk = min(slab_of(at) * CHUNKS + t % CHUNKS, chunks - 1);
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) next[i / 2][i % 2] = magnitudes.read((blocks[i / 2][i % 2] + chunk) >> shift);
  };
  if (begin + turn < end) ask(begin + turn);
  __syncthreads();

  // Slabs, each while the next are under way
  float acc[STRIPS][TILES][4] = {};
  uint4 kept[SPREAD == 1 ? 1 : 2][2][TILES] = {};  // of a column that is not a lane's own, zeros for good
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = begin + turn; at < end; at += ALONG) {
    float absmax[STRIPS][2];
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i)
      absmax[i / 2][i % 2] = slab_of(at) * CHUNKS + t % CHUNKS < chunks ? magnitudes.template value<nf4::LINE / 4>(next[i / 2][i % 2], map, offset) : 0.0f;
    if (at + ALONG < end) ask(at + ALONG);
    await_copies<STAGES - 2>();
    if constexpr (ACROSS == 1) __syncwarp();
    else meet(1 + turn, ACROSS * 32);
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 from = ring + stage * Slab::BYTES, own = from + side * Slab::CODES, tokens = from + ACROSS * Slab::CODES;
#pragma unroll
    for (u32 round = 0; round < CHUNKS / SPREAD; ++round) {
      float sum[CHAINS][STRIPS][TILES][4] = {};
#pragma unroll
      for (u32 stretch = 0; stretch < Slab::PER_ROUND; ++stretch) {
        const u32 part = round * Slab::PER_ROUND + stretch;
        const bool mine = SPREAD == 1 || g / TOKENS == (stretch * 2 + t / 2) % SPREAD;  // whether the lane's 64 is its column's
        u32 words[STRIPS][2][WORDS];
#pragma unroll
        for (u32 i = 0; i < STRIPS * 2; ++i) Slab::load(words[i / 2][i % 2], own, i * 8 + g, part, t);
#pragma unroll
        for (u32 word = 0; word < WORDS; ++word) {
          uint4 (&b)[TILES] = kept[SPREAD == 1 ? 0 : stretch % 2][word % 2];
#pragma unroll
          for (u32 tile = 0; tile < TILES; ++tile) {
            const u32 at = tokens + (((part * WORDS + word) * TOKENS + tile * 8 + g % (TOKENS < 8 ? TOKENS : 8)) * 4 + t) * 16;
            if constexpr (SPREAD == 1) b[tile] = nf4::load_four(at);
            else nf4::load_four(b[tile], at, mine);
          }
#pragma unroll
          for (u32 step = 0; step < 2; ++step)
#pragma unroll
            for (u32 s = 0; s < STRIPS; ++s) {
              u32 a[4];
#pragma unroll
              for (u32 i = 0; i < 4; ++i)
                a[i] = *reinterpret_cast<const u32*>(pool + __byte_perm(words[s][i % 2][word], lane * 4, 0x5504 | (step * 2 + i / 2) << 4));
#pragma unroll
              for (u32 tile = 0; tile < TILES; ++tile) {
                const u32 pair[2] = {step ? b[tile].z : b[tile].x, step ? b[tile].w : b[tile].y};
                Mma<T>::run(sum[step % CHAINS][s][tile], a, pair);
              }
            }
        }
      }
      // Column 2 t + e has the round's 64 number (2 t + e) / TOKENS
#pragma unroll
      for (u32 i = 0; i < STRIPS * 2; ++i) {
        float factor[2];
        const auto of = [&](u32 e) { return __shfl_sync(~0u, absmax[i / 2][i % 2], g * 4 + (round * SPREAD + (SPREAD > 1 ? (t * 2 + e) / TOKENS : 0)) % CHUNKS); };
        factor[0] = of(0);
        factor[1] = TOKENS == 1 && SPREAD > 1 ? of(1) : factor[0];
#pragma unroll
        for (u32 j = 0; j < TILES * 2; ++j) {
          const u32 e = i % 2 * 2 + j % 2;
          float& all = acc[i / 2][j / 2][e];
          float both = sum[0][i / 2][j / 2][e];
          if constexpr (CHAINS > 1) both += sum[1][i / 2][j / 2][e];
          all = __fmaf_rn(factor[j % 2], both, all);
        }
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  overlap::release();

  // The groups' sums meet, [group][column][row]; columns begin where four of them are in banks of their own
  constexpr u32 COLUMNS = Slab::COLUMNS, APART = ROWS + 4;
  await_copies<0>();
  __syncthreads();
  const auto sums = reinterpret_cast<float*>(pool + nf4::LINES);
#pragma unroll
  for (u32 i = 0; i < STRIPS * TILES * 4; ++i) {
    const u32 s = i / (TILES * 4), tile = i / 4 % TILES, e = i % 4, column = tile * 8 + t * 2 + e % 2;
    if (column < COLUMNS) sums[(turn * COLUMNS + column) * APART + (side * STRIPS + s) * 16 + e / 2 * 8 + g] = acc[s][tile][e];
  }
  __syncthreads();
  epilogue.out += blockIdx.y * slab;
  for (u32 i = threadIdx.x; i < m * (ROWS / 2); i += THREADS) {
    const u32 token = i / (ROWS / 2), row = i % (ROWS / 2) * 2, to = group * ROWS + row;
    if (to >= n) continue;
    float pair[2] = {};
#pragma unroll
    for (u32 part = 0; part < ALONG * SPREAD; ++part) {
      const Vec<float, 2> own = *reinterpret_cast<const Vec<float, 2>*>(sums + (part * TOKENS + token) * APART + row);
      pair[0] += own.at[0];
      pair[1] += own.at[1];
    }
    epilogue.store(pair, before + token, to, to + 1 < n);
  }
}
