// out = softmax(change(scale q k^T)) v for a few tokens per sequence over its KV cache (split-KV); f16, bf16; lse.
//
// Tiling:    one CTA per (sequence, KV head, split of the keys, 16 BLOCKS rows, DV columns of V); one row per (token,
//            query head of the GQA group), token by token. CTAs with other columns compute the same scores.
// Threads:   each of WARPS warps takes every WARPS-th k_block of 16 keys from load to P V, with no CTA barrier in the
//            loop; the warps' (m, l, O) are combined once at the end.
// Pipeline:  cp.async, STAGES stages per warp. PDL: without pages, Q and the first k_blocks are prefetched to L2 before
//            griddepcontrol.wait and before the lengths are known. CHANGED: `change` is softcap, ALiBi; no mask.
// E:         element of the cache: T, or 8 bits, widened in registers (bytes.cuh). ldmatrix then delivers
//            columns of 8-bit K and V in another order: Q is stored permuted, O is permuted back at the end.
// PAGED:     page ids are looked up a k_block ahead, one key per lane; keys of missing pages are masked. The first
//            CTAs, one per sequence, check the page table.
// CLUSTER:   its CTAs are the splits, combined through DSMEM. CLUSTER = 1: two and more splits write for merge.cu.
// Shared:    Q, WARPS x STAGES x (K, V, SCALED: one f32 scale per key and value); at the end the warps' O.
// Bound:     DRAM, STAGES - 1 k_blocks per warp in flight; short problems: latency.
#include "attention/bytes.cuh"
#include "attention/decoding.cuh"
#include "attention/key_blocks.cuh"
#include "attention/pages.cuh"
#include "ptx/cluster.cuh"
#include "ptx/overlap.cuh"

using namespace attention;

// Scales columns of S or P (mma accumulators of 16 keys) by one f32 per key, read at `from`, 8 bytes per lane.
// HELD (P in f16): where |scale| < 256, products saturate at f16's largest number, 65504. As P is at most 2^8 but for
// rounding, they are at most 2^16, one ulp (32) more. Products of larger scales may become infinite.
template <bool HELD, int BLOCKS> __device__ __forceinline__ void scale_columns(float (&s)[BLOCKS][2][4], u32 from) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    Vec<float, 2> by;
    load_shared(by, from + n * 32);
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& x = s[b][n][e];
        const float scale = by.at[e % 2],
                    most = HELD && fabsf(scale) < 256.0f ? 65504.0f : -rows::minus_infinity<float>();
        x *= scale;
        if constexpr (HELD) x = fminf(fmaxf(x, -most), most);
      }
  }
}

template <class T, class E, class Out, int D, int DV, int BLOCKS, int WARPS, int STAGES, int RESIDENT, int CLUSTER,
    bool CHANGED, bool PAGED, bool SCALED>
