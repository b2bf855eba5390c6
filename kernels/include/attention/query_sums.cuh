// Sums of grad_q that blocks of keys add to: where they lie, which blocks meet a tile of queries, and in which order they come.
#pragma once
#include "attention/mask.cuh"

namespace attention {

// The block of keys that comes in a round to one of `stripes` CTAs that share a head's: there and back, so that all have as much to
// do where later blocks have fewer queries.
__device__ __forceinline__ u32 block_of(u32 round, u32 stripe, u32 stripes) {
  return round * stripes + (round % 2 ? stripes - 1 - stripe : stripe);
}

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

// Sums in tiles of BM queries, `tiles` a head, those of a sequence behind the other's, as the threads hold them that add. A tile's
// first visitor in a slice writes it, so that nothing need be cleared; slices lie `slice` floats apart. With none (0) whoever
// comes first adds to zeros.
struct Sums {
  float* at;
  u64 slice;
  u32 tiles, stripes;

  // The tile of a head's queries from BM block on.
  template <int BM, class P> __device__ __forceinline__ u64 tile(const P& p, u32 batch, u32 head, int block) const {
    if (!p.starts_q) return u64(batch * p.heads + head) * tiles + block;
    return u64(head) * tiles + Extent(p.starts_q, batch, p.rows).first / BM + batch + block;
  }
  // Whether a slice has anything of a tile.
  __device__ __forceinline__ bool holds(u32 of, const Visitors& visitors, u32 slices) const {
    if (!slice) return true;
    for (int round = visitors.first / int(slices); round * int(slices) < visitors.end; ++round) {
      const int block = block_of(round, of, slices);
      if (block >= visitors.first && block < visitors.end) return true;
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
