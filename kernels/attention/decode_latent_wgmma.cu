// out = softmax(scale q k^T) v for absorbed MLA decode by wgmma (Hopper): many query heads share one key row, which
// also holds V (DeepSeek: 576 columns of K, the first 512 are V); f16, bf16; lse on request. Two consumers share O's
// columns, as FlashMLA describes (DeepSeek, "A deep-dive into the new Flash MLA kernel", 2025).
//
// Tiling:    one CTA per (split of the keys, KV head, 64 rows), all 512 columns of V; k_blocks of 64 keys.
// Threads:   two consumer warpgroups, and a third of which one warp issues TMA. A consumer computes S and P of every
//            other k_block, and half of O's columns: its own P from registers, the other's from shared memory.
// Pipeline:  two slots of keys, each loaded in groups of panels, so that Q K^T begins with the first of them. One
//            consumer's softmax runs during the other's products.
// Shared:    Q 72 KB, 2 x 72 KB of K. P replaces the slot's last panel of K, which is no part of V. `joined`: V is read
//            from K's slot; otherwise V is loaded over K once S is there.
// Paged:     BOXES > 0: boxes of a page pool; missing pages are masked. `cache.sequences` CTAs check page tables.
// Bound:     tensor cores and shared memory, about as busy: 2,200 clocks per 64 rows x 64 keys.
#include "attention/decoding.cuh"
#include "attention/head_boxes.cuh"
#include "attention/page_boxes.cuh"
#include "attention/pages.cuh"
#include "attention/panels.cuh"
#include "ptx/overlap.cuh"
#include "ptx/warpgroup.cuh"

using namespace attention;

constexpr int BN = 64, ROWS = 64, HALF = 256, THREADS = 384, CONSUMERS = 256, BLOCK = BN / 16, GROUP = 3, HELD = 1;
constexpr u32 PANEL = 64 * PANEL_ROW, SLOT = 9 * PANEL;  // bytes
// Named barriers: that and a side. SIDE: its threads; READY: its P is in shared memory.
constexpr u32 BARRIER_ALL = 1, BARRIER_SIDE = 2, BARRIER_READY = 4;

// Barriers, and what one consumer tells the other about each row.
template <int GROUPS> struct Control {
  u64 full[2][GROUPS], empty[2], scored[2], values[2];
  u32 absent[2];  // PAGED: a slot's boxes whose pages are missing
  float shrink[2][ROWS], base[2][ROWS], sum[2][ROWS];
};

// Row r of O's pairs of columns, times two factors, to where the thread's first pair goes; `columns` exist.
template <class To> __device__ __forceinline__ void store(
    const float (&acc)[HALF / 8][4], int r, float weight, float division, int columns, To* to) {
#pragma unroll
  for (int c = 0; c < HALF / 8; ++c) {
    const float pair[2] = {acc[c][r * 2] * weight * division, acc[c][r * 2 + 1] * weight * division};
    if (8 * c < columns) *reinterpret_cast<Vec<To, 2>*>(to + 8 * c) = round_to<To>(pair);
  }
}

