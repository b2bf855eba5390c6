// to[line][i] = from[line, i]: copies one or two matrices (or batches) of any strides into scratch that TMA can read.
//
// Output:  lines at a fixed pitch, 16-byte aligned; a line's last 16-byte chunk is written whole, its tail is unused.
// Loads:   an unaligned chunk is two aligned words and a byte shift; words that reach past the operand, and elements
//          that are not contiguous, are read element by element.
// Lines:   the source has any stride along a line; vector loads if it is contiguous. A thread has UNROLL chunks of one
//          line, interleaved over 2^lane_bits lanes; all loads precede the stores (a word shared by two lanes hits L1).
// Transposed: the source is contiguous across lines. A CTA stages LINES lines of ROW bytes: warps read runs
//          of 128 bytes, threads transpose squares 4 bytes wide in registers; the swizzle avoids bank conflicts.
// Grid:    CTAs from `boundary` on copy the second matrix.
// Shared:  none, or 16 KB (Transposed).   Bound: DRAM bandwidth.
#include "core/flip.cuh"
#include "core/index.cuh"
#include "ptx/overlap.cuh"
#include "core/shift.cuh"

constexpr int THREADS = 256, UNROLL = 4, CHUNK = 16;

// An operand in global memory.
struct Source {
  const u8* from;  // the first element
  i64 low, high;   // byte range of the operand, relative to `from`

  // Whether the one or (unaligned) two aligned words that hold the 16 bytes at `at` are inside the operand.
  __device__ __forceinline__ bool holds(const u8* at) const {
    const u32 shift = u32(u64(at)) % CHUNK;
    return at - shift >= from + low && at - shift + (shift ? 2 : 1) * CHUNK <= from + high;
  }
  static __device__ __forceinline__ void load(uint4& first, uint4& second, const u8* at) {
    const u32 shift = u32(u64(at)) % CHUNK;
    const uint4* const words = reinterpret_cast<const uint4*>(at - shift);
    first = words[0];
    second = make_uint4(0, 0, 0, 0);
    if (shift) second = words[1];
  }
  static __device__ __forceinline__ uint4 joined(uint4 first, uint4 second, const u8* at) {
    const u32 shift = u32(u64(at)) % CHUNK;
    return shift ? shifted(first, second, shift) : first;
  }
};

