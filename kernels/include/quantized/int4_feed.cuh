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

// A thread's copies of slabs: THREADS of them bring tokens together, PARTS warps weights.
template <class Slab, int THREADS, int PARTS> struct Feed {
  using T = typename Slab::Element;
  using S = typename Slab::Scale;
  static constexpr int COPIES = 2 * Slab::STRIPS / PARTS;                                     // of codes, 16 bytes each
  static constexpr int PIECES = 4 * Slab::TOKENS, ROUNDS = (PIECES + THREADS - 1) / THREADS;  // of 32 of K of all tokens
  static constexpr int TOGETHER = PIECES * 4 <= THREADS ? 4 : PIECES * 2 <= THREADS ? 2 : 1;  // of those, at once
  static_assert(2 * Slab::STRIPS % PARTS == 0);

  const uint4* codes;
  u32 strips, first, last, at, blocks, groups, lane, part, thread;  // the warp's first strip, and how many past it there are
  const S* scales;
  const u8* zeros;
  const T* x;
  u32 row[ROUNDS], limit[ROUNDS];

  // `first`: the warp's first strip; `part` of the warps that share it, `thread` of those that share tokens, of which there are m.
  template <class Epi>
  __device__ __forceinline__ Feed(const Share<S, Epi>& share, const T* x, u32 pitch, u32 m, u32 k, u32 blocks, u32 groups, u32 first, u32 part,
                                  u32 thread)
      : codes(reinterpret_cast<const uint4*>(share.own.codes)), strips(share.strips), first(min(first, strips - 1)), last(strips - 1 - this->first),
        at(this->first * blocks * 32 + thread % 32), blocks(blocks), groups(groups), lane(thread % 32), part(part), thread(thread),
        scales(share.own.scales), zeros(share.own.zeros), x(x) {
#pragma unroll
    for (int j = 0; j < ROUNDS; ++j) {
      const u32 p = thread + j * THREADS, token = p / 4 % Slab::TOKENS, from = p / PIECES * 32 + p % 4 * 8;
      const bool there = token < m && from < k && p < PIECES * TOGETHER;
      row[j] = there ? token * pitch + from : 0;
      limit[j] = there ? k - from : 0;
    }
  }

  // Slab `slab`, to its places in shared memory. The last strip and group stand for those past it, too; K is filled up with zeros.
  __device__ __forceinline__ void bring(u32 weights, u32 tokens, u32 slab) const {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const u32 copy = i * PARTS + part, b = copy % 2, block = slab * 2 + b;
      const uint4* const from = codes + u64(at + (min(copy / 2, last) * blocks + slab * 2) * 32) + b * 32;
      copy_async<16>(weights + copy * 512 + lane * 16, from, block < blocks ? 16 : 0);
    }
#pragma unroll
    for (int j = 0; j < ROUNDS; ++j)
      if (PIECES * TOGETHER % THREADS == 0 || thread + j * THREADS < PIECES * TOGETHER) {
        const T* const from = x + u64(row[j] + slab * Slab::DEPTH);
#pragma unroll
        for (int c = 0; c < 4; c += TOGETHER)
          copy_async<16>(tokens + (thread + c * PIECES + j * THREADS) * 16, from + c * 32, slab * Slab::DEPTH + c * 32 < limit[j] ? 16 : 0);
      }
    if (PARTS > 1 && part > 0) return;
    constexpr int STRIPS = Slab::STRIPS, GROUPS = Slab::GROUPS;
    if (lane < GROUPS * STRIPS * 2) {
      const u32 group = min(slab * GROUPS + lane / (STRIPS * 2), groups - 1), strip = first + min(lane / 2 % STRIPS, last);
      copy_async<16>(weights + Slab::CODES + lane * 16, scales + (group * strips + strip) * 16 + lane % 2 * 8, 16);
    }
    if constexpr (Slab::ZERO_BYTES > 0)
      if (lane < GROUPS * STRIPS) {
        const u32 group = min(slab * GROUPS + lane / STRIPS, groups - 1), strip = first + min(lane % STRIPS, last);
        copy_async<16>(weights + Slab::CODES + Slab::SCALES + lane * 16, zeros + (group * strips + strip) * 16, 16);
      }
  }
};

}  // namespace nibbles
