// How slabs of int4 weights and of tokens come from global to shared memory, and which of them are a CTA's.
//
// What a thread copies of each slab lies at fixed distances from slab to slab, so that addresses are made once. Places are counted
// in 32 bits: tiles in 16 bytes, scales, and activations from the first token on.
#pragma once
#include "quantized/int4_fragment.cuh"
#include "quantized/int4_weight.cuh"

namespace nibbles {

// The columns and the slabs of a CTA: `column` counts groups of columns over all weights.
template <class S, class Epi> struct Share {
  Weight<S, Epi> own;
  u32 strips, begin, end;  // strips of the weight, slabs of this split of K

  template <int COUNT>
  __device__ __forceinline__ Share(const Weights<S, Epi, COUNT>& weights, u32 column, u32 blocks, u32 slabs_per_split)
      : own(weights.of(column)), strips((own.n + 15) / 16), begin(blockIdx.y * slabs_per_split),
        end(min((blocks + 1) / 2, begin + slabs_per_split)) {}
};

// A copy of 16 bytes, of which `valid` are read and the others zero; none where not `there`, without a branch.
__device__ __forceinline__ void copy_where(bool there, u32 to, const void* from, u32 valid) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p cp.async.cg.shared.global.L2::128B [%1], [%2], 16, %3;\n}"
               ::"r"(u32(there)), "r"(to), "l"(from), "r"(valid) : "memory");
}

// A thread's copies of slabs: THREADS of them bring tokens together, PARTS warps weights.
template <class Slab, int THREADS, int PARTS> struct Feed {
  using T = typename Slab::Element;
  using S = typename Slab::Scale;
  static constexpr int STRIPS = Slab::STRIPS, GROUPS = Slab::GROUPS;
  static constexpr int CODES = 2 * STRIPS / PARTS;                                            // copies of 16 bytes each
  static constexpr int PIECES = 4 * Slab::TOKENS, ROUNDS = (PIECES + THREADS - 1) / THREADS;  // of 32 of K of all tokens
  static constexpr int TOGETHER = PIECES * 4 <= THREADS ? 4 : PIECES * 2 <= THREADS ? 2 : 1;  // of those, at once
  static constexpr int OF_ROUND = 4 / TOGETHER, ALL = CODES + ROUNDS * OF_ROUND + 1;          // copies; with scales and zero points
  static_assert(PARTS <= 2);

  const uint4* codes;
  const T* x;
  const S* scales;
  const u8* zeros;
  u32 blocks, groups, strips, part, thread, lane, at[STRIPS], row[ROUNDS], limit[ROUNDS];

  // `first`: the warp's first strip; `part` of the warps that share it, `thread` of those that share tokens, of which there are m.
  template <class Epi>
  __device__ __forceinline__ Feed(const Share<S, Epi>& share, const T* x, u32 pitch, u32 m, u32 k, u32 blocks, u32 groups, u32 first, u32 part,
                                  u32 thread)
      : x(x), blocks(blocks), groups(groups), strips(share.strips), part(part), thread(thread), lane(thread % 32) {
    first = min(first, strips - 1);
    const u32 last = strips - 1 - first;  // stands for those past it, too
    codes = reinterpret_cast<const uint4*>(share.own.codes) + u64(first) * blocks * 32 + (PARTS > 1 ? part * 32 : 0) + lane;
    scales = share.own.scales + (first + min(lane / 2 % STRIPS, last)) * 16 + lane % 2 * 8;
    zeros = share.own.zeros + (first + min(lane % STRIPS, last)) * 16;
#pragma unroll
    for (int s = 0; s < STRIPS; ++s) at[s] = min(u32(s), last) * blocks * 32;
#pragma unroll
    for (int j = 0; j < ROUNDS; ++j) {
      const u32 p = thread + j * THREADS, token = p / 4 % Slab::TOKENS, from = p / PIECES * 32 + p % 4 * 8;
      const bool there = token < m && from < k && p < PIECES * TOGETHER;
      row[j] = there ? token * pitch + from : 0;
      limit[j] = there ? k - from : 0;
    }
  }

  // Copies from `from` to `to`, of ALL, of slab `slab`, if it is there, to its places in shared memory. The last group stands for
  // those past it, too; K is filled up with zeros.
  __device__ __forceinline__ void bring(u32 weights, u32 tokens, u32 slab, bool there, int from = 0, int to = ALL) const {
#pragma unroll
    for (int i = from; i < to; ++i)
      if (i < CODES) {
        const int s = i * PARTS / 2;
        const u32 b = PARTS == 1 ? i % 2 : part;
        copy_where(there, weights + s * 1024 + b * 512 + lane * 16, codes + u64(at[s] + slab * 64) + (PARTS == 1 ? i % 2 * 32 : 0),
                   slab * 2 + b < blocks ? 16 : 0);
      } else if (i + 1 < ALL) {
        const int j = (i - CODES) / OF_ROUND, c = (i - CODES) % OF_ROUND * TOGETHER;
        const bool any = PIECES * TOGETHER % THREADS == 0 || thread + j * THREADS < PIECES * TOGETHER;
        copy_where(there && any, tokens + (thread + c * PIECES + j * THREADS) * 16, x + u64(row[j] + slab * Slab::DEPTH) + c * 32,
                   slab * Slab::DEPTH + c * 32 < limit[j] ? 16 : 0);
      } else {
        const bool any = there && (PARTS == 1 || part == 0);
        const u32 group = min(slab * GROUPS + lane / (STRIPS * 2), groups - 1);
        copy_where(any && lane < GROUPS * STRIPS * 2, weights + Slab::CODES + lane * 16, scales + u64(group * strips * 16), 16);
        if constexpr (Slab::ZERO_BYTES > 0) {
          const u32 own = min(slab * GROUPS + lane / STRIPS, groups - 1);
          copy_where(any && lane < GROUPS * STRIPS, weights + Slab::CODES + Slab::SCALES + lane * 16, zeros + u64(own * strips * 16), 16);
        }
      }
  }
};

}  // namespace nibbles