template <class T, class Out, int D, int BOXES>
__global__ void __launch_bounds__(THREADS, 1) attention_decode_latent_wgmma(
    const __grid_constant__ Problem<T, Out, float> p, const __grid_constant__ TensorMap k_map,
    const __grid_constant__ TensorMap v_map, const __grid_constant__ Cache cache, const __grid_constant__ Scales scales,
    const __grid_constant__ Splits splits, u32 tiles, u32 alike) {
  constexpr bool PAGED = BOXES > 0;
  constexpr int PANELS = D / 64, GROUPS = (PANELS + GROUP - 1) / GROUP;
  using Queries = Panels<ROWS, D>;
  using Weights = Panels<ROWS, BN>;
  extern __shared__ __align__(1024) u8 memory[];
  __shared__ Control<GROUPS> control;
  const u32 queries = shared_address(memory), slots = queries + Queries::BYTES;
  const auto full = [&](u32 slot, int group) { return shared_address(&control.full[slot][group]); };
  const auto empty = [&](u32 slot) { return shared_address(&control.empty[slot]); };
  const auto scored = [&](u32 slot) { return shared_address(&control.scored[slot]); };
  const auto values = [&](u32 slot) { return shared_address(&control.values[slot]); };
  overlap::wait();
  overlap::release();

  // 1. tile scheduler: split, rows, head
  u32 flat = blockIdx.x;
  if constexpr (PAGED) {
    if (flat < cache.sequences) return check<THREADS>(cache, p, flat);
    flat -= cache.sequences;
  }
  const u32 kv_heads = p.heads / p.group, split = flat / tiles % splits.count, head = flat / (tiles * splits.count);
  const SharedRows<T, Out> shared(p, cache, head / kv_heads, head % kv_heads, flat % tiles * ROWS, ROWS);
  if (shared.first >= shared.count) return;

  // 2. k_blocks of this split that some row sees
  const Keys highest = shared.seen_by(shared.last), lowest = shared.seen_by(shared.first);
  const int begin = lowest.first, end = highest.end;
  const int2 range = begin < end ? splits.range(split, begin / BN * BN, end, BLOCK) : int2{0, 0};
  if (split && range.x >= range.y) {
    shared.template store_empty<THREADS>(splits, split);
    return;
  }
  const int first_block = max(range.x, begin / BN * BLOCK),
            blocks = max((range.y - first_block + BLOCK - 1) / BLOCK, 0);
  const auto first_key = [&](int i) { return (first_block + i * BLOCK) * 16; };
  const bool joined = alike && p.k == p.v;

  // 3. barriers
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < 2; ++slot) {
      for (int group = 0; group < GROUPS; ++group) barrier::init(full(slot, group), 1);
      barrier::init(empty(slot), 8);
      barrier::init(scored(slot), 4);
      barrier::init(values(slot), 1);
    }
    barrier::fence_init();
  }
  __syncthreads();
  const u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0), lane = threadIdx.x % 32;

  // 4. producer warp
  if (group == 2) {
    warpgroup::give_registers<40>();
    if (__shfl_sync(~0u, threadIdx.x / 32 % 4, 0) != 0) return;
    const HeadBoxes of_keys(p.k_strides, 0, shared.sequence, shared.kv_head),
        of_values(p.v_strides, 0, shared.sequence, shared.kv_head);
    using Boxes = PageBoxes<BN, PAGED ? BOXES : 1>;
    // Panels [from, to) of one k_block, which complete on `complete`
    const auto load = [&](const TensorMap& map, const HeadBoxes& operand, bool stepped, const Boxes& boxes, int key,
                          u32 slot, int from, int to, u32 complete) {
      if (lane == 0) barrier::expect(complete, (to - from) * PANEL);
      __syncwarp();
      u32 page = operand.place.at[1];
      if constexpr (PAGED) page = stepped || boxes.page == cache.pages ? boxes.page : 0;
      if (lane < (PAGED ? BOXES : 1))
#pragma unroll 1
        for (int x = from; x < to; ++x)
          tma::load<true, false>(slots + slot * SLOT + x * PANEL + lane * (Boxes::ROWS * PANEL_ROW), map, x * 64,
              PAGED ? boxes.row : key, BatchIndex{{0, page, operand.place.at[2]}}, complete, 0);
    };
    Boxes boxes{};
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      const u32 slot = i & 1, parity = i >> 1 & 1;
      const int key = first_key(i);
      if constexpr (PAGED)
        boxes.look_up(cache, cache.table + shared.sequence * cache.table_step, key, {begin, end});
      barrier::wait(empty(slot), parity ^ 1);
      if (PAGED && lane == 0) control.absent[slot] = boxes.absent;
#pragma unroll
      for (int g = 0; g < GROUPS; ++g)
        load(k_map, of_keys, p.k_strides.batch != 0, boxes, key, slot, g * GROUP, min(PANELS, (g + 1) * GROUP),
            full(slot, g));
      if (!joined) {
        barrier::wait(scored(slot), parity);
        load(v_map, of_values, p.v_strides.batch != 0, boxes, key, slot, 0, 2 * HALF / 64, values(slot));
      }
    }
    return;
  }

  // 5. consumers: Q to shared memory, negated if scale < 0, so that the largest product stays the largest score
  warpgroup::take_registers<232>();
  const u32 side = group, thread = threadIdx.x % 128, warp = thread / 32;
  const float whole_scale = float(p.scale) * scales.of_keys(shared.kv_head);
  shared.template load_queries<Queries, ROWS, CONSUMERS, false>(queries, whole_scale < 0 ? 0x80008000u : 0);
  tma::fence_shared();
  barrier_sync(BARRIER_ALL, CONSUMERS);
  // The scale is not 0, so that factor * -inf stays -inf.
  const float factor = (whole_scale == 0.0f ? 0x1p-149f : fabsf(whole_scale)) * math::LOG2E;
  const int whole_begin = highest.first, whole_end = lowest.end;
  const u32 row = warp * 16 + lane / 4;  // and row + 8

  OnlineSoftmax<1> softmax;
  float acc[1][HALF / 8][4] = {}, s[1][BN / 8][4];
  u32 weights[BN / 16][4];
  // The last HELD panels of Q stay in registers, so that Q K^T reads less shared memory
  u32 held[HELD * 4][4];
