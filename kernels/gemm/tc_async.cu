// out = epilogue(A B) by mma.sync with a cp.async pipeline: f16, bf16, f32 as tf32, f64.
//
// Tiling:   BM x BN per CTA, WM x WN per warp, k_blocks of BK in steps of one mma.
// Grid:     tile swizzle with `group_m` (Place) per matrix and split of K; splits are spaced by `split_stride`
//           elements.
// Loads:    vectors of A_BYTES and B_BYTES by cp.async (GlobalLoader), zero-filled; one-element vectors take any
//           strides.
// Pipeline: STAGES stages, one barrier per k_block; double-buffered fragments, loaded one mma step ahead.
// Order:    each output accumulates in the order of K, one mma after the other, for every tile shape.
// Registers: 128 accumulators per thread, so predicates, addresses and offsets must need few.
// Shared:   STAGES (BM + BN) BK sizeof(T) bytes, swizzled (tile.cuh).
// Bound:    mma.sync rate (on Hopper about 0.62 of wgmma's).
#include "ptx/async_copy.cuh"
#include "products/epilogue.cuh"
#include "products/global_loader.cuh"
#include "ptx/overlap.cuh"
#include "products/tile.cuh"

template <class T, class Epilogue, int BM, int BN, int BK, int WM, int WN, int STAGES, bool A_K_MAJOR, int A_BYTES,
    bool B_K_MAJOR, int B_BYTES>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, 1)
    tc_async(const T* a, const T* b, Epilogue epilogue, OperandStrides a_strides, OperandStrides b_strides, Batch batch,
        u32 M, u32 N, u32 K, u32 group_m, u32 splits, u32 k_per_split, u64 split_stride) {
  using TileA = Tile<T, BM, BK, A_K_MAJOR>;
  using TileB = Tile<T, BN, BK, B_K_MAJOR>;
  using LoaderA = GlobalLoader<TileA, A_BYTES, BM / WM * (BN / WN) * 32>;
  using LoaderB = GlobalLoader<TileB, B_BYTES, BM / WM * (BN / WN) * 32>;
  constexpr int STEPS = BK / Mma<T>::K, STAGE = TileA::BYTES + TileB::BYTES;
  constexpr int SETS = STEPS == 1 ? 1 : 2;  // fragment buffers
  static_assert(STEPS % SETS == 0, "each step has its own set");
  extern __shared__ __align__(1024) u8 memory[];
  const u32 begin = shared_address(memory), end = begin + STAGES * STAGE;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp % (BM / WM) * WM, warp_n = warp / (BM / WM) * WN;

  // 1. Tile, split of K, loaders, fragment readers
  const Place<BM, BN> place(M, N, group_m);
  const u32 split = place.matrix % splits;
  const BatchIndex index = batch.locate(place.matrix / splits);
  const u32 k_first = split * k_per_split, k_end = min(K, k_first + k_per_split);
  LoaderA loader_a(a + a_strides.batch_offset(index), a_strides.row, a_strides.col, place.m, M, k_first, k_end);
  LoaderB loader_b(b + b_strides.batch_offset(index), b_strides.col, b_strides.row, place.n, N, k_first, k_end);
  const Reader<TileA, WM, true> read_a(warp_m, lane);
  const Reader<TileB, WN, false> read_b(warp_n, lane);
  WarpTile<T, WM, WN> tile;
  typename WarpTile<T, WM, WN>::Fragments fragments[SETS] = {};

  // Copies part `share` of `shares` of a k_block into stage `write`; the last part commits and advances the stage
  u32 write = begin, read = begin;
  const auto issue_copies = [&](int share, int shares, bool whole) {
    if (whole || loader_a.k > 0) {
      const u32 to_a = write, to_b = write + TileA::BYTES;
      loader_a.each(share, shares, whole,
          [&](int, u32 at, const u8* from, int valid) { copy_async<A_BYTES>(to_a + at, from, valid); });
      loader_b.each(share, shares, whole,
          [&](int, u32 at, const u8* from, int valid) { copy_async<B_BYTES>(to_b + at, from, valid); });
    }
    if (share + 1 < shares) return;
    commit_copies();
    loader_a.advance();
    loader_b.advance();
    write = write + STAGE == end ? begin : write + STAGE;
  };
  // Multiplies the fragments loaded one step before
  const auto multiply = [&](int step) { tile.multiply(fragments[(step + STEPS - 1) % SETS]); };

  int left = (loader_a.k + BK - 1) / BK;  // k_blocks
  const bool inside = place.m + BM <= M && place.n + BN <= N;
  overlap::wait();
  // 2. Pipeline prologue
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) issue_copies(0, 1, false);
  // 3. Main loop. A k_block's last mma step runs after the next k_block's barrier (the first time on zeros), so that
  // the tensor cores have work during the first fragment loads. ldmatrix precedes cp.async, as ptxas does not reorder
  // them. Full k_blocks have a loop without predicates of their own if registers suffice for two loops (FREE).
  constexpr bool FREE = LoaderA::COUNT + LoaderB::COUNT < 16 && !Same<T, float>::value;
#pragma unroll
  for (int ragged = FREE ? 0 : 1; ragged < 2; ++ragged) {
#pragma unroll 1
    for (; ragged ? left > 0 : inside && loader_a.k >= BK; --left) {
      await_copies<STAGES - 2>();
      __syncthreads();
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        if constexpr (SETS == 1) multiply(step);
        tile.load(fragments[step % SETS], read_a, read, read_b, read + TileA::BYTES, step);
        issue_copies(step, STEPS, !ragged);  // refills the stage of the previous k_block
        if constexpr (SETS == 2) multiply(step);
      }
      read = read + STAGE == end ? begin : read + STAGE;
    }
  }
  overlap::release();
  multiply(0);

  // 4. Epilogue
  Epilogue finish = epilogue.at_batch(index);
  finish.out += split * split_stride;
  tile.store(finish, place.m + warp_m, place.n + warp_n, M, N, lane);
}