__device__ __forceinline__ void decode(const Problem<T, Out, float>& p, const Cache& cache, const Scales& scales,
    const Splits& splits, u32 tiles, u32 chunks) {
  constexpr int ROWS = 16 * BLOCKS, THREADS = 32 * WARPS, OWN = 2 * BLOCKS;
  using Queries = Panels<ROWS, D>;
  constexpr bool NARROW = sizeof(E) == 1;
  using Keys_ = Panels<16, D * sizeof(E) / 2>;
  using Values = Panels<16, DV * sizeof(E) / 2>;
  constexpr int ROWS_BYTES = Keys_::BYTES + Values::BYTES, STAGE = ROWS_BYTES + (SCALED ? 128 : 0), PITCH = DV + 8;
  constexpr bool HELD = BLOCKS * D <= 128 && WARPS * RESIDENT <= 8;  // Q in registers
  extern __shared__ __align__(1024) u8 memory[];
  // Reference maximum m (`row_max`, in base 2: softmax.cuh's lazy base) and sum l of every warp's rows.
  __shared__ float row_max[WARPS][ROWS], sums[WARPS][ROWS];
  __shared__ __align__(8) float states[CLUSTER > 1 ? 2 * ROWS : 1];  // (m, l) per row
  const u32 joint = shared_address(states);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Shared memory: Q, stage buffers of this warp (`stages`).
  const u32 queries = shared_address(memory), stages = queries + Queries::BYTES + warp * (STAGES * STAGE);

  // 1. tile scheduler: split, rows, columns, head
  const u32 checks = PAGED ? (cache.sequences + CLUSTER - 1) / CLUSTER * CLUSTER : 0;
  u32 flat = blockIdx.x - checks, split = flat % CLUSTER;
  flat /= CLUSTER;
  const u32 chunk = flat % chunks, tile = flat / chunks % tiles, kv_heads = p.heads / p.group;
  flat /= chunks * tiles;
  if constexpr (CLUSTER == 1) split = flat % splits.count, flat /= splits.count;
  const u32 sequence = flat / kv_heads, kv_head = flat % kv_heads;
  const int first_column = chunk * DV, columns = int(p.d_v) - first_column;

  // 2. L2 prefetch before the previous kernel ends
  if constexpr (!PAGED) {
    if (splits.ahead) {
      const int capacity = int(cache.capacity), left = int(p.rows * p.group) - int(tile) * ROWS;
      const E* keys = reinterpret_cast<const E*>(p.k) + sequence * p.k_strides.batch + kv_head * p.k_strides.head;
      const E* values = reinterpret_cast<const E*>(p.v) + sequence * p.v_strides.batch + kv_head * p.v_strides.head +
          first_column;
      if (threadIdx.x == 0 && cache.lengths) prefetch_l2(cache.lengths + sequence);
      prefetch_l2<D, ROWS, THREADS>(
          threadIdx.x, left, int(p.d), [&](int i) { return query_of(p, sequence, kv_head, tile * ROWS + i); });
      const BlockRange first = splits.block_range(split, 0, capacity, WARPS);
      for (int block = first.first + warp, more = int(splits.ahead); more && block < first.end;
          --more, block += first.step) {
        prefetch_l2<D, 16, 32>(
            lane, capacity - block * 16, int(p.d), [&](int i) { return keys + (block * 16 + i) * p.k_strides.row; });
        prefetch_l2<DV, 16, 32>(
            lane, capacity - block * 16, columns, [&](int i) { return values + (block * 16 + i) * p.v_strides.row; });
      }
    }
  }
  // 3. PDL: wait, then release the next kernel
  overlap::wait();
  overlap::release();
  if constexpr (PAGED) {
    if (blockIdx.x < cache.sequences) check<THREADS>(cache, p, blockIdx.x);
    if (blockIdx.x < checks) return;
  }
  const SharedRows<T, Out> shared(p, cache, sequence, kv_head, tile * ROWS, ROWS);
  const int rows = shared.count, first_row = shared.first;
  if (first_row >= rows) return;

  // 4. k_blocks of this split that some row sees; every row sees the keys [whole_begin, whole_end)
  const Keys highest = shared.seen_by(shared.last), lowest = shared.seen_by(first_row);
  const int begin = lowest.first, end = highest.end, whole_begin = highest.first, whole_end = lowest.end;
  const BlockRange block_range = begin < end ? splits.block_range(split, begin, end, WARPS) : BlockRange{0, 0, WARPS};
  // A split without keys stores lse = -inf. Split 0 goes on, as it adds the sink; a cluster does for its barriers
  if (CLUSTER == 1 && split && block_range.first >= block_range.end) {
    if (chunk == 0) shared.template store_empty<THREADS>(splits, split);
    return;
  }
  int block = block_range.first + warp;
  while (block * 16 + 16 <= begin) block += block_range.step;  // splits of fixed size begin at key 0, seen or not

  // 5. loader: cp.async of one k_block; rows that no query sees are filled with zeros
  // PAGED: `page` and `slot` locate key lane % 16 of the k_block that is loaded next.
  const KeyBlock<Keys_, E> key_block(lane, int(p.d));
  const KeyBlock<Values, E> value_block(lane, columns);
  const E* k = reinterpret_cast<const E*>(p.k) + kv_head * p.k_strides.head + key_block.column(lane);
  const E* v = reinterpret_cast<const E*>(p.v) + kv_head * p.v_strides.head + first_column + value_block.column(lane);
  if constexpr (!PAGED) {
    k += sequence * p.k_strides.batch + (i64(block) * 16 + key_block.row) * p.k_strides.row;
    v += sequence * p.v_strides.batch + (i64(block) * 16 + value_block.row) * p.v_strides.row;
  }
  int page = -1, slot = 0;
  bool missing = false;  // some page that the lane looked up is missing
  const auto look_up = [&](int next) {
    if constexpr (PAGED) {
      const int key = next * 16 + lane % 16, at = key / int(cache.page_keys);
      slot = key - at * int(cache.page_keys);
      const bool seen = next < block_range.end && key >= begin && key < end;
      page = seen ? cache.table[sequence * cache.table_step + at] : -1;
      missing |= seen && u32(page) >= cache.pages;
    }
  };
  const auto issue_loads = [&](int stage, int next) {
    if (next < block_range.end) {
      const u32 to = stages + stage * STAGE;
      if constexpr (PAGED) {
        const u32 found = __ballot_sync(~0u, u32(page) < cache.pages);
        const i64 k_at = page * p.k_strides.batch + slot * p.k_strides.row,
                  v_at = page * p.v_strides.batch + slot * p.v_strides.row;
        key_block.copy(
            to, [&](int i) { return k + __shfl_sync(~0u, k_at, key_block.row + i); },
            [&](int i) { return found >> (key_block.row + i) & 1; });
        value_block.copy(to + Keys_::BYTES, [&](int i) { return v + __shfl_sync(~0u, v_at, value_block.row + i); },
                         [&](int i) { return found >> (value_block.row + i) & 1; });
      } else {
        const auto seen = [&](int row) { return u32(next * 16 + row - begin) < u32(end - begin); };
        key_block.copy(
            to, [&](int i) { return k + i * p.k_strides.row; }, [&](int i) { return seen(key_block.row + i); });
        value_block.copy(
            to + Keys_::BYTES, [&](int i) { return v + i * p.v_strides.row; },
            [&](int i) { return seen(value_block.row + i); });
        k += 16 * block_range.step * p.k_strides.row;
        v += 16 * block_range.step * p.v_strides.row;
      }
      if constexpr (SCALED) {  // one scale per lane: lanes 0-15 for keys, lanes 16-31 for values
        const bool first = lane < 16;
        const float* from = first ? scales.k : scales.v;
        const OperandStrides strides = {first ? scales.k_strides.batch : scales.v_strides.batch,
            first ? scales.k_strides.head : scales.v_strides.head, first ? scales.k_strides.row : scales.v_strides.row};
        const int key = next * 16 + lane % 16;
        const bool there = (first ? scales.k_each : scales.v_each) && key < end && (!PAGED || u32(page) < cache.pages);
        const i64 place = PAGED ? page * strides.batch + slot * strides.row
                                : sequence * strides.batch + key * strides.row;
        copy_async<4>(to + ROWS_BYTES + lane * 4,
            there ? from + kv_head * strides.head + place : reinterpret_cast<const float*>(p.q), there ? 4 : 0);
      }
      look_up(next + block_range.step);
    }
    commit_copies();
  };
  // 6. prologue: STAGES - 1 k_blocks in flight
  look_up(block);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) issue_loads(s, block + s * block_range.step);

  // 7. Q to shared memory, negated if scale < 0, so that the largest product stays the largest score
  const float whole_scale = float(p.scale) * scales.of_keys(kv_head);
  shared.template load_queries<Queries, ROWS, THREADS, NARROW>(queries, whole_scale < 0 ? 0x80008000u : 0);
  __syncthreads();

  const u32 at_queries = queries + Queries::template lane_address<true>(lane);
  u32 held[HELD ? D / 16 : 1][BLOCKS][4];
  if constexpr (HELD)
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) load_matrices<false>(held[step][b], Queries::at(at_queries, b, step));

  const float scale = whole_scale == 0.0f ? 0x1p-149f : fabsf(whole_scale);  // nonzero, so that scale * -inf stays -inf
  const float factor = CHANGED ? math::LOG2E : scale * math::LOG2E;
  Keys seen[OWN];
  const Standing any = shared.standing(0);  // for `changed`, which reads only its offset: there is no mask
  float slope[OWN];
