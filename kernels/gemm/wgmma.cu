// out = epilogue(A B) on Hopper's warpgroup tensor cores, for 16-bit operands.
//
// A CTA is one producer warpgroup and BM / (64 ROWS) consumer warpgroups; it is persistent and takes tiles BM x BN of the
// result by a fixed raster. The producer's one thread copies boxes of A and B by TMA, 64 of K at a time, into a ring of
// STAGES; a consumer multiplies 64 ROWS rows by all BN columns, f32 accumulators in registers, one stage behind its release.
// A cluster of two CTAs, one above the other, shares B: each copies half of it into both.
// Layouts: K-major or MN-major boxes in 128-byte swizzled rows, as the operand lies. Edges: TMA reads zeros and clips writes.
// Epilogue: accumulators are finished in registers; with STAGED, stmatrix into two buffers a warpgroup, whence TMA stores
// while the next tile begins; else straight to global memory.
// Shared memory: STAGES (BM + BN) 128 B, and 16 KB a consumer where STAGED. Bound: tensor cores; power beyond 2048^3.
#include "epilogue.cuh"
#include "overlap.cuh"
#include "raster.cuh"
#include "tma.cuh"
#include "warpgroup.cuh"

constexpr int BK = 64;

struct Extents {
  u32 m, n, k_blocks, splits, blocks_per_split;  // k in blocks of BK
  u32 a_batched[3], b_batched[3];                // 0 where an operand is broadcast
  i64 slab;                                      // elements from one split's result to the next
};

template <int BM, int BN, int STAGES, bool B_MN> struct Ring {
  static constexpr u32 A_BYTES = BM * BK * 2, B_BYTES = (B_MN ? (BN + 63) / 64 * 64 : BN) * BK * 2, STAGE = A_BYTES + B_BYTES;
  u32 base, barriers;
  __device__ __forceinline__ u32 a(u32 stage) const { return base + stage * STAGE; }
  __device__ __forceinline__ u32 b(u32 stage) const { return base + stage * STAGE + A_BYTES; }
  __device__ __forceinline__ u32 full(u32 stage) const { return barriers + stage * 16; }
  __device__ __forceinline__ u32 empty(u32 stage) const { return barriers + stage * 16 + 8; }
  __device__ __forceinline__ u32 staging(u32 consumer) const { return base + STAGES * STAGE + consumer * 16384; }
};

// A place in the ring and the parity of its present round.
template <int STAGES> struct Cursor {
  u32 stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

__device__ __forceinline__ BatchIndex only(const BatchIndex& b, const u32 (&batched)[3]) {
  return {{b.at[0] * batched[0], b.at[1] * batched[1], b.at[2] * batched[2]}};
}

// Boxes of one operand's stage: EXTENT of mn from `mn`, BK of k from `k`. PARTS CTAs each copy their part into all.
template <int EXTENT, bool MN_MAJOR, bool BATCHED, int PARTS>
__device__ __forceinline__ void fill(u32 to, const TensorMap& map, i32 mn, i32 k, const BatchIndex& b, u32 full, u32 part) {
  constexpr u16 EVERY = (1 << PARTS) - 1;
  if constexpr (MN_MAJOR) {
    constexpr int SLABS = (EXTENT + 63) / 64;
#pragma unroll
    for (int i = 0; i < SLABS / PARTS; ++i) {
      u32 slab = part * (SLABS / PARTS) + i;
      tma::load<BATCHED, (PARTS > 1)>(to + slab * (64 * BK * 2), map, mn + slab * 64, k, b, full, EVERY);
    }
  } else {
    tma::load<BATCHED, (PARTS > 1)>(to + part * (EXTENT / PARTS * BK * 2), map, k, mn + part * (EXTENT / PARTS), b, full, EVERY);
  }
}

// A consumer's tile of 64 x BN accumulators, finished and stored.
template <int BN, bool STAGED, bool BATCHED, class E>
__device__ __forceinline__ void finish(float (&acc)[BN / 2], const E& epilogue, const TensorMap& out, const Extents& extents, i64 row, i64 col,
                                       const BatchIndex& batch, u32 staging, u32 name) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, m = warp * 16 + lane / 4, n = lane % 4 * 2;
  if constexpr (!STAGED) {
#pragma unroll
    for (int i = 0; i < BN / 4; ++i) {
      const i64 at_row = row + m + i % 2 * 8, at_col = col + n + i / 2 * 8;
      float pair[2] = {acc[2 * i], acc[2 * i + 1]};
      if (at_row < extents.m && at_col < extents.n) epilogue.store(pair, at_row, at_col, at_col + 1 < extents.n);
    }
  } else {
    constexpr int WIDTH = BN % 64 ? 32 : 64;  // columns of one store's box: a swizzled row
    const u32 at = warp * 16 + lane % 16, swizzle = WIDTH == 64 ? at % 8 : at / 2 % 4;
#pragma unroll
    for (int part = 0; part < BN / WIDTH; ++part) {
      const u32 buffer = staging + part % 2 * 8192;
      if (threadIdx.x % 128 == 0) tma::wait_stores_read<1>();
      meet(name, 128);
#pragma unroll
      for (int i = 0; i < WIDTH / 16; ++i) {
        u32 packed[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const int r = part * WIDTH / 2 + i * 8 + q * 2;
          float pair[2] = {acc[r], acc[r + 1]};
          const i64 at_row = row + m + q % 2 * 8, at_col = col + part * WIDTH + i * 16 + q / 2 * 8 + n;
          if (at_row < extents.m && at_col < extents.n) epilogue.values(pair, at_row, at_col, at_col + 1 < extents.n);
          packed[q] = round_pair(pair[0], pair[1], typename E::Out{});
        }
        warpgroup::store_matrices(buffer + at * (WIDTH * 2) + ((i * 2 + lane / 16) ^ swizzle) * 16, packed[0], packed[1], packed[2], packed[3]);
      }
      tma::fence_shared();
      meet(name, 128);
      if (threadIdx.x % 128 == 0) {
        tma::store<BATCHED>(out, buffer, i32(col) + part * WIDTH, i32(row), batch);
        tma::commit_stores();
      }
    }
  }
}

