// Copies of one or two matrices (or batches of them) into scratch, in lines that TMA can take: to[line][i] = from[line, i] for
// lines of any strides, a fixed pitch apart in `to` and aligned to 16 bytes there.
//
// A thread owns UNROLL chunks of 16 bytes of one line of `to`, its neighbours (2^lane_bits of them) the chunks between. Elements
// side by side: the two aligned words that hold a chunk are loaded, all before the first is stored (a neighbour's second word
// is one's first: it comes from L1), and shifted by the line's phase. A word that reaches beyond the operand, and lines whose
// elements lie apart: element by element. A chunk that begins in a line is written whole; nobody reads what is behind the end.
// CTAs from `boundary` on copy the second matrix. No shared memory. Bound: memory bandwidth.
#include "index.cuh"
#include "overlap.cuh"
#include "shift.cuh"

constexpr int THREADS = 256, UNROLL = 4, CHUNK = 16;

template <class I, int R> struct Matrix {
  u8* to;
  const u8* from;   // its first element
  i64 low, high;    // bytes that the operand spans, from there
  i64 pitch, step;  // bytes from line to line of `to`, and from element to element of `from`
  u32 length, chunks, lane_bits, unused;
  typename DivisorOf<I>::type parts;  // of UNROLL << lane_bits chunks in a line
  Dims<I, R, 1> lines;
  I count;  // parts of all lines
};

// Elements of WIDTH bytes, `step` bytes apart, of which `count` exist.
template <int WIDTH> __device__ __forceinline__ uint4 gathered(const u8* from, i64 step, i64 count) {
  using T = typename Word<WIDTH>::type;
  T x[CHUNK / WIDTH];
#pragma unroll
  for (int i = 0; i < CHUNK / WIDTH; ++i) x[i] = i < count ? *reinterpret_cast<const T*>(from + i * step) : T(0);
  u32 w[4] = {};
#pragma unroll
  for (int i = 0; i < CHUNK / WIDTH; ++i) w[i * WIDTH / 4] |= u32(x[i]) << i * WIDTH % 4 * 8;
  return make_uint4(w[0], w[1], w[2], w[3]);
}

template <int WIDTH, class I, int R> __device__ __forceinline__ void copy(const Matrix<I, R>& matrix, u32 cta) {
  const u32 lanes = 1u << matrix.lane_bits;
  const I part = I((u64(cta) * THREADS + threadIdx.x) >> matrix.lane_bits);
  if (part >= matrix.count) return;
  const I line = matrix.parts.divide(part);
  const u32 first = u32(part - line * matrix.parts.divisor) * (UNROLL * lanes) + (threadIdx.x & (lanes - 1));
  i64 offset[1] = {0};
  matrix.lines.locate(line, offset);
  const u8* const from = matrix.from + offset[0];
  uint4* const to = reinterpret_cast<uint4*>(matrix.to + i64(line) * matrix.pitch);
  const u32 shift = u32(u64(from)) % CHUNK, next = shift ? CHUNK : 0;
  const bool adjacent = matrix.step == WIDTH;

  uint4 low[UNROLL], high[UNROLL];
  u32 loaded = 0;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const u32 chunk = first + u * lanes;
    const u8* const word = from - shift + i64(chunk) * CHUNK;
    const bool within = word >= matrix.from + matrix.low && word + next + CHUNK <= matrix.from + matrix.high;
    if (adjacent && chunk < matrix.chunks && within) {
      low[u] = *reinterpret_cast<const uint4*>(word);
      high[u] = *reinterpret_cast<const uint4*>(word + next);
      loaded |= 1u << u;
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (loaded >> u & 1) to[first + u * lanes] = shifted(low[u], high[u], shift);
  if (loaded == (1u << UNROLL) - 1) return;
#pragma unroll 1
  for (int u = 0; u < UNROLL; ++u) {
    const u32 chunk = first + u * lanes;
    if ((loaded >> u & 1) || chunk >= matrix.chunks) continue;
    const i64 at = i64(chunk) * (CHUNK / WIDTH);
    to[chunk] = gathered<WIDTH>(from + at * matrix.step, matrix.step, matrix.length - at);
  }
}

template <int WIDTH, class I, int R>
__global__ void __launch_bounds__(THREADS) pad(const Matrix<I, R> first, const Matrix<I, R> second, u32 boundary) {
  overlap::wait();
  overlap::release();
  if (blockIdx.x < boundary) copy<WIDTH>(first, blockIdx.x);
  else copy<WIDTH>(second, blockIdx.x - boundary);
}