#pragma unroll
  for (int r = 0; r < OWN; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    seen[r] = row < rows ? shared.seen_by(row) : Keys{0, 0};
    slope[r] = CHANGED && row < rows ? slope_of(p, shared.standing(row)) : 0.0f;
  }
  OnlineSoftmax<BLOCKS> softmax;
  float acc[BLOCKS][DV / 8][4] = {};

  // 8. main loop: one k_block of 16 keys per warp
  int stage = 0;
  for (; block < block_range.end; block += block_range.step) {
    await_copies<STAGES - 2>();
    __syncwarp();  // all lanes' copies are visible, and all have read the previous stage, which is refilled
    issue_loads(stage == 0 ? STAGES - 1 : stage - 1, block + (STAGES - 1) * block_range.step);

    // 8a. S = Q K^T
    const u32 at_keys = stages + stage * STAGE + Keys_::template lane_address<false>(lane);
    float chains[2][BLOCKS][2][4] = {};  // two independent mma chains, for latency
    const auto score = [&](int step, const u32* low, const u32* high) {
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) {
        u32 loaded[4];
        if constexpr (!HELD) load_matrices<false>(loaded, Queries::at(at_queries, b, step));
        const u32* a = HELD ? held[HELD ? step : 0][b] : loaded;
        Mma<T>::run(chains[step % 2][b][0], a, low);
        Mma<T>::run(chains[step % 2][b][1], a, high);
      }
    };
