// out = epilogue(x w^T) of at most four tokens x and NF4 weights w [N, K], every byte of which is read once, into registers.
//
// Weights are mma.sync's a operand and tokens its b, whose columns hold SPREAD 64s of the same slab side by side, so that sums of
// different blocks stay apart. A warp has STRIPS strips of 16 rows of w; of ACROSS ALONG warps those ALONG take slabs of DEPTH of K in
// turn. A lane reads 16 bytes of a row at once, a slab ahead, looks pairs of values up (nf4_table.cuh) and multiplies the sum of each
// 64 with its block's magnitude in f32. Nothing is waited for but a lane's own reads.
// Shared memory: 64 KB of tables, and all tokens of the CTA's part of K, [octet][token][lane t][8]; later the warps' sums.
// Grid: groups of rows along x, splits of K along y, whose results lie `slab` elements apart and are added up by reduce.cu.
// Bound: bandwidth, 0.56 bytes a weight over 4.6 TB/s, of N = K = 8192 in 8.2 us; about 1.5 instructions a weight and lane. Of shared
// memory 1024 weights take 16 cycles for pairs and 4 or so for the rest, where 32 would take as long as memory.
#include "async_copy.cuh"
#include "epilogue.cuh"
#include "mma.cuh"
#include "overlap.cuh"
#include "quantized/nf4_table.cuh"

namespace nf4 {

// 16 bytes that nobody reads again, AT bytes on, where `there`; elsewhere `x` stays what it was.
template <int AT> __device__ __forceinline__ void read_once(uint4& x, const u8* from, bool there) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4 + %6]; }"
               : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w) : "l"(from), "r"(u32(there)), "n"(AT));
}
// Of shared memory where `mine`; elsewhere `x` stays what it was.
__device__ __forceinline__ void read_own(uint4& x, u32 from, bool mine) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
               : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w) : "r"(from), "r"(u32(mine)));
}
__device__ __forceinline__ u32 word_of(const uint4& x, u32 i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }

}  // namespace nf4

template <class T, bool DOUBLE, int TOKENS, int STRIPS, int ACROSS, int ALONG, int DEPTH, class Epi>
__global__ void __launch_bounds__(ACROSS * ALONG * 32, 1)
nf4_skinny(const T* x, const u8* codes, nf4::Magnitudes<DOUBLE> magnitudes, Epi epilogue, u32 pitch, u32 m, u32 n, u32 k, u32 shift,
           u32 slabs_per_split, u64 slab) {
  using Raw = typename nf4::Magnitudes<DOUBLE>::Raw;
  constexpr u32 ROWS = ACROSS * STRIPS * 16, CHUNKS = DEPTH / nf4::CHUNK, SPREAD = 8 / TOKENS < CHUNKS ? 8 / TOKENS : CHUNKS;
  constexpr u32 THREADS = ACROSS * ALONG * 32, CHAINS = STRIPS < 2 ? 2 : 1;  // sums of a round: products of one wait for each other
  constexpr u32 STRETCHES = DEPTH / 128, ROUNDS = CHUNKS / SPREAD, PER_ROUND = SPREAD / 2, OWN = TOKENS == 1 ? 2 : 1;
  extern __shared__ __align__(256) u8 pool[];
  const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, side = threadIdx.x / 32 % ACROSS, turn = threadIdx.x / (32 * ACROSS);
  const u32 first = (blockIdx.x * ACROSS + side) * (STRIPS * 16), chunks = k / nf4::CHUNK, half = k / 2;
  const u32 begin = blockIdx.y * slabs_per_split, end = min((k + DEPTH - 1) / DEPTH, begin + slabs_per_split);
  nf4::make_table<T, DOUBLE, THREADS>(pool);
  overlap::wait();

  // The first slab's codes and magnitudes
  const u8* const from = codes + u64(min(first, n - 1)) * half + t * 16;
  u32 row[STRIPS][2], blocks[STRIPS][2];  // bytes from the first row; 64s before the row
#pragma unroll
  for (u32 i = 0; i < STRIPS * 2; ++i) {
    const u32 own = min(first + i * 8 + g, n - 1);
    row[i / 2][i % 2] = (own - min(first, n - 1)) * half;
    blocks[i / 2][i % 2] = own * chunks;
  }
  uint4 words[STRIPS][2][STRETCHES] = {};
  // Past the end words stay what they were: their tokens are zeros
  const u8* there[STRIPS][2];  // the next slab's
  u32 left = 0;                // bytes of it, from the lane's first on
  const auto look = [&](u32 at) {
    const u32 byte = at * (DEPTH / 2);
    left = at < end ? max(half, byte + t * 16) - byte - t * 16 : 0;
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) there[i / 2][i % 2] = from + u64(row[i / 2][i % 2] + byte);
  };
  const auto read = [&](u32 stretch) {
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i) {
      uint4& to = words[i / 2][i % 2][stretch];
      if (stretch == 0) nf4::read_once<0>(to, there[i / 2][i % 2], left > 0);
      if (stretch == 1) nf4::read_once<64>(to, there[i / 2][i % 2], left > 64);
      if (stretch == 2) nf4::read_once<128>(to, there[i / 2][i % 2], left > 128);
      if (stretch == 3) nf4::read_once<192>(to, there[i / 2][i % 2], left > 192);
    }
  };
  Raw next[STRIPS][2][ROUNDS][OWN] = {};
  const auto chunk_of = [&](u32 at, u32 round, u32 e) { return at * CHUNKS + round * SPREAD + (t * 2 + e) / TOKENS % SPREAD; };
  const auto ask = [&](u32 at) {
#pragma unroll
    for (u32 i = 0; i < STRIPS * 2; ++i)
#pragma unroll
      for (u32 j = 0; j < ROUNDS * OWN; ++j)
        next[i / 2][i % 2][j / OWN][j % OWN] = magnitudes.read((blocks[i / 2][i % 2] + min(chunk_of(at, j / OWN, j % OWN), chunks - 1)) >> shift);
  };
  look(begin + turn);
