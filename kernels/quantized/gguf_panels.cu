// out = epilogue(x w^T) for many rows x and GGUF weights w [N, K]: dequantized in shared memory, then mma.sync.
//
// Tiling:   BM x BN per CTA, WM x WN per warp; chunks of 256 weights of K in four k_blocks of 64.
// Pipeline: raw blocks by 16-byte cp.async, RAWS chunk stages (SHIFTED: unaligned chunks from the aligned address
//           below); x by cp.async, four k_block stages; during the mmas of a k_block each thread dequantizes 32 weights
//           of the next one into the other of two swizzled panels of BN rows of 128 bytes. One barrier per k_block.
// Grid:     tile swizzle with `group_m` (Place), times splits of K, spaced by `split_stride` elements, added by
//           reduce.cu.
// Order:    each output accumulates in the order of K, one mma after the other.
// Shared:   RAWS chunks of BN rows (Q4_K: 144 bytes each), two panels of BN 128 bytes, 4 BM 128 bytes of x.
// Bound:    issue: about 5 instructions per Q4_K weight and BM-row tile to dequantize; N = 8192, K = 28672 in 45 us,
//           where the blocks' DRAM time is 29 us. For large M the mma.sync rate.
#include "products/epilogue.cuh"
#include "products/global_loader.cuh"
#include "ptx/overlap.cuh"
#include "quantized/gguf/staging.cuh"
#include "products/tile.cuh"

constexpr u32 CHUNK = 256, BLOCK_K = 64, K_BLOCKS = CHUNK / BLOCK_K;

// Dequantizes four code bytes, bit for bit as dequantize_gguf: in formats with a minimum the product is exact, so an
// FMA will do.
template <class F, class T> struct Widening {
  static constexpr float OFF = 8388608.0f + F::LESS + (F::SIGNED ? 128 : 0);
  float scale, least;

  template <class Scales> __device__ __forceinline__ void prologue(const Scales& scales, u32 sub) {
    scale = scales.scale(sub);
    least = scales.least(sub);
  }
  __device__ __forceinline__ void four(u32 (&packed)[2], u32 codes) const {
    if constexpr (F::SIGNED) codes ^= 0x80808080u;
    float x[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const float code = __uint_as_float(__byte_perm(codes, 0x4b000000u, 0x7440u + i)) - OFF;
      x[i] = F::LEAST ? fmaf(scale, code, -least) : scale * code;
    }
#pragma unroll
    for (int p = 0; p < 2; ++p) packed[p] = round_pair(x[2 * p], x[2 * p + 1], T{});
  }
};

template <class F, class T, class Epi, int ALIGN, bool SHIFTED, int BM, int BN, int WM, int WN, int RAWS, int CTAS,
    int X_BYTES>