#pragma unroll
    for (int step = 0; step < D * int(sizeof(E)) / 32; ++step) {
      u32 keys[4];
      load_matrices<false>(keys, Keys_::at(at_keys, 0, step));
      if constexpr (NARROW) {
        u32 wide[4][2];
        widen<T, E>(keys, wide);
        score(2 * step, wide[0], wide[2]);
        score(2 * step + 1, wide[1], wide[3]);
      } else {
        score(step, keys, keys + 2);
      }
    }
    float(&s)[BLOCKS][2][4] = chains[0];
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b)
#pragma unroll
      for (int e = 0; e < 8; ++e) s[b][e / 4][e % 4] += chains[1][b][e / 4][e % 4];
    const u32 at_scales = stages + stage * STAGE + ROWS_BYTES + lane % 4 * 8;
    if constexpr (SCALED)
      if (scales.k_each) scale_columns<false>(s, at_scales);

    // 8b. masks and score changes
    u32 there = ~0u;  // one bit per key: its page exists
    if constexpr (PAGED)
      if (__any_sync(~0u, missing)) there = __ballot_sync(~0u, cache.has(sequence, block * 16 + lane % 16));
    if (CHANGED || block * 16 < whole_begin || block * 16 + 16 > whole_end || ~there) {
#pragma unroll
      for (int r = 0; r < OWN; ++r) {
        const int row = first_row + lane / 4 + 8 * r;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = block * 16 + 8 * n + lane % 4 * 2 + e;
            float& score = s[r / 2][n][r % 2 * 2 + e];
            const bool counts = key >= seen[r].first && key < seen[r].end && (there >> key % 16 & 1);
            if constexpr (CHANGED)
              score = counts ? changed<T>(p, any, score * scale, shared.token(row), key, slope[r])
                             : rows::minus_infinity<float>();
            else score = counts ? score : rows::minus_infinity<float>();
          }
      }
    }
    // 8c. online softmax
    softmax.follow(s, factor, acc, [](float(&)[OWN]) {});
    softmax.weigh(s, factor);

    // 8d. O += P V; the values' scales multiply P, of which the row sums are taken already
    const u32 at_values = stages + stage * STAGE + Keys_::BYTES + Values::template lane_address<true>(lane);
    if constexpr (SCALED)
      if (scales.v_each) scale_columns<Same<T, f16>::value>(s, at_scales + 64);
    u32 a[BLOCKS][4];
#pragma unroll
    for (int b = 0; b < BLOCKS; ++b) pack_weights<T>(a[b], s[b], 0);
    const auto add = [&](int c, const u32* low, const u32* high) {
#pragma unroll
      for (int b = 0; b < BLOCKS; ++b) {
        Mma<T>::run(acc[b][2 * c], a[b], low);
        Mma<T>::run(acc[b][2 * c + 1], a[b], high);
      }
    };
#pragma unroll
    for (int c = 0; c < DV * int(sizeof(E)) / 32; ++c) {
      u32 values[4];
      load_matrices<true>(values, Values::at(at_values, 0, c));
      if constexpr (NARROW) {
        u32 wide[4][2];  // columns 2 g and 2 g + 1 of two keys per word
        widen<T, E>(values, wide);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const u32 even[2] = {wide[2 * half][0], wide[2 * half + 1][0]},
                    odd[2] = {wide[2 * half][1], wide[2 * half + 1][1]};
          add(2 * c + half, even, odd);
        }
      } else {
        add(c, values, values + 2);
      }
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
  await_copies<0>();
  __syncthreads();

  // 9. (m, l, O) of each warp to shared memory
  softmax.add_up();
