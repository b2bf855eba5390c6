// out = epilogue(A B) by wgmma (Hopper) with f32 accumulators: f16, bf16, f32 as tf32, fp8.
//
// Tiling:   persistent CTAs, RESIDENT per SM; BM x BN tiles, swizzled (raster.cuh); k_blocks of 128 bytes of K.
// Threads:  one producer warpgroup, of which one thread issues TMA, and one or two consumer warpgroups of 64 ROWS rows
//           by BN columns. Two consumers share a tile, or (BM = 64 * ROWS) alternate between tiles: ping-pong.
// Pipeline: STAGES stages (StageBuffers), full, empty mbarriers; a stage is released after the next wgmmas are issued.
// Cluster:  either CLUSTER CTAs stacked along M, which load 1 / CLUSTER of the B tile each and multicast it, or SPLIT
//           CTAs that split K of one tile and reduce through DSMEM in rank order; these compute one tile only.
// fp8:      the tensor cores accumulate 14 bits (DeepSeek-V3, arXiv:2412.19437, section 3.3.2). PROMOTED: per-k_block
//           accumulators are promoted to f32 and multiplied by the block scales, if any.
// Edges:    K-major or (16-bit) MN-major boxes, 128-byte swizzle. TMA zero-fills past the end of K. Rows past M or N
//           are not loaded (the last box is shorter), as zero fill is slower than a read; the stage's stale rows only
//           reach results that are not stored.
// Epilogue: registers -> shared memory -> TMA store, overlapped with the next tile; ragged rows by warps; or direct.
// Shared:   STAGES (BM + BN) 128 B + block scales + at most two 8 KB buffers per consumer; split K reuses the stages.
// Bound:    tensor cores; power above 2048^3; DRAM for few rows.
#include "ptx/cluster.cuh"
#include "products/epilogue.cuh"
#include "ptx/overlap.cuh"
#include "products/raster.cuh"
#include "products/staging.cuh"
#include "products/accumulator.cuh"
#include "ptx/tma.cuh"

constexpr int BLOCK_K_BYTES = 128;  // bytes of K per stage, one row of the 128-byte swizzle
// Named barriers. BARRIER_PING_PONG, and that + 1: the consumer of that index may issue its wgmmas (ping-pong).
// BARRIER_DRAINED: the other consumer's wgmmas have read the stages. 1 and 2 are the epilogues' (group).
constexpr u32 BARRIER_PING_PONG = 4, BARRIER_DRAINED = 6;

// How the epilogue stores a tile: directly from registers (DIRECT), or through shared memory, by TMA or by warps.
// *_ROW: the rows of `out` are contiguous; *_COLUMN: its columns are, so the tile is transposed.
enum EpilogueStore { DIRECT, TMA_ROW, TMA_COLUMN, WARP_ROW, WARP_COLUMN };

struct Extents {
  u32 m, n, k_blocks;                   // number of k_blocks
  u32 a_batched[3], b_batched[3];    // 1 per batch axis of the operand, 0 where it is broadcast
};

struct Boxes {
  TensorMap whole, edge;  // full boxes (of B: 1 / CLUSTER of a tile), and the last, shorter one (K-major)
};

// The stage buffers (A, then B), the barriers (16 bytes per stage), and 512 bytes further the stages' block scales.
template <int BM, int BN, int STAGES, bool B_MN, int SCALES> struct StageBuffers {
  static constexpr u32 A_BYTES = BM * BLOCK_K_BYTES, B_BYTES = (B_MN ? (BN + 63) / 64 * 64 : BN) * BLOCK_K_BYTES,
                       STAGE = A_BYTES + B_BYTES;
  u32 base, barriers;
  __device__ __forceinline__ u32 a(u32 stage) const { return base + stage * STAGE; }
  __device__ __forceinline__ u32 b(u32 stage) const { return base + stage * STAGE + A_BYTES; }
  __device__ __forceinline__ u32 full(u32 stage) const { return barriers + stage * 16; }
  __device__ __forceinline__ u32 empty(u32 stage) const { return barriers + stage * 16 + 8; }
  __device__ __forceinline__ u32 scales(u32 stage) const { return barriers + 512 + stage * SCALES; }
};

