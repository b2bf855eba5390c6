// out = epilogue(A B) on Hopper's warpgroup tensor cores: f16, bf16, f32 as tf32, fp8.
//
// A CTA is one producer warpgroup and one or two consumer warpgroups; it is persistent and takes tiles BM x BN of the result
// by a fixed raster. The producer's one thread copies boxes of A and B by TMA, 128 bytes of K at a time (a slab), into a ring of
// STAGES; a consumer multiplies 64 ROWS rows by all BN columns, f32 accumulators in registers, one stage behind its release.
// Two consumers share a tile, or (BM = 64 ROWS) take tiles in turn: one multiplies while the other finishes.
// A cluster of CLUSTER CTAs, one above the other, shares B: each copies its part of it into all. A cluster of SPLIT CTAs
// shares one tile: each sums its part of K, sends every other its share of the columns, and adds up its own in rank order.
// RESIDENT CTAs an SM: short ones, with little to multiply, fill SMs that a single one each would leave idle or wait for.
// fp8 is summed to 14 bits by the tensor cores (DeepSeek-V3, arXiv:2412.19437, section 3.3.2): where PROMOTED, each slab has
// sums of its own, which are added up in f32, times the scales of the slab where the operands have them by blocks; A's come with
// the stage.
// Layouts: K-major or (16-bit types) MN-major boxes in 128-byte swizzled rows. Edges: only rows of the operand are brought, by
// boxes that end with it, since a row that TMA fills with zeros takes longer than one that it reads; what else the stage holds
// reaches only results that are not stored. Beyond K TMA reads zeros; it clips writes.
// Epilogue: accumulators are finished in registers and put into buffers of 8 KB at most, two a warpgroup (for a CTA's last tile one
// a part, where the stages were, so that nothing waits), whence TMA stores them as rows or (16-bit types) columns while the next
// tile begins, or, where these are ragged, warps do; or they go straight to global memory.
// Shared memory: STAGES (BM + BN) 128 B and scales, and a consumer's buffers where not straight. Where K is split, what others send
// and the results lie where the stages were. Bound: tensor cores; power beyond 2048^3; with few rows DRAM.
#include "cluster.cuh"
#include "epilogue.cuh"
#include "overlap.cuh"
#include "raster.cuh"
#include "staging.cuh"
#include "sums.cuh"
#include "tma.cuh"

constexpr int SLAB = 128;  // bytes of K a stage, a swizzled row
constexpr u32 TURN = 4, DRAINED = 6;  // TURN + 1 too: named barriers; 1 and 2 are the consumers' own

enum Leave { STRAIGHT, ROWS_BY_TMA, COLUMNS_BY_TMA, ROWS_BY_WARPS, COLUMNS_BY_WARPS };

struct Extents {
  u32 m, n, slabs;                   // of K
  u32 a_batched[3], b_batched[3];    // 0 where an operand is broadcast
};

struct Boxes {
  TensorMap whole, edge;  // the same but for the last rows of K-major operands
};

template <int BM, int BN, int STAGES, bool B_MN, int SCALES> struct Ring {
  static constexpr u32 A_BYTES = BM * SLAB, B_BYTES = (B_MN ? (BN + 63) / 64 * 64 : BN) * SLAB, STAGE = A_BYTES + B_BYTES;
  u32 base, barriers;
  __device__ __forceinline__ u32 a(u32 stage) const { return base + stage * STAGE; }
  __device__ __forceinline__ u32 b(u32 stage) const { return base + stage * STAGE + A_BYTES; }
  __device__ __forceinline__ u32 full(u32 stage) const { return barriers + stage * 16; }
  __device__ __forceinline__ u32 empty(u32 stage) const { return barriers + stage * 16 + 8; }
  __device__ __forceinline__ u32 scales(u32 stage) const { return barriers + 512 + stage * SCALES; }
};

