// dest[i0, ..., ir] = source[i0, ..., ir], strided copies of bytes, for any element type.
//
// copy_runs:     both sides have contiguous runs. A thread has UNROLL 16-byte chunks aligned in the destination, so
//                stores are full and coalesced for any offset; a misaligned source is read as two aligned words and
//                shifted. Bound: DRAM.
// copy_slots:    short runs. A thread has UNROLL slots of WIDTH bytes (the grain), neighbouring threads have
//                neighbouring slots, so partial ends cost only their bytes; all loads precede the stores. Bound:
//                sectors touched.
// copy_elements: no contiguous run; UNROLL elements of WIDTH bytes per thread. Bound: sectors touched.
// Shared:        none.
#include "core/index.cuh"
#include "core/shift.cuh"

constexpr int THREADS = 256;
constexpr int CHUNK = 16;
constexpr u32 SECTOR = 32;  // bytes, the unit of transfers between DRAM and L2

// Whether chunk [dest, dest + 16) is inside the run [run_dest, run_dest + length), and the two aligned 16-byte words
// that hold its source are inside the source run, `lag` bytes below: no byte outside the view is read.
__device__ __forceinline__ bool inside(u64 dest, u64 run_dest, i64 length, i64 lag) {
  u64 from = (dest - lag) & ~u64(CHUNK - 1), run_source = run_dest - lag;
  return dest >= run_dest && dest + CHUNK <= run_dest + length &&
      from >= run_source && from + 2 * CHUNK <= run_source + length;
}

// ENDS: grains loaded at a run's end before the first store. I: index type of chunks. R: outer axes. GRAIN: the largest
// power of two, at most 16, that divides every address, stride and run length.
template <class I, int R, int GRAIN, int ENDS, int UNROLL>
__global__ void __launch_bounds__(THREADS) copy_runs(
    u8* dest, const u8* source, i64 length, I chunks, typename DivisorOf<I>::type chunks_per_run, Dims<I, R, 2> dims) {
  I base = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  uint4 value[UNROLL];
  u64 to[UNROLL];
  u64 run_dest[UNROLL];
  i64 lag[UNROLL];
  bool whole[UNROLL];
  // 1. Load whole chunks
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
  // 2. Store whole chunks, copy the ends of runs by grains
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

// Byte gaps that R outer axes, innermost last, add to the offsets of back-to-back runs. With a 32-bit index the gaps
// are 32-bit, so that an address is one multiply-add per axis.
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

// Prefetches a sector into L2.
__device__ __forceinline__ void fetch(const u8* sector) { asm volatile("prefetch.global.L2 [%0];" ::"l"(sector)); }

// SECTORS: a run's slots start at the destination sector in which the run starts, so that one store writes all of a
//          sector's bytes; slots outside the run's `length` bytes are idle, and slots_per_run fills whole sectors.
// FETCH:   prefetches partly written destination sectors. L2 must read the bytes that a partial store leaves out;
//          issued with the loads, this latency is hidden. With SECTORS only the partial sectors of runs that also have
//          whole ones, otherwise every slot's sector.
template <class I, int R, int WIDTH, int UNROLL, bool SECTORS, bool FETCH>
__global__ void __launch_bounds__(THREADS) copy_slots(
    u8* dest, const u8* source, u32 length, I slots, typename DivisorOf<I>::type slots_per_run, Gaps<I, R> gaps) {
  using T = typename Word<WIDTH>::type;
  const I first = I(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  T value[UNROLL];
  u8* to[UNROLL];
  bool yes[UNROLL];
  dest += i64(first) * WIDTH;
  source += i64(first) * WIDTH;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    // 1. The slot's run and its addresses
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
      if constexpr (FETCH) {  // one lane per partial sector, in runs with a whole one
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
  // 2. Store the slots
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