#pragma unroll
  for (int k = 0; k < HELD * 4; ++k)
    load_matrices<false>(held[k],
        Queries::at(queries + Queries::template lane_address<true>(lane), warp, (PANELS - HELD) * 4 + k));
  const auto await_keys = [&](u32 slot, int i, int g) { barrier::wait(full(slot, g), i >> 1 & 1); };
  // S = Q K^T of k_block i, whose slot is `side`
  const auto compute_scores = [&](int i) {
    const u64 of_queries = warpgroup::descriptor<false>(queries),
              of_keys = warpgroup::descriptor<false>(slots + side * SLOT);
#pragma unroll
    for (int n = 0; n < BN / 8; ++n) warpgroup::pin(s[0][n]);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
      await_keys(side, i, g);
      warpgroup::arrive();
#pragma unroll
      for (int k = g * GROUP * 4; k < min(PANELS, (g + 1) * GROUP) * 4; ++k) {
        const u32 at = k / 4 * (PANEL >> 4) + k % 4 * warpgroup::NEXT_K<false>;
        if (k < (PANELS - HELD) * 4) wgmma_scores(s[0], of_queries + at, of_keys + at, k != 0);
        else wgmma_held(s[0], held[k - (PANELS - HELD) * 4], of_keys + at, 1);
      }
      warpgroup::commit();
    }
    warpgroup::wait<0>();
#pragma unroll
    for (int n = 0; n < BN / 8; ++n) warpgroup::pin(s[0][n]);
    if (!joined && lane == 0) barrier::arrive(scored(side));
  };
  const auto rescale = [&](float first, float second) {
    if (!__any_sync(~0u, first != 1.0f || second != 1.0f)) return;
#pragma unroll
    for (int c = 0; c < HALF / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[0][c][e] *= e < 2 ? first : second;
  };
  const auto pin = [&] {
#pragma unroll
    for (int c = 0; c < HALF / 8; ++c) warpgroup::pin(acc[0][c]);
  };
  const auto descriptor_of_values = [&](u32 slot) {
    return warpgroup::descriptor<true>(slots + slot * SLOT + side * (HALF / 64) * PANEL);
  };
  // O += P V of the own k_block, and of the other consumer's, not waited for
  const auto issue_own = [&] {
    pin();
    warpgroup::arrive();
#pragma unroll
    for (int k = 0; k < BN / 16; ++k)
      wgmma_own(acc[0], weights[k], descriptor_of_values(side) + k * warpgroup::NEXT_K<true>, 1);
    warpgroup::commit();
  };
  const auto issue_other = [&](u32 slot) {
    const u64 of_weights = warpgroup::descriptor<false>(slots + slot * SLOT + 8 * PANEL);
    pin();
    warpgroup::arrive();
#pragma unroll
    for (int k = 0; k < BN / 16; ++k)
      wgmma_other(acc[0], of_weights + k * warpgroup::NEXT_K<false>,
          descriptor_of_values(slot) + k * warpgroup::NEXT_K<true>, 1);
    warpgroup::commit();
  };
  // The other consumer's P of k_block i is there: this one's sums follow its bases
  const auto take_other = [&](int i) {
    const u32 slot = side ^ 1;
    barrier_sync(BARRIER_READY + slot, CONSUMERS);
    for (int g = 0; g < GROUPS; ++g) await_keys(slot, i, g);
    if (!joined) barrier::wait(values(slot), i >> 1 & 1);
    float shrink[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      shrink[r] = control.shrink[slot][row + 8 * r];
      softmax.base[r] = control.base[slot][row + 8 * r];
      softmax.sum[r] *= shrink[r];
    }
    rescale(shrink[0], shrink[1]);
  };
  // S becomes P, in registers; `shrink`: the rows' factors for O. `other`: the k_block before it, whose P V begins once
  // this one's maxima are known; -1 without one
  const auto weigh = [&](int i, float (&shrink)[1][1][4], int other) {
    const u32 absent = PAGED ? control.absent[side] : 0;
    if (first_key(i) < whole_begin || first_key(i) + BN > whole_end || absent) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int line = shared.first + int(row) + 8 * r;
        const Keys seen = line < shared.count ? shared.seen_by(line) : Keys{0, 0};
#pragma unroll
        for (int n = 0; n < BN / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = first_key(i) + 8 * n + int(lane % 4) * 2 + e;
            const bool there = !(absent >> 8 * n / (BN / (PAGED ? BOXES : 1)) & 1);
            if (key < seen.first || key >= seen.end || !there)
              s[0][n][r * 2 + e] = rows::minus_infinity<float>();
          }
      }
    }
    softmax.follow(s, factor, shrink, [&](float (&)[2]) {
      if (other >= 0) take_other(other), issue_other(side ^ 1);
    });
    softmax.weigh(s, factor);
