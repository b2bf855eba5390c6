// out = epilogue(x w^T) of tokens x and NF4 weights w [N, K], every byte of which is read once for TOKENS tokens, into registers.
//
// Weights are mma.sync's a operand and tokens its b. A warp has STRIPS strips of 16 rows of w; ACROSS warps side by side share tokens,
// and ALONG such groups take slabs of DEPTH of K in turn, tokens through a ring of STAGES in shared memory that the group fills by
// cp.async. A lane reads its codes a slab ahead and looks pairs of values up (nf4_table.cuh); the sum of each 64 of K is multiplied with
// its block's magnitude in f32. Fewer than 8 tokens leave columns of b free, in which other 64s of the slab are multiplied at the
// same time.
// Shared memory: 64 KB of tables, ALONG STAGES TOKENS DEPTH 2 bytes of tokens, [octet][token][lane t][8], later the groups' sums.
// Grid: `tiles` of tokens and groups of rows along x, CTAs of the same weights next to each other; splits of K along y, whose results
// lie `slab` elements apart and are added up by reduce.cu. Every CTA begins with another slab, or all would wait for the same lines of L2.
// Bound: bandwidth, 0.56 bytes a weight over 4.6 TB/s, of N = K = 8192 in 8.2 us; about 1.6 instructions a weight and lane. Of shared
// memory 1024 weights take 16 cycles for pairs and, by 8 tokens, 8 / STRIPS, where 32 would take as long as memory.
#include "async_copy.cuh"
#include "barrier.cuh"
#include "epilogue.cuh"
#include "mma.cuh"
#include "overlap.cuh"
#include "quantized/nf4_table.cuh"

namespace nf4 {

// Codes of a row that nobody reads again, AT bytes on, where `there`; elsewhere `x` stays what it was.
template <int AT> __device__ __forceinline__ void read_codes(u32 (&x)[4], const u8* from, bool there) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4 + %6]; }"
               : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3]) : "l"(from), "r"(u32(there)), "n"(AT));
}
template <int AT> __device__ __forceinline__ void read_codes(u32 (&x)[2], const u8* from, bool there) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2 + %4]; }"
               : "+r"(x[0]), "+r"(x[1]) : "l"(from), "r"(u32(there)), "n"(AT));
}
// 16 bytes of tokens where `mine`; elsewhere `x` stays what it was.
__device__ __forceinline__ void read_tokens(uint4& x, u32 from, bool mine) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w) : "r"(from), "r"(u32(mine)));
}

// DEPTH of K: in SPREAD columns of b, 64s lie side by side. A lane takes WORDS words of a row at once: 8 WORDS of a stretch of 32 WORDS.
template <int TOKENS_, int DEPTH_> struct Shape {
  static constexpr u32 TOKENS = TOKENS_, DEPTH = DEPTH_, CHUNKS = DEPTH / CHUNK, TILES = (TOKENS + 7) / 8;
  static constexpr u32 FREE = TOKENS < 8 ? 8 / TOKENS : 1, SPREAD = FREE < CHUNKS ? FREE : CHUNKS, COLUMNS = TOKENS * SPREAD;
  static constexpr u32 WORDS = SPREAD == 1 ? 2 : 4, STRETCHES = DEPTH / (32 * WORDS), ROUNDS = CHUNKS / SPREAD, PER_ROUND = STRETCHES / ROUNDS;
  static constexpr u32 PIECES = DEPTH / 8, BYTES = TOKENS * DEPTH * 2;  // of a token; of a slab
  // Where eight of a token go, number `i` of a slab.
  static __device__ __forceinline__ u32 place(u32 i, u32 token) {
    const u32 octet = i / (4 * WORDS) * WORDS + i % WORDS, t = i / WORDS % 4;
    return ((octet * TOKENS + token) * 4 + t) * 16;
  }
};

