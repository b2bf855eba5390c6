// Strided copies: dest[i0, ..., ir] = source[i0, ..., ir] as bytes, whatever the element.
//
// copy_runs: both sides have contiguous runs of L bytes. A thread owns 16-byte chunks of the *destination*, aligned there,
// so that stores are full and coalesced whatever the offsets; a source that is out of phase is read as aligned 4-byte
// words and shifted. UNROLL chunks a thread, a CTA's chunks contiguous. No shared memory. Bound: memory bandwidth.
// copy_slots: short runs. A thread moves UNROLL slots of WIDTH bytes, the grain, and neighbours have neighbouring slots, so that
// the ends of runs cost no more than their bytes; all loads are under way before the first store. Bound: sectors touched.
// copy_elements: no contiguous run; a thread moves UNROLL elements of WIDTH bytes. Bound: sectors touched.
#include "index.cuh"
#include "shift.cuh"

constexpr int THREADS = 256;
constexpr int CHUNK = 16;
constexpr u32 SECTOR = 32;  // what memory and L2 exchange

// Whether chunk [dest, dest + 16) lies in the run [run_dest, run_dest + length), and the two aligned 16-byte words that hold
// its source do in the source run, `lag` bytes behind: no byte outside the view is ever read.
__device__ __forceinline__ bool inside(u64 dest, u64 run_dest, i64 length, i64 lag) {
  u64 from = (dest - lag) & ~u64(CHUNK - 1), run_source = run_dest - lag;
  return dest >= run_dest && dest + CHUNK <= run_dest + length && from >= run_source && from + 2 * CHUNK <= run_source + length;
}

