// f32 accumulators of dQ in global memory (`QuerySums`): layout, visitors of a query tile, order of CTAs.
#pragma once
#include "attention/mask.cuh"

namespace attention {

// Blocks of BN keys that visit a tile of BM queries: those with a key that some query sees (causal, window), and for
// the tile that extends past the last row, all later ones. Consistent with rows_of rounded to tiles.
struct Visitors {
  int first, end;
  template <int BM, int BN> static __device__ __forceinline__ Visitors of(const Band& band, int rows, int tile) {
    const int blocks = (band.keys + BN - 1) / BN, seen = tile * BM + band.first, past = (tile + 1) * BM + band.end - 1;
    const int end = (tile + 1) * BM > rows ? blocks : min((max(past, 0) + BN - 1) / BN, blocks);
    return {seen >= band.keys ? blocks : max(seen, 0) / BN, end};
  }
};

// Tiles of BM queries, `tiles` per head, packed by sequence, in the register layout of the threads that add. Slices are
// spaced by `slice_stride` floats. CTA i of a head adds to slice i % slices, after CTA i - slices if there is one; a
// tile's first visitor stores, so that nothing is cleared. With no slices, CTAs add atomically in arrival order to
// zeros. `progress`: the progress counter of each CTA, 0 at first (a semaphore per CTA).
struct QuerySums {
  float* at;
  u32* progress;
  u64 slice_stride;
  u32 tiles, ctas, slices;  // per head
  u32 section;              // heads whose CTAs are interleaved; 1 where CTAs wait for others of their head

  // Head, and CTA of that head, of CTA `flat` of the grid: the first CTAs of `section` heads, then their second ones.
  // Under causal the first ones take longest, so that the grid ends with short CTAs.
  __device__ __forceinline__ u32 first_of_section(u32 flat) const { return flat / (section * ctas) * section; }
  __device__ __forceinline__ u32 heads_of_section(u32 flat) const {
    return min(section, gridDim.x / ctas - first_of_section(flat));
  }
  __device__ __forceinline__ u32 head(u32 flat) const {
    return first_of_section(flat) + (flat - first_of_section(flat) * ctas) % heads_of_section(flat);
  }
  __device__ __forceinline__ u32 cta_of_head(u32 flat) const {
    return (flat - first_of_section(flat) * ctas) / heads_of_section(flat);
  }

  // Blocks of BN keys per CTA; 1 for CTAs that add in order, unless a sequence exceeds max_seqlen_k.
  template <int BN> __device__ __forceinline__ u32 rounds(int keys) const {
    return ((keys + BN - 1) / BN + ctas - 1) / ctas;
  }

  __device__ __forceinline__ bool ordered() const { return slices && slices < ctas; }
  // The block of a CTA's round. CTAs that add in order have adjacent blocks, so that none waits for a later CTA;
  // otherwise the order alternates direction (boustrophedon), to balance causal work.
  __device__ __forceinline__ u32 block(u32 cta, u32 round, u32 rounds) const {
    if (ordered()) return cta * rounds + round;
    return round * ctas + (round % 2 ? ctas - 1 - cta : cta);
  }

  static __device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
  // Progress of the CTA whose additions precede this one's. Assumes that CTAs are launched in order of blockIdx.x, as
  // GPUs do but CUDA does not guarantee: otherwise a CTA could wait for one that is not resident.
  __device__ __forceinline__ u32 predecessor() const {
    return blockIdx.x % ctas < slices ? ~0u : atomicAdd(progress + blockIdx.x - slices, 0u);
  }
  // Called before this CTA adds tile `place`: publishes that its earlier tiles are added (by all threads, after a
  // barrier), then waits until the preceding CTA has passed tile `behind`, unless `known` shows it; one tile further,
  // so that the next call need not wait. One thread calls it.
  __device__ __forceinline__ void wait_for_predecessor(u32 place, u32 behind, u32 known) const {
    fence();
    atomicMax(progress + blockIdx.x, place);
    if (known > behind) return;
    while (predecessor() <= behind + 1) __nanosleep(64);
    fence();
  }

  // Index of the query tile `block` of a head.
  template <int BM, class P> __device__ __forceinline__ u64 tile(const P& p, u32 batch, u32 head, int block) const {
    if (!p.starts_q) return u64(batch * p.heads + head) * tiles + block;
    return u64(head) * tiles + Extent(p.starts_q, batch, p.rows).first / BM + batch + block;
  }
  // Whether some block of the slice's CTAs visits the tile, so that the slice holds a value.
  __device__ __forceinline__ bool holds(u32 slice, const Visitors& visitors, u32 rounds) const {
    if (!slices) return true;
    if (ordered()) {
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

// Four sums of a thread: adjacent where one instruction adds them, else at distances of THREADS, so that a warp's are
// adjacent. f32 add in L2 without return value, or plain store.
#if __CUDA_ARCH__ >= 900
constexpr u32 THREAD_STEP = 4;  // floats from a thread's four to those of the next
template <u32 THREADS> __device__ __forceinline__ void sums_to(float* to, const float (&x)[4], bool adds) {
  if (adds)
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
  else *reinterpret_cast<Vec<float, 4>*>(to) = {{x[0], x[1], x[2], x[3]}};
}
template <u32 THREADS> __device__ __forceinline__ Vec<float, 4> sums_at(const float* from) {
  return *reinterpret_cast<const Vec<float, 4>*>(from);
}
#else
constexpr u32 THREAD_STEP = 1;
template <u32 THREADS> __device__ __forceinline__ void sums_to(float* to, const float (&x)[4], bool adds) {
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (adds) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to + e * THREADS), "f"(x[e]) : "memory");
    else to[e * THREADS] = x[e];
}
template <u32 THREADS> __device__ __forceinline__ Vec<float, 4> sums_at(const float* from) {
  return {{from[0], from[THREADS], from[2 * THREADS], from[3 * THREADS]}};
}
#endif

}  // namespace attention
