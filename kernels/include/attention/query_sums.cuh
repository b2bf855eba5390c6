// Sums of grad_q that blocks of keys add to: where they lie, which blocks meet a tile of queries, and in which order they come.
#pragma once
#include "attention/mask.cuh"

namespace attention {

// Blocks of BN keys that visit the tile of BM queries: those of which some key is seen from there, by place alone, and with one
// that has rows beyond the last, all further ones. The same ones as of which rows_of, rounded to tiles, holds it.
struct Visitors {
  int first, end;
  template <int BM, int BN> static __device__ __forceinline__ Visitors of(const Band& band, int rows, int tile) {
    const int blocks = (band.keys + BN - 1) / BN, seen = tile * BM + band.first, past = (tile + 1) * BM + band.end - 1;
    const int end = (tile + 1) * BM > rows ? blocks : min((max(past, 0) + BN - 1) / BN, blocks);
    return {seen >= band.keys ? blocks : max(seen, 0) / BN, end};
  }
};

// Sums in tiles of BM queries, `tiles` a head, those of a sequence behind the other's, as the threads hold them that add. Slices lie
// `apart` floats apart; CTA i of a head adds to slice i % slices, behind CTA i - slices where there is one, and a tile's first visitor
// writes it, so that nothing need be cleared. With no slices whoever comes first adds to zeros. `turns`: how far each CTA is that
// another one waits for, 0 at first.
struct Sums {
  float* at;
  u32* turns;
  u64 apart;
  u32 tiles, ctas, slices;  // of a head
  u32 section;              // heads whose CTAs are interleaved; 1 where CTAs wait for others of their head

  // Which head, and which CTA of it, CTA `flat` of the grid is: the first CTAs of `section` heads, then their second ones. Under
  // causal these take longest, so that the grid ends with short CTAs.
  __device__ __forceinline__ u32 first_of_section(u32 flat) const { return flat / (section * ctas) * section; }
  __device__ __forceinline__ u32 heads_of_section(u32 flat) const { return min(section, gridDim.x / ctas - first_of_section(flat)); }
  __device__ __forceinline__ u32 head(u32 flat) const {
    return first_of_section(flat) + (flat - first_of_section(flat) * ctas) % heads_of_section(flat);
  }
  __device__ __forceinline__ u32 cta_of_head(u32 flat) const {
    return (flat - first_of_section(flat) * ctas) / heads_of_section(flat);
  }

  // Blocks of BN keys that a CTA takes, one after the other; where CTAs add in turn 1, but of sequences longer than was said.
  template <int BN> __device__ __forceinline__ u32 rounds(int keys) const { return ((keys + BN - 1) / BN + ctas - 1) / ctas; }

  __device__ __forceinline__ bool in_turn() const { return slices && slices < ctas; }
  // They come to it in ascending order: neighbours, so that no CTA waits for a later one; else there and back, so that all have as
  // much to do where later blocks have fewer queries.
  __device__ __forceinline__ u32 block(u32 cta, u32 round, u32 rounds) const {
    if (in_turn()) return cta * rounds + round;
    return round * ctas + (round % 2 ? ctas - 1 - cta : cta);
  }

  static __device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
  // What the CTA before this one will add next. It was launched earlier, or is beside this one: GPUs launch CTAs in the order of
  // blockIdx.x, which CUDA does not promise, and without which a CTA could wait for one that finds no room.
  __device__ __forceinline__ u32 before() const {
    return blockIdx.x % ctas < slices ? ~0u : atomicAdd(turns + blockIdx.x - slices, 0u);
  }
  // Before this CTA adds at `place`: all before is added, by all threads that have met since, and whoever comes after may know. Then
  // it waits until the CTA before it has added at `behind`, if it had not when it was asked; a tile more, so that it need not wait
  // for the next one. One thread takes part.
  __device__ __forceinline__ void take_turn(u32 place, u32 behind, u32 known) const {
    fence();
    atomicMax(turns + blockIdx.x, place);
    if (known > behind) return;
    while (before() <= behind + 1) __nanosleep(64);
    fence();
  }

  // The tile of a head's queries from BM block on.
  template <int BM, class P> __device__ __forceinline__ u64 tile(const P& p, u32 batch, u32 head, int block) const {
    if (!p.starts_q) return u64(batch * p.heads + head) * tiles + block;
    return u64(head) * tiles + Extent(p.starts_q, batch, p.rows).first / BM + batch + block;
  }
  // Whether a slice has anything of a tile: whether some block of its CTAs visits it.
  __device__ __forceinline__ bool holds(u32 slice, const Visitors& visitors, u32 rounds) const {
    if (!slices) return true;
    if (in_turn()) {
      const u32 first = visitors.first / rounds, next = first + (slice + slices - first % slices) % slices;
      return visitors.first < visitors.end && int(next * rounds) < visitors.end;
    }
    for (u32 round = visitors.first / int(ctas); int(round * ctas) < visitors.end; ++round) {
      const int at = block(slice, round, rounds);
      if (at >= visitors.first && at < visitors.end) return true;
    }
    return false;
  }
};

__device__ __forceinline__ void add_to(float* to, float x) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void put_at(float* to, float x) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}

}  // namespace attention