#pragma unroll
  for (int r = 0; r < OWN; ++r) {
    const int line = lane / 4 + 8 * r;
    if (lane % 4 == 0) row_max[warp][line] = softmax.base[r] * factor, sums[warp][line] = softmax.sum[r];
    const u32 to = queries + (warp * ROWS + line) * PITCH * 4;
#pragma unroll
    for (int c = 0; c < DV / 16; ++c) {
      const float *first = acc[r / 2][2 * c] + r % 2 * 2, *second = acc[r / 2][2 * c + 1] + r % 2 * 2;
      if constexpr (NARROW) {
        store_shared(to + (16 * c + lane % 4 * 4) * 4, Vec<float, 4>{{first[0], second[0], first[1], second[1]}});
      } else {
        store_shared(to + (16 * c + lane % 4 * 2) * 4, Vec<float, 2>{{first[0], first[1]}});
        store_shared(to + (16 * c + 8 + lane % 4 * 2) * 4, Vec<float, 2>{{second[0], second[1]}});
      }
    }
  }
  __syncthreads();

  // 10. combine warps, four columns per thread; the sink's term is added in split 0
  const int live = min(ROWS, rows - first_row);
  const auto joined = [&](int line, int column, Vec<float, 4>& x, float& whole) {
    const float sink = split == 0 ? sink_of<T, float>(p, shared.standing(first_row + line)) * math::LOG2E
                                  : rows::minus_infinity<float>();
    float most = sink;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) most = fmaxf(most, row_max[w][line]);
    const float base = OnlineSoftmax<BLOCKS>::shift(most);
    whole = math::ex2_ftz(sink - base);
    x = {};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float weight = math::ex2_ftz(row_max[w][line] - base);
      whole += sums[w][line] * weight;
      Vec<float, 4> part;
      load_shared(part, queries + ((w * ROWS + line) * PITCH + column) * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) x.at[e] += part.at[e] * weight;
    }
    return most;
  };
  const auto store = [&](int line, int column, Vec<float, 4>& x, float whole, float most) {
    shared.template store<CLUSTER == 1>(
        splits, split, scales.of_values(kv_head), first_row + line, first_column + column, x, whole, most);
  };
  for (int at = threadIdx.x; at < live * (DV / 4); at += THREADS) {
    const int line = at / (DV / 4), column = at % (DV / 4) * 4;
    if (column >= columns) continue;
    Vec<float, 4> x;
    float whole;
    const float most = joined(line, column, x, whole);
    if constexpr (CLUSTER == 1) {
      store(line, column, x, whole, most);
    } else {  // overwrites the first warp's O
      store_shared(queries + (line * PITCH + column) * 4, x);
      if (column == 0) store_shared(joint + line * 8, Vec<float, 2>{{most, whole}});
    }
  }

  // 11. combine the cluster through DSMEM, in rank order
  if constexpr (CLUSTER > 1) {
    cluster::arrive();
    cluster::await();
    for (int at = split * THREADS + threadIdx.x; at < live * (DV / 4); at += CLUSTER * THREADS) {
      const int line = at / (DV / 4), column = at % (DV / 4) * 4;
      if (column >= columns) continue;
      Vec<float, 2> state[CLUSTER];
      float most = rows::minus_infinity<float>(), whole = 0.0f;
#pragma unroll
      for (int c = 0; c < CLUSTER; ++c) {
        cluster::load_far(state[c], cluster::address(joint + line * 8, c));
        most = fmaxf(most, state[c].at[0]);
      }
      Vec<float, 4> x = {};
#pragma unroll
      for (int c = 0; c < CLUSTER; ++c) {
        const float weight = math::ex2_ftz(state[c].at[0] - OnlineSoftmax<BLOCKS>::shift(most));
        whole += state[c].at[1] * weight;
        Vec<float, 4> part;
        cluster::load_far(part, cluster::address(queries + (line * PITCH + column) * 4, c));
#pragma unroll
        for (int e = 0; e < 4; ++e) x.at[e] += part.at[e] * weight;
      }
      store(line, column, x, whole, most);
    }
    cluster::arrive();
    cluster::await();  // no CTA exits while others read its shared memory
  }
}

template <class T, class E, class Out, int D, int DV, int BLOCKS, int WARPS, int STAGES, int RESIDENT, bool CHANGED,
    bool PAGED, bool SCALED>
__global__ void __launch_bounds__(32 * WARPS, RESIDENT)
    attention_decode(Problem<T, Out, float> p, Cache cache, Scales scales, Splits splits, u32 tiles, u32 chunks) {
  decode<T, E, Out, D, DV, BLOCKS, WARPS, STAGES, RESIDENT, 1, CHANGED, PAGED, SCALED>(
      p, cache, scales, splits, tiles, chunks);
}

#if __CUDA_ARCH__ >= 900
template <class T, class E, class Out, int D, int DV, int BLOCKS, int WARPS, int STAGES, int RESIDENT, int CLUSTER,
    bool CHANGED, bool PAGED, bool SCALED>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(32 * WARPS, RESIDENT) attention_decode_cluster(
    Problem<T, Out, float> p, Cache cache, Scales scales, Splits splits, u32 tiles, u32 chunks) {
  decode<T, E, Out, D, DV, BLOCKS, WARPS, STAGES, RESIDENT, CLUSTER, CHANGED, PAGED, SCALED>(
      p, cache, scales, splits, tiles, chunks);
}
#endif