// A thread's copies of slabs of tokens, those past the last zeros. Places are made once, and counted in 32 bits.
template <class T, class Slab, int THREADS> struct Copies {
  static constexpr u32 ALL = Slab::TOKENS * Slab::PIECES, COUNT = (ALL + THREADS - 1) / THREADS;
  const T* x;
  u32 thread, into, token[COUNT], limit[COUNT];

  __device__ __forceinline__ Copies(const T* x, u32 pitch, u32 m, u32 k, u32 thread)
      : x(x), thread(thread), into(Slab::place(thread % Slab::PIECES, thread / Slab::PIECES)) {
    const u32 at = thread % Slab::PIECES * 8;
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i) {
      const u32 own = (i * THREADS + thread) / Slab::PIECES;
      const bool there = own < m && own < Slab::TOKENS;
      token[i] = there ? own * pitch + at : 0;
      limit[i] = there ? max(k, at) - at : 0;
    }
  }
  __device__ __forceinline__ void bring(u32 to, u32 slab) const {
    static_assert(THREADS % Slab::PIECES == 0 || COUNT == 1);
#pragma unroll
    for (u32 i = 0; i < COUNT; ++i)
      if (ALL % THREADS == 0 || i * THREADS + thread < ALL)
        copy_async<16>(to + into + i * (THREADS / Slab::PIECES) * 64, x + u64(token[i] + slab * Slab::DEPTH), slab * Slab::DEPTH < limit[i] ? 16 : 0);
  }
};

}  // namespace nf4

template <class T, bool DOUBLE, int TOKENS, int STRIPS, int ACROSS, int ALONG, int STAGES, int DEPTH, class Epi>
__global__ void __launch_bounds__(ACROSS * ALONG * 32, 1)
nf4_wide(const T* x, const u8* codes, nf4::Magnitudes<DOUBLE> magnitudes, Epi epilogue, u32 pitch, u32 m, u32 n, u32 k, u32 shift,
         u32 slabs_per_split, u32 tiles, u64 slab) {
  using Slab = nf4::Shape<TOKENS, DEPTH>;
  using Raw = typename nf4::Magnitudes<DOUBLE>::Raw;
  constexpr u32 ROWS = ACROSS * STRIPS * 16, THREADS = ACROSS * ALONG * 32, TILES = Slab::TILES, SPREAD = Slab::SPREAD, CHUNKS = Slab::CHUNKS;
  constexpr u32 STRETCHES = Slab::STRETCHES, WORDS = Slab::WORDS, CHAINS = STRIPS * TILES < 2 ? 2 : 1;  // sums of a round: products of one wait for each other
  constexpr bool SHARED = SPREAD == 1;  // a lane has magnitudes of one 64 of the slab, for others of its row
  constexpr u32 ROUNDS = SHARED ? 1 : Slab::ROUNDS, OWN = TOKENS == 1 ? 2 : 1;
  static_assert(!SHARED || CHUNKS <= 4);
  extern __shared__ __align__(256) u8 pool[];
  const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, side = threadIdx.x / 32 % ACROSS, turn = threadIdx.x / (32 * ACROSS);
  const u32 group = blockIdx.x / tiles, before = (blockIdx.x - group * tiles) * TOKENS;  // tokens of other tiles
  const u32 first = (group * ACROSS + side) * (STRIPS * 16), chunks = k / nf4::CHUNK, half = k / 2;
  const u32 begin = blockIdx.y * slabs_per_split, end = min((k + DEPTH - 1) / DEPTH, begin + slabs_per_split);
  const u32 turned = group * 7 % max(end - min(begin, end), 1u);
  const auto slab_of = [&](u32 at) { return at + turned < end ? at + turned : at + turned - (end - begin); };
  x += u64(before) * pitch;
  m = min(m - before, TOKENS);
  nf4::make_table<T, DOUBLE, THREADS>(pool);
  u32 ring;  // opaque: ptxas would add the window's base to the address of each lookup
  asm volatile("mov.u32 %0, %1;" : "=r"(ring) : "r"(shared_address(pool) + nf4::LINES + turn * STAGES * Slab::BYTES));
  overlap::wait();

  // Codes of the next slab: past the end words stay what they were, and meet tokens of zeros
  const u8* const from = codes + u64(min(first, n - 1)) * half + t * (WORDS * 4);
  u32 row[STRIPS][2], blocks[STRIPS][2];  // bytes from the first row; 64s before the row
#pragma unroll
  for (u32 i = 0; i < STRIPS * 2; ++i) {
    const u32 own = min(first + i * 8 + g, n - 1);
    row[i / 2][i % 2] = (own - min(first, n - 1)) * half;
    blocks[i / 2][i % 2] = own * chunks;
  }
  u32 words[STRIPS][2][STRETCHES][WORDS] = {};
  const u8* there[STRIPS][2];
  u32 left = 0;  // bytes of the slab from the lane's first on
  const auto look = [&](u32 at) {
    const u32 byte = slab_of(at) * (DEPTH / 2), own = byte + t * (WORDS * 4);
    left = at < end ? max(half, own) - own : 0;
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) there[i / 2][i % 2] = from + u64(row[i / 2][i % 2] + byte);
  };
  const auto read = [&](u32 stretch) {
    constexpr u32 STEP = WORDS * 16;
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) {
      u32 (&to)[WORDS] = words[i / 2][i % 2][stretch];
      if (stretch == 0) nf4::read_codes<0>(to, there[i / 2][i % 2], left > 0);
      if (stretch == 1) nf4::read_codes<STEP>(to, there[i / 2][i % 2], left > STEP);
      if (stretch == 2) nf4::read_codes<2 * STEP>(to, there[i / 2][i % 2], left > 2 * STEP);
      if (stretch == 3) nf4::read_codes<3 * STEP>(to, there[i / 2][i % 2], left > 3 * STEP);
    }
  };
  static_assert(STRETCHES <= 4);
  look(begin + turn);
