// out = epilogue(x w) of tiles of rows x and GGUF blocks [N, K], transposed: weights are widened to the type of x on their way, once
// for the BM rows of a tile, and multiplied by mma.sync.
//
// Tiling: a CTA has BM x BN of the result, a warp WM x WN of it; K goes by in chunks of 256 weights, each in four slabs of 64. Blocks
// of a chunk come as they lie, by cp.async of 16 bytes, through RAWS slots; rows whose chunks do not begin on 16 bytes (SHIFTED) from
// the 16 bytes before them on. While a slab is multiplied, a thread widens 32 neighbouring weights of the next into the other of two
// panels, BN rows of 128 bytes, swizzled as tile.cuh says. x comes through STAGES slabs. One barrier a slab.
// Shared memory: RAWS chunks of BN rows (Q4_K: 144 bytes each), two panels of BN 128 bytes, STAGES BM 128 bytes of x.
// Grid: tiles in bands (Place), times `splits` ranges of K whose results lie `slab` elements apart and are added up by reduce.cu.
// Every element sums its products in the order of K, one mma after the other.
// Bound: issue. About 5 instructions a weight take it apart and widen it (16-bit codes, an exact subtraction, an FMA, half a
// conversion), once for each tile of BM rows; N = 8192, K = 28672 of Q4_K in 45 us, where the blocks alone take 29. Then mma.sync's rate.
#include "async_copy.cuh"
#include "epilogue.cuh"
#include "feed.cuh"
#include "overlap.cuh"
#include "quantized/gguf/format.cuh"
#include "tile.cuh"

constexpr u32 CHUNK = 256, SLAB = 64, SLABS = CHUNK / SLAB;

// A chunk of BN rows of blocks on its way to shared memory. ALIGN: what every block is aligned to in memory.
template <class F, int ALIGN, bool SHIFTED, int BN, int THREADS> struct Raw {
  static constexpr u32 BYTES = CHUNK / F::WEIGHTS * F::BYTES;
  static constexpr u32 PIECES = (BYTES + (SHIFTED ? 16 - ALIGN : 0) + 15) / 16;
  static constexpr u32 PITCH = (PIECES | 1) * 16, SIZE = BN * PITCH;  // an odd number of 16 bytes: eight rows meet no bank twice

  const u8* weights;
  i64 pitch;
  u32 first, rows;

  // Where the chunk of row `row` begins: rows past the last one stand for it, and are not stored.
  __device__ __forceinline__ const u8* of(u32 row, u32 chunk) const { return weights + i64(min(first + row, rows - 1)) * pitch + i64(chunk) * BYTES; }
  // Chunk `chunk` to `slot`, zeros where rows have ended.
  __device__ __forceinline__ void fetch(u32 slot, u32 chunk) const {
#pragma unroll 2
    for (u32 piece = threadIdx.x; piece < BN * PIECES; piece += THREADS) {
      const u32 row = piece / PIECES, within = (piece - row * PIECES) * 16;
      const u8* begin = of(row, chunk);
      const i64 shift = SHIFTED ? i64(reinterpret_cast<u64>(begin) & 15) : 0;
      const i64 left = pitch - i64(chunk) * BYTES + shift - within;  // of the row, from this piece on
      copy_async<16>(slot + row * PITCH + within, left > 0 ? begin - shift + within : weights, left > 0 ? u32(min(left, i64(16))) : 0);
    }
  }
  __device__ __forceinline__ u32 shift(u32 row, u32 chunk) const { return SHIFTED ? u32(reinterpret_cast<u64>(of(row, chunk)) & 15) : 0; }
};

// Four codes, each a byte, as floats, less what is taken off.
template <class F> __device__ __forceinline__ void widen(float (&x)[4], u32 codes) {
  constexpr float OFF = 8388608.0f + F::LESS + (F::SIGNED ? 128 : 0);
  if constexpr (F::SIGNED) codes ^= 0x80808080u;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) x[i] = __uint_as_float(__byte_perm(codes, 0x4b000000u, 0x7440u + i)) - OFF;
}