#pragma unroll
  for (u32 stretch = 0; stretch < STRETCHES; ++stretch) read(stretch);
  if (begin + turn < end) ask(begin + turn);

  // All tokens of this part of K, filled up with zeros; every CTA begins elsewhere, or all would wait for the same lines of L2
  u32 tokens;  // opaque: ptxas would add the window's base to the address of each lookup
  asm volatile("mov.u32 %0, %1;" : "=r"(tokens) : "r"(shared_address(pool) + nf4::LINES));
  const u32 pieces = (end - min(begin, end)) * (DEPTH / 8), turned = blockIdx.x * 67 % max(pieces, 1);
#pragma unroll
  for (u32 token = 0; token < TOKENS; ++token)
    for (u32 j = threadIdx.x; j < pieces; j += THREADS) {
      const u32 i = j + turned < pieces ? j + turned : j + turned - pieces, at = begin * DEPTH + i * 8, octet = i / 16 * 4 + i % 4;
      const bool there = token < m && at < k;
      copy_async<16>(tokens + ((octet * TOKENS + token) * 4 + i / 4 % 4) * 16, x + (there ? u64(token) * pitch + at : 0), there ? 16 : 0);
    }
  commit_copies();
  const float offset = magnitudes.added();
  const float* const map = reinterpret_cast<const float*>(pool + nf4::OF_LINE) + lane;
  await_copies<0>();
  __syncthreads();

  // Slabs, each while the next is under way
  float acc[STRIPS][4] = {};
  uint4 kept[PER_ROUND][2] = {};  // of a column that is not a lane's own, zeros for good
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
    const u32 own = tokens + ((at - begin) * (DEPTH / 32) * TOKENS + g % TOKENS) * 64 + t * 16;
#pragma unroll
    for (u32 round = 0; round < ROUNDS; ++round) {
      float sum[CHAINS][STRIPS][4] = {};
#pragma unroll
      for (u32 within = 0; within < PER_ROUND; ++within) {
        const u32 stretch = round * PER_ROUND + within;
        const bool mine = g / TOKENS == within * 2 + t / 2;  // whether the lane's 64 is its column's
#pragma unroll
        for (u32 word = 0; word < 4; ++word) {
          uint4& b = kept[within][word % 2];
          nf4::read_own(b, own + (stretch * 4 + word) * (TOKENS * 64), mine);
#pragma unroll
          for (u32 step = 0; step < 2; ++step)
#pragma unroll
            for (u32 s = 0; s < STRIPS; ++s) {
              u32 a[4];
#pragma unroll
              for (u32 i = 0; i < 4; ++i) a[i] = *reinterpret_cast<const u32*>(pool + __byte_perm(nf4::word_of(words[s][i % 2][stretch], word), lane * 4, 0x5504 | (step * 2 + i / 2) << 4));
              const u32 pair[2] = {step ? b.z : b.x, step ? b.w : b.y};
              Mma<T>::run(sum[step % CHAINS][s], a, pair);
            }
        }
        read(stretch);
        __syncwarp();  // so that reads begin here, and not at the end of the slab
      }
      // Column 2 t + e has the round's 64 number (2 t + e) / TOKENS
#pragma unroll
      for (u32 i = 0; i < STRIPS * 4; ++i) {
        float both = sum[0][i / 4][i % 4];
        if constexpr (CHAINS > 1) both += sum[1][i / 4][i % 4];
        acc[i / 4][i % 4] = __fmaf_rn(absmax[i / 4][i % 4 / 2][round][i % OWN], both, acc[i / 4][i % 4]);
      }
    }
  }
  overlap::release();

  // The warps' sums meet, [turn][column][row]; columns begin where four of them are in banks of their own
  constexpr u32 COLUMNS = TOKENS * SPREAD, APART = ROWS + 4;
  __syncthreads();
  const auto sums = reinterpret_cast<float*>(pool + nf4::LINES);
#pragma unroll
  for (u32 i = 0; i < STRIPS * 4; ++i) {
    const u32 column = t * 2 + i % 2;
    if (column < COLUMNS) sums[(turn * COLUMNS + column) * APART + (side * STRIPS + i / 4) * 16 + i % 4 / 2 * 8 + g] = acc[i / 4][i % 4];
  }
  __syncthreads();
  epilogue.out += blockIdx.y * slab;
  for (u32 i = threadIdx.x; i < m * (ROWS / 2); i += THREADS) {
    const u32 token = i / (ROWS / 2), line = i % (ROWS / 2) * 2, to = blockIdx.x * ROWS + line;
    if (to >= n) continue;
    float pair[2] = {};
#pragma unroll
    for (u32 part = 0; part < ALONG * SPREAD; ++part) {
      const Vec<float, 2> own = *reinterpret_cast<const Vec<float, 2>*>(sums + (part * TOKENS + token) * APART + line);
      pair[0] += own.at[0];
      pair[1] += own.at[1];
    }
    epilogue.store(pair, token, to, to + 1 < n);
  }
}