// Boxes of one operand's stage: EXTENT of mn from `mn`, of which the operand has `left`, a slab of k from `k`. PARTS CTAs each
// copy their part into all.
template <int EXTENT, bool MN_MAJOR, bool BATCHED, int PARTS>
__device__ __forceinline__ void fill(u32 to, const Boxes& boxes, i32 mn, i32 left, i32 k, const BatchIndex& b, u32 full, u32 part) {
  constexpr u16 EVERY = (1 << PARTS) - 1;
  if constexpr (MN_MAJOR) {
    constexpr int SLABS = (EXTENT + 63) / 64;
#pragma unroll
    for (int i = 0; i < SLABS / PARTS; ++i) {
      const i32 slab = part * (SLABS / PARTS) + i;
      if (slab * 64 < left)
        tma::load<BATCHED, (PARTS > 1)>(to + slab * (64 * SLAB), boxes.whole, mn + slab * 64, k, b, full, EVERY);
    }
  } else {
    const i32 before = part * (EXTENT / PARTS);
    const TensorMap& map = left - before < EXTENT / PARTS ? boxes.edge : boxes.whole;
    if (before < left) tma::load<BATCHED, (PARTS > 1)>(to + before * SLAB, map, k, mn + before, b, full, EVERY);
  }
}

// Bytes of a stage that `fill` brings, all its parts together.
template <int EXTENT, bool MN_MAJOR> __device__ __forceinline__ u32 arriving(i32 left) {
  if constexpr (MN_MAJOR) return min((max(left, 0) + 63) / 64, (EXTENT + 63) / 64) * (64 * SLAB);
  return min(max(left, 0), EXTENT) * SLAB;
}

// A consumer's 64 x BN accumulators, finished and sent on their way, through two buffers in turn or, where there is room for all
// parts (`roomy`), one each.
template <int BN, Leave LEAVE, bool BATCHED, class E>
__device__ __forceinline__ void finish(float (&acc)[BN / 2], const E& epilogue, const TensorMap& out, const Extents& extents, i64 row, i64 col,
                                       const BatchIndex& batch, float whole, u32 buffers, bool roomy, u32 name) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, m = warp * 16 + lane / 4, n = lane % 4 * 2;
  asm volatile("" : "+l"(col));  // or ptxas keeps every column's offsets from the first 64 rows to the next, in local memory
  // The scaled sums of a pair; beyond the edges they have any scale, so that no load depends on a condition.
  const auto pair_of = [&](float (&pair)[2], int r, i64 at_row, i64 at_col) {
    pair[0] = acc[r] * whole;
    pair[1] = acc[r + 1] * whole;
    epilogue.scale(pair, min(at_row, i64(extents.m) - 1), min(at_col, i64(extents.n) - 1), min(at_col + 1, i64(extents.n) - 1));
  };
  if constexpr (LEAVE == STRAIGHT) {
#pragma unroll
    for (int i = 0; i < BN / 4; ++i) {
      const i64 at_row = row + m + i % 2 * 8, at_col = col + n + i / 2 * 8;
      float pair[2];
      pair_of(pair, 2 * i, at_row, at_col);
      if (at_row < extents.m && at_col < extents.n) epilogue.store(pair, at_row, at_col, at_col + 1 < extents.n);
    }
  } else {
    using Out = typename E::Out;
    constexpr bool TRANSPOSED = LEAVE == COLUMNS_BY_TMA || LEAVE == COLUMNS_BY_WARPS;
    constexpr bool BY_TMA = LEAVE == ROWS_BY_TMA || LEAVE == COLUMNS_BY_TMA;
    constexpr int WIDTH = staging::WIDEST<Out, BN>, PARTS = BN / WIDTH;  // WIDTH columns are one store's box
    using Part = staging::Part<Out, WIDTH, TRANSPOSED>;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const i64 x = col + i * WIDTH;
      const u32 buffer = buffers + (roomy ? i : i % 2) * staging::BUFFER<Out, BN>;
      Part part;  // before anything waits, so that the epilogue's loads are under way together
#pragma unroll
      for (int group = 0; group < WIDTH / 8; ++group)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float pair[2];
          const i64 at_row = row + m + half * 8, at_col = x + group * 8 + n;
          pair_of(pair, i * WIDTH / 2 + group * 4 + half * 2, at_row, at_col);
          if (!E::READS || (at_row < extents.m && at_col < extents.n)) epilogue.values(pair, at_row, at_col, at_col + 1 < extents.n);
          part.set(group, half, pair);
        }
      if (BY_TMA && !roomy && threadIdx.x % 128 == 0) {
        if (i == 0 && PARTS % 2) tma::wait_stores_read<0>();  // an odd number's last and the next tile's first share a buffer
        else tma::wait_stores_read<1>();
      }
      meet(name, 128);
      part.write(buffer, warp, lane);
      if constexpr (BY_TMA) tma::fence_shared();
      meet(name, 128);
      if constexpr (!BY_TMA) {
        constexpr int SIZE = sizeof(Out);
        u8* const to = reinterpret_cast<u8*>(epilogue.out + epilogue.out_walk.at(row, x));
        const i64 rows = extents.m - row, cols = extents.n - x;
        if constexpr (TRANSPOSED) {
          staging::leave_by_warps<u16, WIDTH, Part::ROW_BYTES>(buffer, to, epilogue.out_walk.col * SIZE, cols, rows * SIZE);
        } else {
          using Word = typename Word<E::PAIRS ? 4 : SIZE>::type;
          staging::leave_by_warps<Word, 64, Part::ROW_BYTES>(buffer, to, epilogue.out_walk.row * SIZE, rows, cols * SIZE);
        }
      } else if (threadIdx.x % 128 == 0) {
        tma::store<BATCHED>(out, buffer, i32(TRANSPOSED ? row : x), i32(TRANSPOSED ? x : row), batch);
        tma::commit_stores();
      }
    }
  }
}

