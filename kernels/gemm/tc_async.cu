// out = epilogue(A B) by mma.sync, its operands brought in by a cp.async pipeline: f16, bf16, f32 as tf32, f64.
//
// Tiling: a CTA has BM x BN of one matrix's result, a warp WM x WN of it; K goes by in tiles of BK and each in steps of one mma.
// Threads: a thread copies pieces of A_BYTES (B_BYTES) as feed.cuh says; where pieces are single elements any strides do. What
// lies beyond M, N or K is zero. Fragments of the next step are loaded while those of this one multiply. 128 of a thread's
// registers are accumulators, which leaves few: checks, addresses and offsets are made to need hardly any.
// Shared memory: STAGES (BM + BN) BK sizeof(T) bytes, swizzled as tile.cuh says; one barrier a K tile.
// Grid: tiles of the result in bands (Place), times matrices, times `splits` ranges of K whose results lie `slab` elements
// apart. Every element sums its products in the order of K, one mma step after the other, whatever the tile.
// Bound: the tensor cores' mma.sync rate (on Hopper about 0.62 of wgmma's).
#include "async_copy.cuh"
#include "epilogue.cuh"
#include "feed.cuh"
#include "overlap.cuh"
#include "tile.cuh"

template <class T, class Epilogue, int BM, int BN, int BK, int WM, int WN, int STAGES, bool A_K_MAJOR, int A_BYTES, bool B_K_MAJOR, int B_BYTES>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, 1)
tc_async(const T* a, const T* b, Epilogue epilogue, Walk a_walk, Walk b_walk, Batch batch, u32 M, u32 N, u32 K, u32 band, u32 splits,
         u32 k_per_split, u64 slab) {
  using TileA = Tile<T, BM, BK, A_K_MAJOR>;
  using TileB = Tile<T, BN, BK, B_K_MAJOR>;
  using FeedA = Feed<TileA, A_BYTES, BM / WM * (BN / WN) * 32>;
  using FeedB = Feed<TileB, B_BYTES, BM / WM * (BN / WN) * 32>;
  constexpr int STEPS = BK / Mma<T>::K, STAGE = TileA::BYTES + TileB::BYTES;
  constexpr int SETS = STEPS == 1 ? 1 : 2;  // of fragments, taking turns
  static_assert(STEPS % SETS == 0, "each step has its own set");
  extern __shared__ __align__(1024) u8 memory[];
  const u32 begin = shared_address(memory), end = begin + STAGES * STAGE;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp % (BM / WM) * WM, warp_n = warp / (BM / WM) * WN;

  const Place<BM, BN> place(M, N, band);
  const u32 split = place.matrix % splits;
  const BatchIndex index = batch.locate(place.matrix / splits);
  const u32 k_first = split * k_per_split, k_end = min(K, k_first + k_per_split);
  FeedA feed_a(a + a_walk.enter(index), a_walk.row, a_walk.col, place.m, M, k_first, k_end);
  FeedB feed_b(b + b_walk.enter(index), b_walk.col, b_walk.row, place.n, N, k_first, k_end);
  const Reader<TileA, WM, true> read_a(warp_m, lane);
  const Reader<TileB, WN, false> read_b(warp_n, lane);
  WarpTile<T, WM, WN> tile;
  typename WarpTile<T, WM, WN>::Fragments fragments[SETS] = {};

  u32 write = begin, read = begin;
  const auto bring = [&](int share, int shares, bool whole) {
    if (whole || feed_a.k > 0) {
      const u32 to_a = write, to_b = write + TileA::BYTES;
      feed_a.each(share, shares, whole, [&](int, u32 at, const u8* from, int valid) { copy_async<A_BYTES>(to_a + at, from, valid); });
      feed_b.each(share, shares, whole, [&](int, u32 at, const u8* from, int valid) { copy_async<B_BYTES>(to_b + at, from, valid); });
    }
    if (share + 1 < shares) return;
    commit_copies();
    feed_a.advance();
    feed_b.advance();
    write = write + STAGE == end ? begin : write + STAGE;
  };
  const auto multiply = [&](int step) { tile.multiply(fragments[(step + STEPS - 1) % SETS]); };  // what was loaded a step before

  int left = (feed_a.k + BK - 1) / BK;  // K tiles
  const bool inside = place.m + BM <= M && place.n + BN <= N;
  overlap::wait();
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) bring(0, 1, false);
  // A tile's last step multiplies after the barrier that opens the next tile (the first time it is zeros), so that the tensor
  // cores have work while the first fragments arrive; and loads go before copies, which ptxas will not move them past.
  // While what is brought lies within the operands, a loop of its own saves all checks, where there are registers for both.
  constexpr bool FREE = FeedA::COUNT + FeedB::COUNT < 16 && !Same<T, float>::value;
#pragma unroll
  for (int ragged = FREE ? 0 : 1; ragged < 2; ++ragged) {
#pragma unroll 1
    for (; ragged ? left > 0 : inside && feed_a.k >= BK; --left) {
      await_copies<STAGES - 2>();
      __syncthreads();
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        if constexpr (SETS == 1) multiply(step);
        tile.load(fragments[step % SETS], read_a, read, read_b, read + TileA::BYTES, step);
        bring(step, STEPS, !ragged);  // into the stage that was read before this one
        if constexpr (SETS == 2) multiply(step);
      }
      read = read + STAGE == end ? begin : read + STAGE;
    }
  }
  overlap::release();
  multiply(0);

  Epilogue finish = epilogue.enter(index);
  finish.out += split * slab;
  tile.store(finish, place.m + warp_m, place.n + warp_n, M, N, lane);
}