#pragma unroll
  for (u32 stretch = 0; stretch < STRETCHES; ++stretch) read(stretch);

  // Tokens
  const nf4::Copies<T, Slab, ACROSS * 32> copies(x, pitch, m, k, threadIdx.x % (32 * ACROSS));
  u32 coming = begin + turn;
  const auto fetch = [&](u32 stage) {
    if (coming < end) copies.bring(ring + stage * Slab::BYTES, slab_of(coming));
    commit_copies();
    coming += ALONG;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);

  // Magnitudes of a slab, of rows g and g + 8: those of the lane's columns, or of its 64 number t
  const float offset = magnitudes.added();
  const float* const map = reinterpret_cast<const float*>(pool + nf4::OF_LINE) + lane;
  Raw next[STRIPS][2][ROUNDS][OWN] = {};
  const auto chunk_of = [&](u32 at, u32 round, u32 e) { return slab_of(at) * CHUNKS + (SHARED ? t % CHUNKS : round * SPREAD + (t * 2 + e) / TOKENS % SPREAD); };
  const auto ask = [&](u32 at) {
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i)
#pragma unroll
      for (u32 j = 0; j < ROUNDS * OWN; ++j)
        next[i / 2][i % 2][j / OWN][j % OWN] = magnitudes.read((blocks[i / 2][i % 2] + min(chunk_of(at, j / OWN, j % OWN), chunks - 1)) >> shift);
  };
  if (begin + turn < end) ask(begin + turn);
  __syncthreads();

  // Slabs, each while the next is under way
  float acc[STRIPS][TILES][4] = {};
  uint4 kept[Slab::PER_ROUND][2][TILES] = {};  // of a column that is not a lane's own, zeros for good
  u32 stage = 0;