template <class In, int BM, int BN, int ROWS, int CONSUMERS, int STAGES, int CLUSTER, int SPLIT, int RESIDENT, bool A_MN, bool B_MN, bool BATCHED, Leave LEAVE, class Sums,
          class E>
__global__ void __cluster_dims__(CLUSTER* SPLIT, 1, 1) __launch_bounds__(128 * (1 + CONSUMERS), RESIDENT)
    gemm(const __grid_constant__ Boxes a, const __grid_constant__ Boxes b, const __grid_constant__ TensorMap out_map, const E epilogue,
         const Raster raster, const Extents extents, const __grid_constant__ Sums sums) {
  constexpr int BK = SLAB / sizeof(In);
  constexpr int SHARERS = BM / (64 * ROWS);  // consumers of one tile
  constexpr bool BY_TURNS = SHARERS < CONSUMERS;
  constexpr int SCALES = Sums::template STAGED<BM>;
  constexpr int REGISTERS = 65536 / (128 * (1 + CONSUMERS) * RESIDENT) / 8 * 8;  // a thread's, at launch
  constexpr int KEPT = BATCHED ? 56 : 40;  // by the producer
  static_assert(RESIDENT == 1 || CONSUMERS == 1, "only two consumers and a producer share out registers, all of an SM's");
  extern __shared__ __align__(1024) u8 raw[];
  Ring<BM, BN, STAGES, B_MN, SCALES> ring;
  static_assert(SHARERS > 1 || SPLIT > 1 || STAGES * decltype(ring)::STAGE >= BM * BN * sizeof(typename E::Out));  // the last tile's results lie there
  ring.base = shared_address(raw);
  constexpr u32 PARCEL = BM * BN / SPLIT * 4, MAIL = PARCEL * (SPLIT - 1);
  constexpr u32 BUFFERS = LEAVE == STRAIGHT ? 0 : staging::BUFFERS<typename E::Out, BN / SPLIT>, STAGED = CONSUMERS * BUFFERS;
  constexpr u32 IN_FLIGHT = STAGES * decltype(ring)::STAGE, AFTERWARDS = MAIL + STAGED;
  const u32 inbox = ring.base, staging = ring.base + (SPLIT > 1 ? MAIL : IN_FLIGHT);
  ring.barriers = ring.base + (SPLIT == 1 ? IN_FLIGHT + STAGED : IN_FLIGHT > AFTERWARDS ? IN_FLIGHT : AFTERWARDS);
  const u32 arrived = ring.full(STAGES);

  const u32 group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), rank = CLUSTER * SPLIT > 1 ? cluster::rank() : 0;
  const u32 above = CLUSTER > 1 ? rank : 0, part = SPLIT > 1 ? rank : 0;
  const u32 consumer = group - 1, sharer = BY_TURNS ? 0 : consumer, turn = BY_TURNS && group > 0 ? consumer : 0;
  const u32 step = gridDim.x / (CLUSTER * SPLIT);
  const u32 first = part * extents.slabs / SPLIT, last = (part + 1) * extents.slabs / SPLIT;
  u32 at = raster.begin + blockIdx.x / (CLUSTER * SPLIT) + turn * step;
  Work work = raster.locate(min(at, raster.end - 1));  // half a dozen divisions, while the kernel ahead still runs
  asm volatile("" : "+r"(work.m), "+r"(work.n));
  if (threadIdx.x == 0) {
    tma::prefetch(a.whole);
    tma::prefetch(b.whole);
    sums.prefetch();
    if constexpr (LEAVE != STRAIGHT) tma::prefetch(out_map);
    for (int s = 0; s < STAGES; ++s) {
      barrier::init(ring.full(s), 1);
      barrier::init(ring.empty(s), SHARERS * 4 * CLUSTER);
    }
    if constexpr (SPLIT > 1) {
      barrier::init(arrived, 1);
      barrier::expect(arrived, MAIL);
    }
    barrier::fence_init();
  }
  const auto next_work = [&](u32 apart) {
    at += apart;
    if (at < raster.end) work = raster.locate(at);
  };
  __syncthreads();
  if constexpr (CLUSTER * SPLIT > 1) cluster::begin();
  overlap::wait();
  overlap::release();

  Cursor<STAGES> cursor;

  if (group == 0) {
    if constexpr (CONSUMERS == 2) warpgroup::give_registers<KEPT>();
    const u32 warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    if (warp == 0 && elected()) {
      for (; at < raster.end; next_work(step)) {
        const i32 row = (work.m * CLUSTER + above) * BM, col = work.n * BN;
        const BatchIndex a_batch = only(work.batch, extents.a_batched), b_batch = only(work.batch, extents.b_batched);
        const i32 rows = extents.m - row, cols = extents.n - col;  // rows may be fewer than none, in a cluster's last tiles
        const u32 bytes = arriving<BM, A_MN>(rows) + arriving<BN, B_MN>(cols) + SCALES;
        typename Sums::Bringer scales(sums, work.batch, row);
        for (u32 block = first; block < last; ++block, cursor.next()) {
          const u32 full = ring.full(cursor.stage);
          barrier::wait(ring.empty(cursor.stage), cursor.parity ^ 1);
          barrier::expect(full, bytes);
          fill<BM, A_MN, BATCHED, 1>(ring.a(cursor.stage), a, row, rows, block * BK, a_batch, full, 0);
          fill<BN, B_MN, BATCHED, CLUSTER>(ring.b(cursor.stage), b, col, cols, block * BK, b_batch, full, above);
          scales.template bring<BATCHED>(ring.scales(cursor.stage), block, full);
        }
      }
    }
    __syncwarp();
    if constexpr (CLUSTER * SPLIT > 1) cluster::arrive();
  } else {
    if constexpr (CONSUMERS == 2) warpgroup::take_registers<(3 * REGISTERS - KEPT) / 16 * 8>();
    const u32 lane = threadIdx.x % 32;
    const auto release = [&](u32 stage) {
      if constexpr (CLUSTER > 1) {
        if (lane < CLUSTER) barrier::arrive_in_cluster(ring.empty(stage), lane);
      } else {
        if (lane == 0) barrier::arrive(ring.empty(stage));
      }
    };
    if (BY_TURNS && turn == 1) {
      cursor.skip(last - first);
      announce(TURN, 256);
    }
    const u32 apart = (BY_TURNS ? 2 : 1) * step;
    if constexpr (CLUSTER > 1)
      if (at >= raster.end) cluster::arrive();
    for (; at < raster.end; next_work(apart)) {
      const float whole = epilogue.whole(work.batch);
      float acc[ROWS][BN / 2];
      u32 before = 0;
      if constexpr (BY_TURNS) meet(TURN + turn, 256);
      const auto multiply = [&](float (&into)[ROWS][BN / 2], bool accumulate) {
        barrier::wait(ring.full(cursor.stage), cursor.parity);
        const u64 of_a = warpgroup::descriptor<A_MN>(ring.a(cursor.stage)) + sharer * ROWS * warpgroup::NEXT_64;
        const u64 of_b = warpgroup::descriptor<B_MN>(ring.b(cursor.stage));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) warpgroup::pin(into[r]);
        warpgroup::arrive();
#pragma unroll
        for (int k = 0; k < SLAB / 32; ++k)
#pragma unroll
          for (int r = 0; r < ROWS; ++r)
            wgmma(into[r], of_a + k * warpgroup::NEXT_K<A_MN> + r * warpgroup::NEXT_64, of_b + k * warpgroup::NEXT_K<B_MN>, k || accumulate);
        warpgroup::commit();
      };
      const i64 row = i64(work.m * CLUSTER + above) * BM + sharer * ROWS * 64, col = i64(work.n) * BN;
      if constexpr (Sums::PROMOTED) {
        static_assert(ROWS == 1 && BN <= 128, "the sums of two slabs take as many registers again, each");
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) acc[0][i] = 0;
        typename Sums::Scales scales(sums, work.batch, col, first);
        struct Slab {
          float sums[1][BN / 2];
          typename Sums::Scale scale;
        } even, odd;  // this slab and the one before, which is promoted meanwhile
        const auto promote = [&](Slab& slab) {
          release(before);
          warpgroup::pin(slab.sums[0]);
          Sums::add(acc[0], slab.sums[0], slab.scale);
        };
        const auto step_on = [&] {
          before = cursor.stage;
          cursor.next();
        };
        const auto start = [&](Slab& slab) {
          multiply(slab.sums, false);
          scales.fetch(slab.scale, ring.scales(cursor.stage), sharer * 64);
        };
        const auto exchange = [&](Slab& now, Slab& earlier) {
          start(now);
          warpgroup::wait<1>();
          promote(earlier);
          step_on();
        };
        start(even);  // ptxas keeps products asynchronous only where their registers cross no condition
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
        for (u32 block = first; block < last; ++block) {
          multiply(acc, block != first);
          warpgroup::wait<1>();
          if (block != first) release(before);
          before = cursor.stage;
          cursor.next();
        }
      }
      if constexpr (BY_TURNS) {
        announce(TURN + (turn ^ 1), 256);
        cursor.skip(last - first);
      }
      if constexpr (!Sums::PROMOTED) {
        warpgroup::wait<0>();
#pragma unroll
        for (int r = 0; r < ROWS; ++r) warpgroup::pin(acc[r]);
        release(before);
        if (BY_TURNS && at + step < raster.end && at + 2 * step >= raster.end) announce(DRAINED, 256);
      }

      if constexpr (CLUSTER > 1)
        if (at + apart >= raster.end) cluster::arrive();

      const E finishing = epilogue.enter(work.batch);
      const bool roomy = SHARERS == 1 && SPLIT == 1 && at + step >= raster.end;  // the CTA's last tile: nothing is staged any more
      const u32 buffers = roomy ? ring.base : staging + consumer * BUFFERS;
      if (BY_TURNS && !Sums::PROMOTED && roomy && at >= raster.begin + step) meet(DRAINED, 256);  // the other's products read stages too
      if constexpr (SPLIT > 1) {
        // Each thread's accumulators travel in fours, thread beside thread; parcels lie in the order of their senders.
        constexpr int SHARE = BN / 2 / SPLIT;
        cluster::arrive();
        cluster::await();  // nobody's stages are read any more
        const u32 place = (sharer * ROWS * SHARE * 128 + threadIdx.x % 128 * 4) * 4;
#pragma unroll
        for (u32 peer = 0; peer < SPLIT; ++peer)
          if (peer != part) {
            const u32 there = cluster::address(inbox + (part - (part > peer)) * PARCEL + place, peer), bell = cluster::address(arrived, peer);
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
          finish<BN / SPLIT, LEAVE, BATCHED>(sum, finishing, out_map, extents, row + r * 64, from, work.batch, whole, buffers, roomy, group);
        }
      } else {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const u32 own = buffers + (roomy ? r * (64 * BN * u32(sizeof(typename E::Out))) : 0);
          finish<BN, LEAVE, BATCHED>(acc[r], finishing, out_map, extents, row + r * 64, col, work.batch, whole, own, roomy, group);
        }
      }
    }
  }
  if constexpr (CLUSTER > 1) cluster::await();  // the others arrive once they have no more to write or to announce here
  if constexpr (LEAVE == ROWS_BY_TMA || LEAVE == COLUMNS_BY_TMA) tma::wait_stores_read<0>();  // shared memory goes with the CTA
}