// Loads one operand's k_block into a stage: EXTENT rows from `mn`, of which `left` exist, from element `k` of K. With
// PARTS > 1, this CTA loads part `part` and multicasts it to all. MN_MAJOR: a box is 64 mn wide.
template <int EXTENT, bool MN_MAJOR, bool BATCHED, int PARTS>
__device__ __forceinline__ void fill(
    u32 to, const Boxes& boxes, i32 mn, i32 left, i32 k, const BatchIndex& b, u32 full, u32 part) {
  constexpr u16 EVERY = (1 << PARTS) - 1;
  if constexpr (MN_MAJOR) {
    constexpr int BOXES = (EXTENT + 63) / 64;
#pragma unroll
    for (int i = 0; i < BOXES / PARTS; ++i) {
      const i32 box = part * (BOXES / PARTS) + i;
      if (box * 64 < left)
        tma::load<BATCHED, (PARTS > 1)>(to + box * (64 * BLOCK_K_BYTES), boxes.whole, mn + box * 64, k, b, full, EVERY);
    }
  } else {
    const i32 offset = part * (EXTENT / PARTS);
    const TensorMap& map = left - offset < EXTENT / PARTS ? boxes.edge : boxes.whole;
    if (offset < left)
      tma::load<BATCHED, (PARTS > 1)>(to + offset * BLOCK_K_BYTES, map, k, mn + offset, b, full, EVERY);
  }
}

// Bytes of one operand that arrive at a CTA's full barrier, from all parts. Boxes of 64 mn count whole (zero-filled).
template <int EXTENT, bool MN_MAJOR> __device__ __forceinline__ u32 arriving(i32 left) {
  if constexpr (MN_MAJOR) return min((max(left, 0) + 63) / 64, (EXTENT + 63) / 64) * (64 * BLOCK_K_BYTES);
  return min(max(left, 0), EXTENT) * BLOCK_K_BYTES;
}

// Epilogue of one consumer's 64 x BN accumulators, in parts of WIDTH columns: double-buffered, or with one buffer per
// part if the stages are free (`roomy`). `whole`: the per-tensor scale. `name`: the consumer's named barrier.
template <int BN, EpilogueStore STORE, bool BATCHED, class E>
__device__ __forceinline__ void finish(float (&acc)[BN / 2], const E& epilogue, const TensorMap& out,
    const Extents& extents, i64 row, i64 col, const BatchIndex& batch, float whole, u32 buffers, bool roomy, u32 name) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, m = warp * 16 + lane / 4, n = lane % 4 * 2;
  asm volatile("" : "+l"(col));  // opaque: otherwise ptxas keeps all column offsets across calls and spills them
  // Two neighbouring accumulators times their scales. Indices are clamped at the edges, so the loads are unconditional.
  const auto pair_of = [&](float (&pair)[2], int r, i64 at_row, i64 at_col) {
    pair[0] = acc[r] * whole;
    pair[1] = acc[r + 1] * whole;
    epilogue.scale(
        pair, min(at_row, i64(extents.m) - 1), min(at_col, i64(extents.n) - 1), min(at_col + 1, i64(extents.n) - 1));
  };
  if constexpr (STORE == DIRECT) {
    // Direct stores from the wgmma accumulator layout
#pragma unroll
    for (int i = 0; i < BN / 4; ++i) {
      const i64 at_row = row + m + i % 2 * 8, at_col = col + n + i / 2 * 8;
      float pair[2];
      pair_of(pair, 2 * i, at_row, at_col);
      if (at_row < extents.m && at_col < extents.n) epilogue.store(pair, at_row, at_col, at_col + 1 < extents.n);
    }
  } else {
    using Out = typename E::Out;
    constexpr bool TRANSPOSED = STORE == TMA_COLUMN || STORE == WARP_COLUMN;
    constexpr bool BY_TMA = STORE == TMA_ROW || STORE == TMA_COLUMN;
    constexpr int WIDTH = staging::WIDEST<Out, BN>, PARTS = BN / WIDTH;  // WIDTH: columns per store box
    using Part = staging::Part<Out, WIDTH, TRANSPOSED>;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const i64 x = col + i * WIDTH;
      const u32 buffer = buffers + (roomy ? i : i % 2) * staging::BUFFER<Out, BN>;
      // Finish in registers, before any wait, so that the loads of c, bias and residual overlap: inside the matrix none
      // of them is behind a branch
      Part part;
      const auto finish_part = [&](bool inside) {
#pragma unroll
        for (int group = 0; group < WIDTH / 8; ++group)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float pair[2];
            const i64 at_row = row + m + half * 8, at_col = x + group * 8 + n;
            pair_of(pair, i * WIDTH / 2 + group * 4 + half * 2, at_row, at_col);
            if (inside || !E::READS || (at_row < extents.m && at_col < extents.n))
              epilogue.values(pair, at_row, at_col, inside || at_col + 1 < extents.n);
            part.set(group, half, pair);
          }
      };
      if (E::READS && row + 64 <= extents.m && x + WIDTH <= extents.n) finish_part(true);
      else finish_part(false);
      // Wait until the buffer's previous TMA store has read it
      if (BY_TMA && !roomy && threadIdx.x % 128 == 0) {
        if (i == 0 && PARTS % 2) tma::wait_stores_read<0>();  // PARTS odd: the previous call's last part used it too
        else tma::wait_stores_read<1>();
      }
      barrier_sync(name, 128);
      // Registers to shared memory, then to global memory by warp stores or by one TMA store
      part.write(buffer, warp, lane);
      if constexpr (BY_TMA) tma::fence_shared();
      barrier_sync(name, 128);
      if constexpr (!BY_TMA) {
        constexpr int SIZE = sizeof(Out);
        u8* const to = reinterpret_cast<u8*>(epilogue.out + epilogue.out_strides.at(row, x));
        const i64 rows = extents.m - row, cols = extents.n - x;
        if constexpr (TRANSPOSED) {
          staging::store_by_warps<u16, WIDTH, Part::ROW_BYTES>(
              buffer, to, epilogue.out_strides.col * SIZE, cols, rows * SIZE);
        } else {
          using Word = typename Word<E::PAIRS ? 4 : SIZE>::type;
          staging::store_by_warps<Word, 64, Part::ROW_BYTES>(
              buffer, to, epilogue.out_strides.row * SIZE, rows, cols * SIZE);
        }
      } else if (threadIdx.x % 128 == 0) {
        tma::store<BATCHED>(out, buffer, i32(TRANSPOSED ? row : x), i32(TRANSPOSED ? x : row), batch);
        tma::commit_stores();
      }
    }
  }
}

