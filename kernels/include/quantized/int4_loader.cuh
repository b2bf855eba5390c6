// Global loaders of int4 weights and tokens by cp.async, and the CTA's share of columns and k_blocks.
//
// A thread's vectors advance by a fixed stride per k_block, so addresses are computed once. Offsets are 32-bit: weights
// in units of 16 bytes, scales and activations in elements, activations from the first token.
#pragma once
#include "quantized/int4_fragment.cuh"
#include "quantized/int4_weight.cuh"

namespace nibbles {

// The CTA's weight, column groups and k_block range; `column` indexes groups of columns over all weights.
template <class S, class Epi> struct Share {
  Weight<S, Epi> own;
  u32 strips, begin, end;  // strips (16 columns) of the weight; k_block range of this split of K

  template <int COUNT>
  __device__ __forceinline__ Share(
      const Weights<S, Epi, COUNT>& weights, u32 column, u32 blocks, u32 k_blocks_per_split)
      : own(weights.of(column)), strips((own.n + 15) / 16), begin(blockIdx.y * k_blocks_per_split),
        end(min((blocks + 1) / 2, begin + k_blocks_per_split)) {}
};

// Branch-free 16-byte cp.async, predicated on `there`; it writes zeros if not `whole`.
__device__ __forceinline__ void copy_where(bool there, u32 to, const void* from, bool whole = true) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p cp.async.cg.shared.global.L2::128B [%1], [%2], 16, %3;\n}"
               ::"r"(u32(there)), "r"(to), "l"(from), "r"(whole ? 16 : 0) : "memory");
}

// A thread's cp.async copies per k_block: THREADS threads share the tokens, PARTS warps share a strip group's weights.
template <class StageLayout, int THREADS, int PARTS> struct GlobalLoader {
  using T = typename StageLayout::Element;
  using S = typename StageLayout::Scale;
  static constexpr int STRIPS = StageLayout::STRIPS, GROUPS = StageLayout::GROUPS;
  static constexpr int CODES = 2 * STRIPS / PARTS;                                          // 16-byte copies
  // token vectors: in all, per thread
  static constexpr int VECTORS = 16 * StageLayout::TOKENS, OF_X = (VECTORS + THREADS - 1) / THREADS;
  static constexpr int ROWS = VECTORS / 4 % THREADS ? OF_X : OF_X / 4;  // distinct rows; the rest are 32, 64, 96 k's on
  static constexpr int ALL = CODES + OF_X + 1;                         // all copies, with one of scales and zeros
  static_assert(PARTS <= 2 && OF_X < 32);

  const uint4* codes;
  const T* x;
  const S* scales;
  const u8* zeros;
  u32 groups, strips, part, thread, lane, at[STRIPS], row[ROWS];
  // tail: the k_block in which K ends. Bit masks of the copies that are in range, in full k_blocks and in the tail: bit
  // 0 is the second 64 of K of the weights, bit j + 1 is vector j of x.
  u32 tail, whole, whole_tail;

  // `first`: the warp's first strip; `part`: index among the warps that share it; `thread`: index among those that
  // share the m tokens.
  template <class Epi>
  __device__ __forceinline__ GlobalLoader(const Share<S, Epi>& share, const T* x, u32 pitch, u32 m, u32 k, u32 blocks,
      u32 groups, u32 first, u32 part, u32 thread)
      : x(x), groups(groups), strips(share.strips), part(part), thread(thread), lane(thread % 32),
        tail(k / StageLayout::DEPTH), whole(1), whole_tail(tail * 2 + 1 < blocks) {
    first = min(first, strips - 1);
    const u32 last = strips - 1 - first;  // out-of-range strips are clamped to the last
    codes = reinterpret_cast<const uint4*>(share.own.codes) + u64(first) * blocks * 32 + (PARTS > 1 ? part * 32 : 0) +
        lane;
    scales = share.own.scales + (first + min(lane / 2 % STRIPS, last)) * 16 + lane % 2 * 8;
    zeros = share.own.zeros + (first + min(lane % STRIPS, last)) * 16;
#pragma unroll
    for (int s = 0; s < STRIPS; ++s) at[s] = min(u32(s), last) * blocks * 32;
#pragma unroll
    for (int j = 0; j < OF_X; ++j) {
      const u32 p = thread + j * THREADS, token = p / 4 % StageLayout::TOKENS,
                from = p / 4 / StageLayout::TOKENS * 32 + p % 4 * 8;
      const bool there = token < m && p < VECTORS;
      if (j < ROWS) row[j] = there ? token * pitch + from : 0;
      whole |= u32(there) << (j + 1);
      whole_tail |= u32(there && tail * StageLayout::DEPTH + from < k) << (j + 1);
    }
  }

  // Issues copies [from, to) of ALL of k_block `k_block`, predicated on `there`. Scale groups are clamped to the last
  // one; K and missing tokens are padded with zeros.
  __device__ __forceinline__ void issue(
      u32 weights, u32 tokens, u32 k_block, bool there, int from = 0, int to = ALL) const {
    const u32 inside = k_block == tail ? whole_tail : whole;
#pragma unroll
    for (int i = 0; i < ALL; ++i)
      if (i < from || i >= to) {
      } else if (i < CODES) {
        const int s = i * PARTS / 2;
        const u32 b = PARTS == 1 ? i % 2 : part;
        copy_where(there, weights + s * 1024 + b * 512 + lane * 16,
            codes + u64(at[s] + k_block * 64) + (PARTS == 1 ? b * 32 : 0), b == 0 || (inside & 1));
      } else if (i + 1 < ALL) {
        const int j = i - CODES;
        const u32 p = thread + j * THREADS;
        const bool active = (j + 1) * THREADS <= VECTORS || p < VECTORS;
        copy_where(there & active, tokens + p * 16,
            x + u64(row[j % ROWS] + k_block * StageLayout::DEPTH) + j / ROWS * 32, inside >> (j + 1) & 1);
      } else {
        const u32 group = min(k_block * GROUPS + lane / (STRIPS * 2), groups - 1),
                  own = min(k_block * GROUPS + lane / STRIPS, groups - 1);
        const bool active = there & (part == 0);
        copy_where(active & (lane < GROUPS * STRIPS * 2), weights + StageLayout::CODES + lane * 16,
            scales + u64(group * strips * 16));
        if constexpr (StageLayout::ZERO_BYTES > 0)
          copy_where(active & (lane < GROUPS * STRIPS), weights + StageLayout::CODES + StageLayout::SCALES + lane * 16,
              zeros + u64(own * strips * 16));
      }
  }
};

}  // namespace nibbles