template <int WIDTH, class I, int R> struct Lines {
  Source source;
  u8* to;
  i64 pitch, step;  // bytes between lines of `to`, and between elements of a line of `from`
  u32 length, chunks, lane_bits, unused;
  typename DivisorOf<I>::type parts;  // per line, each of UNROLL << lane_bits chunks
  Dims<I, R, 1> lines;
  I count;  // total parts

  // Gathers one chunk of elements with stride `step` (bytes), of which `count` are valid.
  static __device__ __forceinline__ uint4 gathered(const u8* from, i64 step, i64 count) {
    using T = typename Word<WIDTH>::type;
    T x[CHUNK / WIDTH];
#pragma unroll
    for (int i = 0; i < CHUNK / WIDTH; ++i) x[i] = i < count ? *reinterpret_cast<const T*>(from + i * step) : T(0);
    u32 w[4] = {};
#pragma unroll
    for (int i = 0; i < CHUNK / WIDTH; ++i) w[i * WIDTH / 4] |= u32(x[i]) << i * WIDTH % 4 * 8;
    return make_uint4(w[0], w[1], w[2], w[3]);
  }

  __device__ __forceinline__ void copy(u32 cta) const {
    const u32 lanes = 1u << lane_bits;
    const I part = I((u64(cta) * THREADS + threadIdx.x) >> lane_bits);
    if (part >= count) return;
    const I line = parts.divide(part);
    const u32 first = u32(part - line * parts.divisor) * (UNROLL * lanes) + (threadIdx.x & (lanes - 1));
    i64 offset[1] = {0};
    lines.locate(line, offset);
    const u8* const from = source.from + offset[0];
    uint4* const into = reinterpret_cast<uint4*>(to + i64(line) * pitch);

    // 1. Vector loads of the chunks whose words are inside the operand
    uint4 low[UNROLL], high[UNROLL];
    u32 loaded = 0;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const u32 chunk = first + u * lanes;
      const u8* const at = from + i64(chunk) * CHUNK;
      if (step == WIDTH && chunk < chunks && source.holds(at)) {
        source.load(low[u], high[u], at);
        loaded |= 1u << u;
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (loaded >> u & 1) into[first + u * lanes] = source.joined(low[u], high[u], from);
    // 2. Remaining chunks element by element
    if (loaded == (1u << UNROLL) - 1) return;
#pragma unroll 1
    for (int u = 0; u < UNROLL; ++u) {
      const u32 chunk = first + u * lanes;
      if ((loaded >> u & 1) || chunk >= chunks) continue;
      const i64 at = i64(chunk) * (CHUNK / WIDTH);
      into[chunk] = gathered(from + at * step, step, length - at);
    }
  }
};

template <int WIDTH, int R> struct Transposed {
  using T = typename Word<WIDTH>::type;
  static constexpr u32 ELEMENTS = CHUNK / WIDTH, SQUARE = 4 / WIDTH;  // per chunk; per side of a square
  static constexpr u32 LINES = WIDTH == 4 ? 64 : 128, ROW = 16384 / LINES, CHUNKS = ROW / CHUNK;
  static constexpr u32 STRETCHES = LINES * WIDTH / 128, STEP = 8 / STRETCHES;  // 128-byte runs across; chunks per step
  static constexpr u32 UNITS = UNROLL / SQUARE;  // runs per warp, each at another chunk along the line

  Source source;
  u8* to;
  i64 pitch, along, across;  // bytes between lines of `to`; in `from` between elements of a line, and between lines
  u32 length, lines;
  Divisor32 tiles, tiles_along;  // per matrix; per line
  Dims<u32, R, 1> batch;

  __device__ __forceinline__ void copy(u32 cta) const {
    __shared__ uint4 staged[LINES][CHUNKS];
    const u32 matrix = tiles.divide(cta), tile = cta - matrix * tiles.divisor, above = tiles_along.divide(tile);
    const u32 line0 = above * LINES, k0 = (tile - above * tiles_along.divisor) * (CHUNKS * ELEMENTS);
    const u32 block = threadIdx.x % 8, word = threadIdx.x / 8 % 4, warp = threadIdx.x / 32;
    i64 offset[1] = {0};
    batch.locate(matrix, offset);
    // The thread's part of a unit: SQUARE elements of ELEMENTS lines from `line`, one word of chunk `first` + unit STEP
    const u32 line = (warp % STRETCHES * 8 + block) * ELEMENTS, first = warp / STRETCHES,
              k = k0 + first * ELEMENTS + word * SQUARE;
    const u8* const from = source.from + offset[0] + i64(line0 + line) * across + i64(k) * along;
    const auto address = [&](u32 unit, u32 i) { return from + i64(unit * (STEP * ELEMENTS) + i) * along; };

    // 1. Vector loads of whole units
    uint4 low[UNITS][SQUARE], high[UNITS][SQUARE];
    u32 loaded = 0;
#pragma unroll
    for (u32 unit = 0; unit < UNITS; ++unit) {
      bool whole = across == WIDTH && line0 + line + ELEMENTS <= lines &&
          k + unit * (STEP * ELEMENTS) + SQUARE <= length;
#pragma unroll
      for (u32 i = 0; i < SQUARE; ++i)
        whole = whole && (u32(u64(address(unit, i))) % CHUNK == 0 || source.holds(address(unit, i)));
      if (whole) {
#pragma unroll
        for (u32 i = 0; i < SQUARE; ++i) source.load(low[unit][i], high[unit][i], address(unit, i));
        loaded |= 1u << unit;
      }
    }
    // 2. Transpose squares in registers, store words to shared memory
#pragma unroll
    for (u32 unit = 0; unit < UNITS; ++unit)
      if (loaded >> unit & 1) {
        u32 words[SQUARE][4];
#pragma unroll
        for (u32 i = 0; i < SQUARE; ++i) {
          const uint4 x = source.joined(low[unit][i], high[unit][i], address(unit, i));
          memcpy(words[i], &x, CHUNK);
        }
#pragma unroll
        for (u32 w = 0; w < 4; ++w) {
          Vec<T, SQUARE> square[SQUARE];
#pragma unroll
          for (u32 i = 0; i < SQUARE; ++i) memcpy(&square[i], &words[i][w], 4);
          flip(square);
#pragma unroll
          for (u32 i = 0; i < SQUARE; ++i)
            memcpy(reinterpret_cast<u32*>(&staged[line + w * SQUARE + i][(first + unit * STEP) ^ block]) + word,
                &square[i], 4);
        }
      }
    // 3. Units at the edge element by element
    if (loaded != (1u << UNITS) - 1) {
#pragma unroll 1
      for (u32 unit = 0; unit < UNITS; ++unit)
        if (!(loaded >> unit & 1))
#pragma unroll 1
          for (u32 at = 0; at < ELEMENTS * SQUARE; ++at) {
            const u32 row = line + at % ELEMENTS, i = at / ELEMENTS;
            if (line0 + row < lines && k + unit * (STEP * ELEMENTS) + i < length)
              reinterpret_cast<T*>(&staged[row][(first + unit * STEP) ^ block])[word * SQUARE + i] =
                  *reinterpret_cast<const T*>(address(unit, i) + at % ELEMENTS * across);
          }
    }
    // 4. Store whole rows of chunks
    __syncthreads();
    const u32 chunk = threadIdx.x % CHUNKS, row = threadIdx.x / CHUNKS;
    if (k0 + chunk * ELEMENTS >= length) return;
    u8* const into = to + (i64(matrix) * lines + line0 + row) * pitch + i64(k0 + chunk * ELEMENTS) * WIDTH;
    uint4 found[LINES * CHUNKS / THREADS];
#pragma unroll
    for (u32 down = 0, i = 0; down < LINES; down += THREADS / CHUNKS, ++i)
      found[i] = staged[row + down][chunk ^ (row + down) / ELEMENTS % 8];
#pragma unroll
    for (u32 down = 0, i = 0; down < LINES; down += THREADS / CHUNKS, ++i)
      if (line0 + row + down < lines) *reinterpret_cast<uint4*>(into + down * pitch) = found[i];
  }
};

template <class First, class Second>
__global__ void __launch_bounds__(THREADS) pad(const First first, const Second second, u32 boundary) {
  overlap::wait();
  overlap::release();
  if (blockIdx.x < boundary) first.copy(blockIdx.x);
  else second.copy(blockIdx.x - boundary);
}