__global__ void __launch_bounds__(2 * BN, CTAS) gguf_panels(const T* x, const u8* weights, Epi epilogue, i64 x_step,
    i64 pitch, u32 m, u32 n, u32 k, u32 group_m, u32 chunks_per_split, u64 split_stride) {
  constexpr int THREADS = 2 * BN, EACH = 32;
  static_assert(BM / WM * (BN / WN) * 32 == THREADS, "two threads widen a row of a k_block");
  using TileX = Tile<T, BM, BLOCK_K, true>;
  using Panel = Tile<T, BN, BLOCK_K, true>;
  using S = gguf::Slot<F, ALIGN, SHIFTED, CHUNK>;
  constexpr u32 SLOT = BN * S::PITCH, PANELS_AT = RAWS * SLOT, X_AT = PANELS_AT + 2 * Panel::BYTES;
  static_assert(SLOT % 128 == 0, "panels and stages begin on 128 bytes");
  extern __shared__ __align__(1024) u8 pool[];
  const u32 begin = shared_address(pool), row = threadIdx.x / 2, half = threadIdx.x % 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  // 1. Loaders. Out-of-range weight rows are clamped to the last and not stored
  const Place<BM, BN> place(m, n, group_m);
  const u32 chunks = (k + CHUNK - 1) / CHUNK, first = place.matrix * chunks_per_split,
            end = min(chunks, first + chunks_per_split);
  const gguf::RowCopies<S> blocks{weights + i64(min(place.n + row, n - 1)) * pitch, pitch};
  GlobalLoader<TileX, X_BYTES, THREADS> loader(x, x_step, 1, place.m, m, min(k, first * CHUNK), min(k, end * CHUNK));
  const Reader<TileX, WM, true> read_x(warp % (BM / WM) * WM, lane);
  const Reader<Panel, WN, false> read_w(warp / (BM / WM) * WN, lane);

  const auto fetch_x = [&](u32 stage) {  // zero-filled past the split's end
    loader.each(0, 1, false, [&](int, u32 at, const u8* from, int valid) {
      copy_async<X_BYTES>(begin + X_AT + stage * TileX::BYTES + at, from, valid);
    });
    loader.advance();
  };
  // Dequantizes eight (number `i`) of the thread's 32 weights of k_block `sub` of the chunk in `slot`; `i`, `sub`
  // compile-time
  Widening<F, T> widening;
  const auto widen = [&](u32 slot, u32 chunk, u32 sub, u32 i) {
    const u32 first_weight = sub * BLOCK_K + half * EACH, block = first_weight / F::WEIGHTS,
              weight = first_weight % F::WEIGHTS + i * 8;
    const u8* from = pool + slot * SLOT + row * S::PITCH + blocks.shift(chunk) + block * F::BYTES;
    if (i * 8 % F::SUB == 0) widening.prologue(typename F::template Scales<ALIGN>(from), weight / F::SUB);
    u32 packed[2][2];
#pragma unroll
    for (u32 h = 0; h < 2; ++h)
      widening.four(packed[h], F::Codes::template four<ALIGN>(from, weight & ~15u, i * 8 % 16 + 4 * h));
    *reinterpret_cast<uint4*>(pool + PANELS_AT + sub % 2 * Panel::BYTES +
        Panel::offset(int(row), int(half * EACH + i * 8) * 2)) = make_uint4(packed[0][0], packed[0][1], packed[1][0],
        packed[1][1]);
  };

  // 2. Pipeline prologue, first panel
  overlap::wait();
#pragma unroll
  for (u32 chunk = 0; chunk < RAWS - 1; ++chunk)
    if (first + chunk < end) blocks.start(begin + chunk * SLOT + row * S::PITCH, first + chunk);
#pragma unroll
  for (u32 stage = 0; stage < K_BLOCKS - 1; ++stage) {
    fetch_x(stage);
    commit_copies();
  }
  if (first < end) {
    await_copies<K_BLOCKS - 2>();
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < EACH / 8; ++i) widen(0, first, 0, i);
  }

  // 3. Main loop over k_blocks: refill stages, multiply, dequantize the next k_block between the mma steps
  WarpTile<T, WM, WN> tile;
  typename WarpTile<T, WM, WN>::Fragments fragments;
  u32 slot = 0;
#pragma unroll 1
  for (u32 chunk = first; chunk < end; ++chunk) {
    const u32 next_slot = slot + 1 == RAWS ? 0 : slot + 1, last_slot = slot == 0 ? RAWS - 1 : slot - 1;
#pragma unroll
    for (u32 sub = 0; sub < K_BLOCKS; ++sub) {
      await_copies<K_BLOCKS - 2>();
      __syncthreads();
      if (sub == 0 && chunk + RAWS - 1 < end) blocks.start(begin + last_slot * SLOT + row * S::PITCH, chunk + RAWS - 1);
      fetch_x((sub + K_BLOCKS - 1) % K_BLOCKS);
      commit_copies();
      const u32 from_x = begin + X_AT + sub * TileX::BYTES, from_w = begin + PANELS_AT + sub % 2 * Panel::BYTES;
#pragma unroll
      for (u32 step = 0; step < BLOCK_K / 16; ++step) {
        tile.load(fragments, read_x, from_x, read_w, from_w, step);
        if (sub + 1 < K_BLOCKS) widen(slot, chunk, sub + 1, step);
        else if (chunk + 1 < end) widen(next_slot, chunk + 1, 0, step);
        tile.multiply(fragments);
      }
    }
    slot = next_slot;
  }
  overlap::release();

  // 4. Epilogue
  epilogue.out += place.matrix * split_stride;
  tile.store(epilogue, place.m + warp % (BM / WM) * WM, place.n + warp / (BM / WM) * WN, m, n, lane);
}