template <class In, int BM, int BN, int ROWS, int CONSUMERS, int STAGES, int CLUSTER, int SPLIT, int RESIDENT,
    bool A_MN, bool B_MN, bool BATCHED, EpilogueStore STORE, class Accumulator, class E>
__global__ void __cluster_dims__(CLUSTER* SPLIT, 1, 1) __launch_bounds__(128 * (1 + CONSUMERS), RESIDENT)
    gemm(const __grid_constant__ Boxes a, const __grid_constant__ Boxes b, const __grid_constant__ TensorMap out_map,
        const E epilogue, const Raster raster, const Extents extents, const __grid_constant__ Accumulator accumulator) {
  constexpr int BK = BLOCK_K_BYTES / sizeof(In);
  constexpr int SHARERS = BM / (64 * ROWS);  // consumers per tile
  constexpr bool PING_PONG = SHARERS < CONSUMERS;
  constexpr int SCALES = Accumulator::template STAGED<BM>;
  constexpr int REGISTERS = 65536 / (128 * (1 + CONSUMERS) * RESIDENT) / 8 * 8;  // per thread, at launch
  constexpr int KEPT = BATCHED ? 56 : 40;  // registers per producer thread after setmaxnreg
  static_assert(
      RESIDENT == 1 || CONSUMERS == 1, "only two consumers and a producer share out registers, all of an SM's");
  // 1. Shared memory: stages, epilogue buffers, barriers. Split K: received partial sums and buffers overlay the stages
  extern __shared__ __align__(1024) u8 raw[];
  StageBuffers<BM, BN, STAGES, B_MN, SCALES> stages;
  // The last tile's epilogue buffers (`roomy`) fit the stages
  static_assert(SHARERS > 1 || SPLIT > 1 || STAGES * decltype(stages)::STAGE >= BM * BN * sizeof(typename E::Out));
  stages.base = shared_address(raw);
  // PARCEL: bytes of partial sums from one peer; MAIL: from all peers (inbox)
  constexpr u32 PARCEL = BM * BN / SPLIT * 4, MAIL = PARCEL * (SPLIT - 1);
  constexpr u32 BUFFERS = STORE == DIRECT ? 0 : staging::BUFFERS<typename E::Out, BN / SPLIT>,
                STAGED = CONSUMERS * BUFFERS;
  constexpr u32 IN_FLIGHT = STAGES * decltype(stages)::STAGE, AFTERWARDS = MAIL + STAGED;
  const u32 inbox = stages.base, staging = stages.base + (SPLIT > 1 ? MAIL : IN_FLIGHT);
  stages.barriers = stages.base + (SPLIT == 1 ? IN_FLIGHT + STAGED : IN_FLIGHT > AFTERWARDS ? IN_FLIGHT : AFTERWARDS);
  const u32 arrived = stages.full(STAGES);

  // 2. Roles. above: the CTA's tile row in a multicast cluster, whose CLUSTER stacked tiles are one tile of the raster;
  // part: its split of K, k_blocks [first, last). sharer: the consumer's part of a shared tile; pair_index: its index
  // in a ping-pong pair. step: tiles of the raster per pass of the grid
  const u32 group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), rank = CLUSTER * SPLIT > 1 ? cluster::rank() : 0;
  const u32 above = CLUSTER > 1 ? rank : 0, part = SPLIT > 1 ? rank : 0;
  const u32 consumer = group - 1, sharer = PING_PONG ? 0 : consumer, pair_index = PING_PONG && group > 0 ? consumer : 0;
  const u32 step = gridDim.x / (CLUSTER * SPLIT);
  const u32 first = part * extents.k_blocks / SPLIT, last = (part + 1) * extents.k_blocks / SPLIT;
  u32 at = raster.begin + blockIdx.x / (CLUSTER * SPLIT) + pair_index * step;
  Work work = raster.locate(min(at, raster.end - 1));  // divisions overlap the previous kernel (PDL)
  asm volatile("" : "+r"(work.m), "+r"(work.n));
  // 3. Prefetch tensor maps, initialise barriers. A stage is empty when the consumer warps of all CTAs have released it
  if (threadIdx.x == 0) {
    tma::prefetch(a.whole);
    tma::prefetch(b.whole);
    accumulator.prefetch();
    if constexpr (STORE != DIRECT) tma::prefetch(out_map);
    for (int s = 0; s < STAGES; ++s) {
      barrier::init(stages.full(s), 1);
      barrier::init(stages.empty(s), SHARERS * 4 * CLUSTER);
    }
    if constexpr (SPLIT > 1) {
      barrier::init(arrived, 1);
      barrier::expect(arrived, MAIL);
    }
    barrier::fence_init();
  }
  const auto next_work = [&](u32 distance) {
    at += distance;
    if (at < raster.end) work = raster.locate(at);
  };
  __syncthreads();
  if constexpr (CLUSTER * SPLIT > 1) cluster::begin();
  overlap::wait();
  overlap::release();
  Cursor<STAGES> cursor;

  // 4. Producer warpgroup: one elected thread issues the TMA loads of every tile
  if (group == 0) {
    if constexpr (CONSUMERS == 2) warpgroup::give_registers<KEPT>();
    const u32 warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    if (warp == 0 && elected()) {
      for (; at < raster.end; next_work(step)) {
        const i32 row = (work.m * CLUSTER + above) * BM, col = work.n * BN;
        const BatchIndex a_batch = only(work.batch, extents.a_batched), b_batch = only(work.batch, extents.b_batched);
        const i32 rows = extents.m - row, cols = extents.n - col;  // may be negative in a cluster's last tiles
        const u32 bytes = arriving<BM, A_MN>(rows) + arriving<BN, B_MN>(cols) + SCALES;
        typename Accumulator::ScaleProducer scales(accumulator, work.batch, row);
        for (u32 block = first; block < last; ++block, cursor.next()) {
          const u32 full = stages.full(cursor.stage);
          // Acquire an empty stage, load A, B (multicast: this CTA's part) and the block scales into it
          barrier::wait(stages.empty(cursor.stage), cursor.parity ^ 1);
          barrier::expect(full, bytes);
          fill<BM, A_MN, BATCHED, 1>(stages.a(cursor.stage), a, row, rows, block * BK, a_batch, full, 0);
          fill<BN, B_MN, BATCHED, CLUSTER>(stages.b(cursor.stage), b, col, cols, block * BK, b_batch, full, above);
          scales.template issue<BATCHED>(stages.scales(cursor.stage), block, full);
        }
      }
    }
    __syncwarp();
    if constexpr (CLUSTER * SPLIT > 1) cluster::arrive();
  } else {
    // 5. Consumer warpgroups. A warp releases a stage in every CTA of the cluster, since peers multicast into all
    if constexpr (CONSUMERS == 2) warpgroup::take_registers<(3 * REGISTERS - KEPT) / 16 * 8>();
    const u32 lane = threadIdx.x % 32;
    const auto release = [&](u32 stage) {
      if constexpr (CLUSTER > 1) {
        if (lane < CLUSTER) barrier::arrive_in_cluster(stages.empty(stage), lane);
      } else {
        if (lane == 0) barrier::arrive(stages.empty(stage));
      }
    };
    // Ping-pong: the second consumer skips the first tile's stages; its arrival lets the first consumer begin
    if (PING_PONG && pair_index == 1) {
      cursor.skip(last - first);
      barrier_arrive(BARRIER_PING_PONG, 256);
    }
    // Multicast: a thread arrives at the cluster's exit barrier when it has released the stages of its last tile
    const u32 distance = (PING_PONG ? 2 : 1) * step;
    if constexpr (CLUSTER > 1)
      if (at >= raster.end) cluster::arrive();
    for (; at < raster.end; next_work(distance)) {
      const float whole = epilogue.whole(work.batch);
      float acc[ROWS][BN / 2];
      u32 previous = 0;
      // 5.1 Ping-pong: wait until the other consumer has issued its tile's wgmmas
      if constexpr (PING_PONG) barrier_sync(BARRIER_PING_PONG + pair_index, 256);
      // One k_block: wait for its stage, issue and commit its wgmmas
      const auto multiply = [&](float (&into)[ROWS][BN / 2], bool accumulate) {
        barrier::wait(stages.full(cursor.stage), cursor.parity);
        const u64 of_a = warpgroup::descriptor<A_MN>(stages.a(cursor.stage)) + sharer * ROWS * warpgroup::NEXT_64;
        const u64 of_b = warpgroup::descriptor<B_MN>(stages.b(cursor.stage));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) warpgroup::pin(into[r]);
        warpgroup::arrive();
#pragma unroll
        for (int k = 0; k < BLOCK_K_BYTES / 32; ++k)
#pragma unroll
          for (int r = 0; r < ROWS; ++r)
            wgmma(into[r], of_a + k * warpgroup::NEXT_K<A_MN> + r * warpgroup::NEXT_64,
                of_b + k * warpgroup::NEXT_K<B_MN>, k || accumulate);
        warpgroup::commit();
      };
      const i64 row = i64(work.m * CLUSTER + above) * BM + sharer * ROWS * 64, col = i64(work.n) * BN;
      // 5.2 Main loop over k_blocks
      if constexpr (Accumulator::PROMOTED) {
        static_assert(ROWS == 1 && BN <= 128, "the sums of two k_blocks take as many registers again, each");
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) acc[0][i] = 0;
        typename Accumulator::Scales scales(accumulator, work.batch, col, first);
        struct Promotion {
          float sums[1][BN / 2];
          typename Accumulator::Scale scale;
        } even, odd;  // accumulators of this k_block and of the previous one, which is promoted meanwhile
        const auto promote = [&](Promotion& block) {
          release(previous);
          warpgroup::pin(block.sums[0]);
          Accumulator::add(acc[0], block.sums[0], block.scale);
        };
        const auto step_on = [&] {
          previous = cursor.stage;
          cursor.next();
        };
        const auto start = [&](Promotion& block) {
          multiply(block.sums, false);
          scales.fetch(block.scale, stages.scales(cursor.stage), sharer * 64);
        };
        const auto exchange = [&](Promotion& now, Promotion& earlier) {
          start(now);
          warpgroup::wait<1>();
          promote(earlier);
          step_on();
        };
        // Unrolled by two, as ptxas keeps wgmma asynchronous only where no accumulator register crosses a condition
        start(even);
        step_on();
        u32 block = first + 1;
        for (; block + 1 < last; block += 2) {
          exchange(odd, even);
          exchange(even, odd);
        }
        if (block < last) {
          exchange(odd, even);
          warpgroup::wait<0>();
          promote(odd);
        } else {
          warpgroup::wait<0>();
          promote(even);
        }
      } else {
        // Accumulate in place; release the previous stage while this k_block's wgmmas run
        for (u32 block = first; block < last; ++block) {
          multiply(acc, block != first);
          warpgroup::wait<1>();
          if (block != first) release(previous);
          previous = cursor.stage;
          cursor.next();
        }
      }
      // 5.3 Ping-pong: pass the tensor cores to the other consumer; skip its tile's stages
      if constexpr (PING_PONG) {
        barrier_arrive(BARRIER_PING_PONG + (pair_index ^ 1), 256);
        cursor.skip(last - first);
      }
      // Complete the last wgmmas, release their stage (PROMOTED: done); the CTA's last tile but one signals it
      if constexpr (!Accumulator::PROMOTED) {
        warpgroup::wait<0>();
#pragma unroll
        for (int r = 0; r < ROWS; ++r) warpgroup::pin(acc[r]);
        release(previous);
        if (PING_PONG && at + step < raster.end && at + 2 * step >= raster.end) barrier_arrive(BARRIER_DRAINED, 256);
      }

      if constexpr (CLUSTER > 1)
        if (at + distance >= raster.end) cluster::arrive();

      // 5.4 Epilogue. roomy: the CTA's last tile, after which no loads arrive, so that the stages are free as buffers
      const E finishing = epilogue.at_batch(work.batch);
      const bool roomy = SHARERS == 1 && SPLIT == 1 && at + step >= raster.end;
      const u32 buffers = roomy ? stages.base : staging + consumer * BUFFERS;
      // The stages are free only when the other consumer's wgmmas, which read them too, are complete
      if (PING_PONG && !Accumulator::PROMOTED && roomy && at >= raster.begin + step) barrier_sync(BARRIER_DRAINED, 256);
      if constexpr (SPLIT > 1) {
        // Split K: send each peer this CTA's partial sums of the peer's BN / SPLIT columns (st.async, 16 bytes per
        // thread), receive the peers' partial sums of its own columns, and add all in rank order (one tile per CTA)
        constexpr int SHARE = BN / 2 / SPLIT;
        cluster::arrive();
        cluster::await();  // all CTAs have finished reading their stages
        const u32 place = (sharer * ROWS * SHARE * 128 + threadIdx.x % 128 * 4) * 4;
#pragma unroll
        for (u32 peer = 0; peer < SPLIT; ++peer)
          if (peer != part) {
            const u32 there = cluster::address(inbox + (part - (part > peer)) * PARCEL + place, peer),
                      bell = cluster::address(arrived, peer);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) cluster::send<SHARE>(acc[r] + peer * SHARE, there + r * SHARE * 512, bell);
          }
        barrier::wait(arrived, 0);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          float sum[SHARE] = {};
#pragma unroll
          for (u32 peer = 0; peer < SPLIT; ++peer) {
            if (peer == part) {
#pragma unroll
              for (int i = 0; i < SHARE; ++i) sum[i] += acc[r][peer * SHARE + i];
            } else {
              add_shared<SHARE>(sum, inbox + (peer - (peer > part)) * PARCEL + place + r * SHARE * 512);
            }
          }
          const i64 from = col + part * (BN / SPLIT);
          finish<BN / SPLIT, STORE, BATCHED>(
              sum, finishing, out_map, extents, row + r * 64, from, work.batch, whole, buffers, roomy, group);
        }
      } else {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const u32 own = buffers + (roomy ? r * (64 * BN * u32(sizeof(typename E::Out))) : 0);
          finish<BN, STORE, BATCHED>(
              acc[r], finishing, out_map, extents, row + r * 64, col, work.batch, whole, own, roomy, group);
        }
      }
    }
  }
  if constexpr (CLUSTER > 1) cluster::await();  // peers may still write or signal here
  // TMA stores must have read shared memory before the CTA exits
  if constexpr (STORE == TMA_ROW || STORE == TMA_COLUMN) tma::wait_stores_read<0>();
}