#pragma unroll
    for (int k = 0; k < BN / 16; ++k) pack_weights<T>(weights[k], s[0], k);
  };
  // P, and the rows' bases and factors, to the other consumer; V of keys that no row sees is overwritten with zeros
  const auto publish = [&](int i, const float (&shrink)[1][1][4]) {
    const int first_seen = max(begin - first_key(i), 0), seen_end = min(end - first_key(i), BN);
    if (!joined) barrier::wait(values(side), i >> 1 & 1);
    barrier_sync(BARRIER_SIDE + side, 128);
    if (first_seen > 0 || seen_end < BN) {
#pragma unroll 1
      for (u32 at = thread; at < 8 * BN * 8; at += 128) {
        const int key = at / 8 % BN;
        if (key < first_seen || key >= seen_end) store_shared(slots + side * SLOT + at * 16, Vec<float, 4>{});
      }
    }
    const u32 to = slots + side * SLOT + 8 * PANEL + Weights::template lane_address<true>(lane);
#pragma unroll
    for (int k = 0; k < BN / 16; ++k) warpgroup::store_matrices<false>(Weights::at(to, warp, k), weights[k]);
    if (lane % 4 == 0)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        control.shrink[side][row + 8 * r] = shrink[0][0][2 * r], control.base[side][row + 8 * r] = softmax.base[r];
    tma::fence_shared();
    barrier_arrive(BARRIER_READY + side, CONSUMERS);
    if (first_seen > 0 || seen_end < BN) barrier_sync(BARRIER_SIDE + side, 128);
  };
  const auto done = [&](u32 slot) {
    warpgroup::wait<0>();
    pin();
    if (lane == 0) barrier::arrive(empty(slot));
  };

  // 6. main loop over pairs of k_blocks: side 0 has the first, side 1 the second
#pragma unroll 1
  for (int i = 0; i < blocks; i += 2) {
    const bool both = i + 1 < blocks;
    float shrink[1][1][4] = {{{1.0f, 1.0f, 1.0f, 1.0f}}};
    if (side == 0) {
      compute_scores(i);
      weigh(i, shrink, -1);
      publish(i, shrink);
      rescale(shrink[0][0][0], shrink[0][0][2]);
      issue_own();
      done(0);
      if (both) {
        take_other(i + 1);
        issue_other(1);
        done(1);
      }
    } else {
      if (both) compute_scores(i + 1), weigh(i + 1, shrink, i);
      else take_other(i), issue_other(0);
      done(0);
      if (both) {
        publish(i + 1, shrink);
        rescale(shrink[0][0][0], shrink[0][0][2]);
        issue_own();
        done(1);
      }
    }
  }

  // 7. sums of both consumers
  softmax.add_up();
  if (lane % 4 == 0) control.sum[side][row] = softmax.sum[0], control.sum[side][row + 8] = softmax.sum[1];
  barrier_sync(BARRIER_ALL, CONSUMERS);

  // 8. epilogue: O, normalized, and lse
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own = shared.first + int(row) + 8 * r;
    if (own > shared.last) continue;
    float whole = control.sum[0][row + 8 * r] + control.sum[1][row + 8 * r], most;
    const float weight = shared.with_sink(split, own, softmax.base[r] * factor, whole, most),
                division = shared.division(scales.of_values(shared.kv_head), whole);
    if (side == 0 && lane % 4 == 0) shared.template store_lse<true>(splits, split, own, whole, most);
    const i64 to = shared.template destination<true>(splits, split, own) + side * HALF + lane % 4 * 2;
    const int columns = int(p.d_v) - int(side) * HALF;
    if (splits.out) store(acc[0], r, weight, division, columns, splits.out + to);
    else store(acc[0], r, weight, division, columns, p.out + to);
  }
}