#pragma unroll 1
  for (u32 at = begin + turn; at < end; at += ALONG) {
    float absmax[STRIPS][2][ROUNDS][OWN];
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i)
#pragma unroll
      for (u32 j = 0; j < ROUNDS * OWN; ++j)
        absmax[i / 2][i % 2][j / OWN][j % OWN] =
            chunk_of(at, j / OWN, j % OWN) < chunks ? magnitudes.template value<nf4::LINE / 4>(next[i / 2][i % 2][j / OWN][j % OWN], map, offset) : 0.0f;
    if (at + ALONG < end) ask(at + ALONG);
    look(at + ALONG);
    await_copies<STAGES - 2>();
    if constexpr (ACROSS == 1) __syncwarp();
    else meet(1 + turn, ACROSS * 32);
    fetch(stage == 0 ? STAGES - 1 : stage - 1);
    const u32 own = ring + stage * Slab::BYTES + (g % (TOKENS < 8 ? TOKENS : 8)) * 64 + t * 16;
#pragma unroll
    for (u32 round = 0; round < Slab::ROUNDS; ++round) {
      float sum[CHAINS][STRIPS][TILES][4] = {};
#pragma unroll
      for (u32 within = 0; within < Slab::PER_ROUND; ++within) {
        const u32 stretch = round * Slab::PER_ROUND + within;
        const bool mine = SPREAD == 1 || g / TOKENS == within * 2 + t / 2;  // whether the lane's 64 is its column's
#pragma unroll
        for (u32 word = 0; word < WORDS; ++word) {
          uint4 (&b)[TILES] = kept[within][word % 2];
#pragma unroll
          for (u32 tile = 0; tile < TILES; ++tile) nf4::read_tokens(b[tile], own + ((stretch * WORDS + word) * TOKENS + tile * 8) * 64, mine);
#pragma unroll
          for (u32 step = 0; step < 2; ++step)
#pragma unroll
            for (u32 s = 0; s < STRIPS; ++s) {
              u32 a[4];
#pragma unroll
              for (u32 i = 0; i < 4; ++i)
                a[i] = *reinterpret_cast<const u32*>(pool + __byte_perm(words[s][i % 2][stretch][word], lane * 4, 0x5504 | (step * 2 + i / 2) << 4));
#pragma unroll
              for (u32 tile = 0; tile < TILES; ++tile) {
                const u32 pair[2] = {step ? b[tile].z : b[tile].x, step ? b[tile].w : b[tile].y};
                Mma<T>::run(sum[step % CHAINS][s][tile], a, pair);
              }
            }
        }
        read(stretch);
        __syncwarp();  // so that reads begin here, and not at the end of the slab
      }
      // Column 2 t + e has the round's 64 number (2 t + e) / TOKENS
#pragma unroll
      for (u32 i = 0; i < STRIPS * 2; ++i) {
        float factor[2];
#pragma unroll
        for (u32 e = 0; e < 2; ++e)
          factor[e] = e >= OWN ? factor[0] : SHARED ? __shfl_sync(~0u, absmax[i / 2][i % 2][0][0], g * 4 + round) : absmax[i / 2][i % 2][round % ROUNDS][e % OWN];
#pragma unroll
        for (u32 j = 0; j < TILES * 2; ++j) {
          const u32 e = i % 2 * 2 + j % 2;
          float both = sum[0][i / 2][j / 2][e];
          if constexpr (CHAINS > 1) both += sum[1][i / 2][j / 2][e];
          acc[i / 2][j / 2][e] = __fmaf_rn(factor[j % 2], both, acc[i / 2][j / 2][e]);
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
    const u32 token = i / (ROWS / 2), line = i % (ROWS / 2) * 2, to = group * ROWS + line;
    if (to >= n) continue;
    float pair[2] = {};
#pragma unroll
    for (u32 part = 0; part < ALONG * SPREAD; ++part) {
      const Vec<float, 2> own = *reinterpret_cast<const Vec<float, 2>*>(sums + (part * TOKENS + token) * APART + line);
      pair[0] += own.at[0];
      pair[1] += own.at[1];
    }
    epilogue.store(pair, before + token, to, to + 1 < n);
  }
}