template <class In, int BM, int BN, int ROWS, int STAGES, int CLUSTER, bool A_MN, bool B_MN, bool BATCHED, bool STAGED, class E>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128 + BM / ROWS * 2, 1)
    gemm(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap out_map, const E epilogue,
         const Raster raster, const Extents extents) {
  constexpr int CONSUMERS = BM / (64 * ROWS);
  extern __shared__ u8 raw[];
  Ring<BM, BN, STAGES, B_MN> ring;
  ring.base = (shared_address(raw) + 1023) & ~1023u;
  ring.barriers = ring.staging(STAGED ? CONSUMERS : 0);

  const u32 group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), rank = CLUSTER > 1 ? cluster::rank() : 0;
  if (threadIdx.x == 0) {
    tma::prefetch(a_map);
    tma::prefetch(b_map);
    if constexpr (STAGED) tma::prefetch(out_map);
    for (int s = 0; s < STAGES; ++s) {
      barrier::init(ring.full(s), 1);
      barrier::init(ring.empty(s), CONSUMERS * 4 * CLUSTER);
    }
    barrier::fence_init();
  }
  __syncthreads();
  if constexpr (CLUSTER > 1) cluster::sync();
  overlap::wait();
  overlap::release();

  const u32 count = raster.rows * raster.cols * raster.batches * extents.splits;
  const u32 begin = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
  Cursor<STAGES> cursor;

  if (group == 0) {
    if constexpr (CONSUMERS == 2) warpgroup::give_registers<24>();
    if (__shfl_sync(0xffffffff, threadIdx.x / 32, 0) == 0 && elected()) {
      for (u32 i = begin; i < count; i += step) {
        const Work work = raster.locate(i);
        const i32 row = (work.m * CLUSTER + rank) * BM, col = work.n * BN;
        const BatchIndex a_batch = only(work.batch, extents.a_batched), b_batch = only(work.batch, extents.b_batched);
        const u32 first = work.split * extents.blocks_per_split, last = min(extents.k_blocks, first + extents.blocks_per_split);
        for (u32 block = first; block < last; ++block, cursor.next()) {
          const u32 full = ring.full(cursor.stage);
          barrier::wait(ring.empty(cursor.stage), cursor.parity ^ 1);
          barrier::expect(full, ring.STAGE);
          fill<BM, A_MN, BATCHED, 1>(ring.a(cursor.stage), a_map, row, block * BK, a_batch, full, 0);
          fill<BN, B_MN, BATCHED, CLUSTER>(ring.b(cursor.stage), b_map, col, block * BK, b_batch, full, rank);
        }
      }
    }
  } else {
    if constexpr (CONSUMERS == 2) warpgroup::take_registers<240>();
    const u32 consumer = group - 1, lane = threadIdx.x % 32;
    const auto release = [&](u32 stage) {
      if constexpr (CLUSTER > 1) {
        if (lane < CLUSTER) barrier::arrive_in_cluster(ring.empty(stage), lane);
      } else {
        if (lane == 0) barrier::arrive(ring.empty(stage));
      }
    };
    for (u32 i = begin; i < count; i += step) {
      const Work work = raster.locate(i);
      const u32 first = work.split * extents.blocks_per_split, last = min(extents.k_blocks, first + extents.blocks_per_split);
      float acc[ROWS][BN / 2];
      u32 before = 0;
      for (u32 block = first; block < last; ++block) {
        barrier::wait(ring.full(cursor.stage), cursor.parity);
        const u64 a = warpgroup::descriptor<A_MN, BK>(ring.a(cursor.stage)) + consumer * ROWS * warpgroup::NEXT_64;
        const u64 b = warpgroup::descriptor<B_MN, BK>(ring.b(cursor.stage));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) warpgroup::pin(acc[r]);
        warpgroup::arrive();
#pragma unroll
        for (int k = 0; k < BK / 16; ++k)
#pragma unroll
          for (int r = 0; r < ROWS; ++r)
            wgmma(acc[r], a + k * warpgroup::NEXT_K16<A_MN> + r * warpgroup::NEXT_64, b + k * warpgroup::NEXT_K16<B_MN>, k || block != first);
        warpgroup::commit();
        warpgroup::wait<1>();
        if (block != first) release(before);
        before = cursor.stage;
        cursor.next();
      }
      warpgroup::wait<0>();
#pragma unroll
      for (int r = 0; r < ROWS; ++r) warpgroup::pin(acc[r]);
      release(before);

      E finishing = epilogue.enter(work.batch);
      finishing.out += work.split * extents.slab;
      const i64 row = i64(work.m * CLUSTER + rank) * BM + consumer * ROWS * 64, col = i64(work.n) * BN;
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        finish<BN, STAGED, BATCHED>(acc[r], finishing, out_map, extents, row + r * 64, col, work.batch, ring.staging(consumer), consumer + 1);
    }
  }
  if constexpr (CLUSTER > 1) cluster::sync();  // the other CTA may still write here, or arrive
}
