// out = epilogue(A B) by mma.sync, single-buffered: global memory -> registers -> shared memory -> tensor cores.
//
// Tiling:  BM x BN per CTA, WM x WN per warp, k_blocks of BK; tile swizzle with group_m = `band` (Place) per matrix.
// Loads:   a thread holds its vectors of the next k_block (Feed) in registers during the mma loop. One-element vectors
//          take any strides and alignment. Out-of-range elements are zero. Two barriers per k_block.
// Shared:  (BM + BN) BK sizeof(T) bytes, swizzled (tile.cuh).   Bound: latency between the barriers.
#include "ptx/async_copy.cuh"
#include "products/epilogue.cuh"
#include "products/feed.cuh"
#include "ptx/overlap.cuh"
#include "products/tile.cuh"

// Loads a vector of BYTES of which `valid` are in range; the rest is zero.
template <class T, int BYTES> __device__ __forceinline__ Vec<T, BYTES / sizeof(T)> fetch(const u8* from, int valid) {
  constexpr int COUNT = BYTES / sizeof(T);
  if (valid == BYTES) return *reinterpret_cast<const Vec<T, COUNT>*>(from);
  Vec<T, COUNT> piece{};
#pragma unroll
  for (int i = 0; i + 1 < COUNT; ++i)
    if (i * int(sizeof(T)) < valid) piece.at[i] = reinterpret_cast<const T*>(from)[i];
  return piece;
}

template <class T, class Epilogue, int BM, int BN, int BK, int WM, int WN, bool A_K_MAJOR, int A_BYTES, bool B_K_MAJOR, int B_BYTES>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, 1)
tc(const T* a, const T* b, Epilogue epilogue, Walk a_walk, Walk b_walk, Batch batch, u32 M, u32 N, u32 K, u32 band) {
  using TileA = Tile<T, BM, BK, A_K_MAJOR>;
  using TileB = Tile<T, BN, BK, B_K_MAJOR>;
  constexpr int THREADS = BM / WM * (BN / WN) * 32;
  using FeedA = Feed<TileA, A_BYTES, THREADS>;
  using FeedB = Feed<TileB, B_BYTES, THREADS>;
  using PieceA = Vec<T, A_BYTES / sizeof(T)>;
  using PieceB = Vec<T, B_BYTES / sizeof(T)>;
  __shared__ __align__(1024) u8 memory[TileA::BYTES + TileB::BYTES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp % (BM / WM) * WM, warp_n = warp / (BM / WM) * WN;

  // 1. Tile, loaders, fragment readers
  const Place<BM, BN> place(M, N, band);
  const BatchIndex index = batch.locate(place.matrix);
  FeedA feed_a(a + a_walk.enter(index), a_walk.row, a_walk.col, place.m, M, 0, K);
  FeedB feed_b(b + b_walk.enter(index), b_walk.col, b_walk.row, place.n, N, 0, K);
  const Reader<TileA, WM, true> read_a(warp_m, lane);
  const Reader<TileB, WN, false> read_b(warp_n, lane);
  WarpTile<T, WM, WN> tile;
  PieceA held_a[FeedA::COUNT];
  PieceB held_b[FeedB::COUNT];

  const auto fetch_next = [&] {
    feed_a.each(0, 1, false, [&](int i, u32, const u8* from, int valid) { held_a[i] = fetch<T, A_BYTES>(from, valid); });
    feed_b.each(0, 1, false, [&](int i, u32, const u8* from, int valid) { held_b[i] = fetch<T, B_BYTES>(from, valid); });
    feed_a.advance();
    feed_b.advance();
  };
  const auto keep = [&] {  // on copies of the loaders, only for the shared offsets: the loaders are at the next k_block
    FeedA(feed_a).each(0, 1, true, [&](int i, u32 to, const u8*, int) { *reinterpret_cast<PieceA*>(memory + to) = held_a[i]; });
    u8* const image_b = memory + TileA::BYTES;
    FeedB(feed_b).each(0, 1, true, [&](int i, u32 to, const u8*, int) { *reinterpret_cast<PieceB*>(image_b + to) = held_b[i]; });
  };

  // 2. Main loop over k_blocks: store to shared memory, load the next k_block, multiply
  const int count = (feed_a.k + BK - 1) / BK;
  const u32 begin = shared_address(memory);
  overlap::wait();
  fetch_next();
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    keep();
    __syncthreads();
    fetch_next();  // past the last k_block it loads nothing (all predicates false)
#pragma unroll
    for (int step = 0; step < BK / Mma<T>::K; ++step) {
      typename WarpTile<T, WM, WN>::Fragments fragments;
      tile.load(fragments, read_a, begin, read_b, begin + TileA::BYTES, step);
      tile.multiply(fragments);
    }
    __syncthreads();
  }
  overlap::release();
  // 3. Epilogue
  tile.store(epilogue.enter(index), place.m + warp_m, place.n + warp_n, M, N, lane);
}