template <class F, class T, class Epi, int ALIGN, bool SHIFTED, int BM, int BN, int WM, int WN, int RAWS, int STAGES, int CTAS, int X_BYTES>
__global__ void __launch_bounds__(2 * BN, CTAS)
gguf_panels(const T* x, const u8* weights, Epi epilogue, i64 x_step, i64 pitch, u32 m, u32 n, u32 k, u32 band, u32 splits,
            u32 chunks_per_split, u64 slab) {
  constexpr int THREADS = 2 * BN, EACH = 32;
  static_assert(BM / WM * (BN / WN) * 32 == THREADS, "two threads widen a row of a slab");
  static_assert(STAGES <= SLABS * (RAWS - 1), "a chunk is there before its first slab is widened");
  using TileX = Tile<T, BM, SLAB, true>;
  using Panel = Tile<T, BN, SLAB, true>;
  using Blocks = Raw<F, ALIGN, SHIFTED, BN, THREADS>;
  constexpr u32 PANELS_AT = RAWS * Blocks::SIZE, X_AT = PANELS_AT + 2 * Panel::BYTES;
  static_assert(Blocks::SIZE % 128 == 0, "panels and slabs begin on 128 bytes");
  extern __shared__ __align__(1024) u8 pool[];
  const u32 begin = shared_address(pool);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const Place<BM, BN> place(m, n, band);
  const u32 chunks = (k + CHUNK - 1) / CHUNK, first = place.matrix * chunks_per_split;
  const u32 end = min(chunks, first + chunks_per_split), slabs = first < end ? (end - first) * SLABS : 0;
  const Blocks blocks{weights, pitch, place.n, n};
  Feed<TileX, X_BYTES, THREADS> feed(x, x_step, 1, place.m, m, min(k, first * CHUNK), min(k, end * CHUNK));
  const Reader<TileX, WM, true> read_x(warp % (BM / WM) * WM, lane);
  const Reader<Panel, WN, false> read_w(warp / (BM / WM) * WN, lane);

  // Slab `at` of x, and with every fourth the blocks of a further chunk
  const auto fetch = [&](u32 at) {
    if (at < slabs) {
      const u32 to = begin + X_AT + at % STAGES * TileX::BYTES;
      feed.each(0, 1, false, [&](int, u32 within, const u8* from, int valid) { copy_async<X_BYTES>(to + within, from, valid); });
      feed.advance();
    }
    const u32 chunk = (at - (STAGES - 1)) / SLABS + RAWS - 1;
    if (at >= STAGES - 1 && (at - (STAGES - 1)) % SLABS == 0 && chunk * SLABS < slabs)
      blocks.fetch(begin + chunk % RAWS * Blocks::SIZE, first + chunk);
    commit_copies();
  };

  // 32 weights of a row of the slab `at` into its panel, eight at a time
  const u32 row = threadIdx.x / 2, half = threadIdx.x % 2;
  struct Widening { const u8* block; u32 weight; float scale, least; };
  const auto enter = [&](u32 at) {
    const u32 chunk = at / SLABS, weight = at % SLABS * SLAB + half * EACH, block = weight / F::WEIGHTS;
    const u8* from = pool + chunk % RAWS * Blocks::SIZE + row * Blocks::PITCH + blocks.shift(row, first + chunk);
    return Widening{from + block * F::BYTES, weight - block * F::WEIGHTS, 0, 0};
  };
  const auto eight = [&](Widening& w, u32 at, int i) {
    if (i * 8 % F::SUB == 0) {
      const typename F::template Scales<ALIGN> scales(w.block);
      w.scale = scales.scale((w.weight + i * 8) / F::SUB);
      w.least = scales.least((w.weight + i * 8) / F::SUB);
    }
    const u32 from = w.weight + i * 8;
    u32 packed[4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float value[4];
      widen<F>(value, F::Codes::template four<ALIGN>(w.block, from & ~15u, (from & 8) + 4 * h));
#pragma unroll
      for (int p = 0; p < 4; ++p) value[p] = F::LEAST ? fmaf(w.scale, value[p], -w.least) : w.scale * value[p];
#pragma unroll
      for (int p = 0; p < 2; ++p) packed[2 * h + p] = round_pair(value[2 * p], value[2 * p + 1], T{});
    }
    const int to = Panel::offset(int(row), int(half * EACH + i * 8) * 2);
    *reinterpret_cast<uint4*>(pool + PANELS_AT + at % 2 * Panel::BYTES + to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  };

  overlap::wait();
#pragma unroll
  for (int chunk = 0; chunk < RAWS - 1; ++chunk)
    if (chunk * SLABS < slabs) blocks.fetch(begin + chunk * Blocks::SIZE, first + chunk);
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage);
  if (slabs) {
    await_copies<STAGES - 2>();
    __syncthreads();
    Widening w = enter(0);
#pragma unroll
    for (int i = 0; i < EACH / 8; ++i) eight(w, 0, i);
  }

  // Slabs, each while the next is widened and further ones are under way
  WarpTile<T, WM, WN> tile;
  typename WarpTile<T, WM, WN>::Fragments fragments;
#pragma unroll 1
  for (u32 at = 0; at < slabs; ++at) {
    await_copies<STAGES - 2>();
    __syncthreads();
    fetch(at + STAGES - 1);
    const u32 from_x = begin + X_AT + at % STAGES * TileX::BYTES, from_w = begin + PANELS_AT + at % 2 * Panel::BYTES;
    const bool more = at + 1 < slabs;
    Widening w = enter(more ? at + 1 : at);
#pragma unroll
    for (int step = 0; step < SLAB / 16; ++step) {
      tile.load(fragments, read_x, from_x, read_w, from_w, step);
      if (more) eight(w, at + 1, step);
      tile.multiply(fragments);
    }
  }
  overlap::release();

  epilogue.out += place.matrix * slab;
  tile.store(epilogue, place.m + warp % (BM / WM) * WM, place.n + warp / (BM / WM) * WN, m, n, lane);
}
