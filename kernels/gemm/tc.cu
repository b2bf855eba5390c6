// out = epilogue(A B) by mma.sync, single-buffered: global memory -> registers -> shared memory -> tensor cores.
//
// Tiling:  BM x BN per CTA, WM x WN per warp, k_blocks of BK; tile swizzle with `group_m` (Place) per matrix.
// Loads:   a thread holds its vectors of the next k_block (GlobalLoader) in registers during the mma loop. One-element
//          vectors take any strides and alignment. Out-of-range elements are zero. Two barriers per k_block.
// Shared:  (BM + BN) BK sizeof(T) bytes, swizzled (tile.cuh).   Bound: latency between the barriers.
#include "ptx/async_copy.cuh"
#include "products/epilogue.cuh"
#include "products/global_loader.cuh"
#include "ptx/overlap.cuh"
#include "products/tile.cuh"

// Loads a vector of BYTES of which `valid` are in range; the rest is zero.
template <class T, int BYTES> __device__ __forceinline__ Vec<T, BYTES / sizeof(T)> fetch(const u8* from, int valid) {
  constexpr int COUNT = BYTES / sizeof(T);
  if (valid == BYTES) return *reinterpret_cast<const Vec<T, COUNT>*>(from);
  Vec<T, COUNT> vector{};
#pragma unroll
  for (int i = 0; i + 1 < COUNT; ++i)
    if (i * int(sizeof(T)) < valid) vector.at[i] = reinterpret_cast<const T*>(from)[i];
  return vector;
}

template <class T, class Epilogue, int BM, int BN, int BK, int WM, int WN, bool A_K_MAJOR, int A_BYTES, bool B_K_MAJOR,
    int B_BYTES>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, 1) tc(const T* a, const T* b, Epilogue epilogue,
    OperandStrides a_strides, OperandStrides b_strides, Batch batch, u32 M, u32 N, u32 K, u32 group_m) {
  using TileA = Tile<T, BM, BK, A_K_MAJOR>;
  using TileB = Tile<T, BN, BK, B_K_MAJOR>;
  constexpr int THREADS = BM / WM * (BN / WN) * 32;
  using LoaderA = GlobalLoader<TileA, A_BYTES, THREADS>;
  using LoaderB = GlobalLoader<TileB, B_BYTES, THREADS>;
  using VectorA = Vec<T, A_BYTES / sizeof(T)>;
  using VectorB = Vec<T, B_BYTES / sizeof(T)>;
  __shared__ __align__(1024) u8 memory[TileA::BYTES + TileB::BYTES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp % (BM / WM) * WM, warp_n = warp / (BM / WM) * WN;

  // 1. Tile, loaders, fragment readers
  const Place<BM, BN> place(M, N, group_m);
  const BatchIndex index = batch.locate(place.matrix);
  LoaderA loader_a(a + a_strides.batch_offset(index), a_strides.row, a_strides.col, place.m, M, 0, K);
  LoaderB loader_b(b + b_strides.batch_offset(index), b_strides.col, b_strides.row, place.n, N, 0, K);
  const Reader<TileA, WM, true> read_a(warp_m, lane);
  const Reader<TileB, WN, false> read_b(warp_n, lane);
  WarpTile<T, WM, WN> tile;
  VectorA held_a[LoaderA::COUNT];
  VectorB held_b[LoaderB::COUNT];

  const auto fetch_next = [&] {
    loader_a.each(
        0, 1, false, [&](int i, u32, const u8* from, int valid) { held_a[i] = fetch<T, A_BYTES>(from, valid); });
    loader_b.each(
        0, 1, false, [&](int i, u32, const u8* from, int valid) { held_b[i] = fetch<T, B_BYTES>(from, valid); });
    loader_a.advance();
    loader_b.advance();
  };
  const auto keep = [&] {  // on copies of the loaders, only for the shared offsets: the loaders are at the next k_block
    LoaderA(loader_a).each(
        0, 1, true, [&](int i, u32 to, const u8*, int) { *reinterpret_cast<VectorA*>(memory + to) = held_a[i]; });
    u8* const image_b = memory + TileA::BYTES;
    LoaderB(loader_b).each(
        0, 1, true, [&](int i, u32 to, const u8*, int) { *reinterpret_cast<VectorB*>(image_b + to) = held_b[i]; });
  };

  // 2. Main loop over k_blocks: store to shared memory, load the next k_block, multiply
  const int count = (loader_a.k + BK - 1) / BK;
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
  tile.store(epilogue.at_batch(index), place.m + warp_m, place.n + warp_n, M, N, lane);
}