// ENDS: grains loaded at a run's end before the first is stored. I: index type of chunks. R: outer axes. GRAIN: the power of two (up to 16) that divides every address, stride and L.
template <class I, int R, int GRAIN, int ENDS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
copy_runs(u8* dest, const u8* source, i64 length, I chunks, typename DivisorOf<I>::type chunks_per_run, Dims<I, R, 2> dims) {
  I base = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  uint4 value[UNROLL];
  u64 to[UNROLL];
  u64 run_dest[UNROLL];
  i64 lag[UNROLL];
  bool whole[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I chunk = base + u * THREADS;
    whole[u] = false;
    to[u] = 0;
    if (chunk < chunks) {
      I run = chunks_per_run.divide(chunk);
      i64 offset[2] = {0, 0};
      dims.locate(run, offset);
      run_dest[u] = u64(dest) + offset[0];
      lag[u] = i64(run_dest[u] - (u64(source) + offset[1]));
      to[u] = (run_dest[u] & ~u64(CHUNK - 1)) + u64(chunk - run * chunks_per_run.divisor) * CHUNK;
      if constexpr (GRAIN == CHUNK) {
        whole[u] = true;
        value[u] = *reinterpret_cast<const uint4*>(to[u] - lag[u]);
      } else if (inside(to[u], run_dest[u], length, lag[u])) {
        whole[u] = true;
        u64 from = to[u] - lag[u];
        const uint4* words = reinterpret_cast<const uint4*>(from & ~u64(CHUNK - 1));
        u32 shift = u32(from & (CHUNK - 1));
        value[u] = words[0];
        if (shift) value[u] = shifted(value[u], words[1], shift);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    if (whole[u]) {
      *reinterpret_cast<uint4*>(to[u]) = value[u];
    } else if (GRAIN < CHUNK && to[u]) {  // the ends of a run, grain by grain
      using Grain = typename Word<GRAIN>::type;
      u64 first = to[u] > run_dest[u] ? to[u] : run_dest[u];
      u64 last = to[u] + CHUNK < run_dest[u] + length ? to[u] + CHUNK : run_dest[u] + length;
      Grain grains[ENDS];
#pragma unroll 1
      for (u64 start = first; start < last; start += ENDS * GRAIN) {
#pragma unroll
        for (int k = 0; k < ENDS; ++k) {
          u64 at = start + k * GRAIN;
          if (at < last) grains[k] = *reinterpret_cast<const Grain*>(at - lag[u]);
        }
#pragma unroll
        for (int k = 0; k < ENDS; ++k) {
          u64 at = start + k * GRAIN;
          if (at < last) *reinterpret_cast<Grain*>(at) = grains[k];
        }
      }
    }
  }
}

// What R outer axes, innermost last, add to the offsets of runs that lie one behind the other, in bytes. With a 32-bit index they
// are 32-bit numbers, so that an address is one multiply-add an axis.
template <class I> struct GapOf { using type = i64; };
template <> struct GapOf<u32> { using type = i32; };
template <class I, int R> struct Gaps {
  using Gap = typename GapOf<I>::type;
  typename DivisorOf<I>::type extent[R > 0 ? R : 1];
  Gap gap[2][R > 0 ? R : 1];

  __device__ __forceinline__ void add(I run, u8*& dest, const u8*& source) const {
#pragma unroll
    for (int axis = R - 1; axis >= 0; --axis) {
      const I rest = axis > 0 ? extent[axis].divide(run) : 0;
      const Gap at = Gap(axis > 0 ? run - rest * extent[axis].divisor : run);
      dest += i64(at) * gap[0][axis];
      source += i64(at) * gap[1][axis];
      run = rest;
    }
  }
};

// Brings the sector of an address to L2: no register, no fault, and nothing waits.
__device__ __forceinline__ void fetch(const u8* sector) { asm volatile("prefetch.global.L2 [%0];" ::"l"(sector)); }

// SECTORS: slots begin at the sector of the destination where the run does, so that one store writes all of a sector that is
// to be written; slots before and behind the run's `length` bytes stay idle. A run's slots fill whole sectors then.
// FETCH: sectors that are written in part next to whole ones are fetched ahead. L2 has to read what a store leaves out of a
// sector; asked for with the loads, that is hidden behind them. SECTORS fetches those sectors only, otherwise every slot's.
template <class I, int R, int WIDTH, int UNROLL, bool SECTORS, bool FETCH>
__global__ void __launch_bounds__(THREADS)
copy_slots(u8* dest, const u8* source, u32 length, I slots, typename DivisorOf<I>::type slots_per_run, Gaps<I, R> gaps) {
  using T = typename Word<WIDTH>::type;
  const I first = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  T value[UNROLL];
  u8* to[UNROLL];
  bool yes[UNROLL];
  dest += i64(first) * WIDTH;
  source += i64(first) * WIDTH;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    // the slot's run, and its place on both sides
    const I slot = first + u * THREADS, run = slots_per_run.divide(slot);
    const u8* from = source + u * THREADS * WIDTH;
    to[u] = dest + u * THREADS * WIDTH;
    gaps.add(run, to[u], from);
    yes[u] = slot < slots;
    if constexpr (SECTORS) {
      const u32 within = u32(slot - run * slots_per_run.divisor) * WIDTH, phase = u32(u64(to[u]) - within) % SECTOR;
      yes[u] = yes[u] && within - phase < length;
      to[u] -= phase;
      from -= phase;
      if constexpr (FETCH) {  // one lane a sector that is not whole, in runs that have a whole one
        const u32 begin = within & ~(SECTOR - 1), end = phase + length;
        const bool mixed = ((phase + SECTOR - 1) & ~(SECTOR - 1)) + SECTOR <= end;
        const bool part = begin < phase || begin + SECTOR > end;
        if (yes[u] && mixed && part && (within == begin || within == phase)) fetch(to[u]);
      }
    } else if constexpr (FETCH) {
      if (yes[u]) fetch(to[u]);
    }
    if (yes[u]) value[u] = *reinterpret_cast<const T*>(from);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (yes[u]) *reinterpret_cast<T*>(to[u]) = value[u];
}

template <class I, int R, int WIDTH, int UNROLL>
__global__ void __launch_bounds__(THREADS) copy_elements(u8* dest, const u8* source, I count, Dims<I, R, 2> dims) {
  using T = typename Word<WIDTH>::type;
  I base = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  T value[UNROLL];
  i64 to[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    I i = base + u * THREADS;
    if (i < count) {
      i64 offset[2] = {0, 0};
      dims.locate(i, offset);
      to[u] = offset[0];
      value[u] = *reinterpret_cast<const T*>(source + offset[1]);
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (base + u * THREADS < count) *reinterpret_cast<T*>(dest + to[u]) = value[u];
}
