// out = epilogue(a b) for a few tokens a (i8, u8, or f16, bf16: W8A16) and i8 weights b; one or several weights (QKV).
//
// Tiling:   a CTA has Way::COLUMNS columns of one weight; its WARPS split K round-robin. Split K (grid y): reduce.cu.
// Loads:    weights by 16-byte global loads straight into A fragments (quantized/words.cuh), UNROLL steps in flight;
//           tokens through L1. No shared memory on the way; for i8 1/8 instruction per weight at one token.
// GROUPED:  groups of `group` k's of a column share a scale; a group's sums are scaled in f32.
// ZEROED:   sums along K for the zero points, by mma with ones.
// Dynamic:  if S (tokens in memory) differs from A = i8, each CTA first quantizes the tokens, one scale per token.
// Order:    partial sums are added in warp order.
// Shared:   WARPS x TOKENS x COLUMNS partial sums; then quantized tokens (m x `pitch`) and their scales.
// Bound:    DRAM: N = K = 8192 is 67 MB, 14.6 us at 4.6 TB/s.
#include "ptx/overlap.cuh"
#include "quantized/dynamic.cuh"
#include "quantized/product.cuh"
#include "quantized/tokens.cuh"

namespace quantized {

// One weight with its epilogue, and the first CTA (grid x) of its columns.
template <class Finish> struct Segment {
  const i8* b;
  const float* scales;  // group scales [K / group, N], strides in elements
  Finish finish;
  i64 step, scales_row, scales_col;
  u32 n, first;
};
template <class Finish, int COUNT> struct Segments { Segment<Finish> at[COUNT]; };

}  // namespace quantized

using namespace quantized;

extern __shared__ uint4 memory[];

template <class A, class S, class Way, int TOKENS, int ACCESS, int UNROLL, int WARPS, int CTAS, bool EARLY,
    bool GROUPED, bool ZEROED, class Finish, int COUNT>
__global__ void __launch_bounds__(WARPS * 32, CTAS)
    int8_gemv(const S* a, i64 a_row, const __grid_constant__ Segments<Finish, COUNT> segments, u32 m, u32 k,
        u32 k_split, i64 split_stride, u32 group, u32 pitch) {
  using Acc = typename Product<A>::Acc;
  constexpr bool DYNAMIC = !Same<A, S>::value;
  constexpr int OCTETS = TOKENS / 8, ROUND = UNROLL * Way::STEP, READ = DYNAMIC ? Way::RUN : ACCESS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The CTA's segment is used from constant memory: a copy would occupy registers throughout
  int place = 0;
#pragma unroll
  for (int i = 1; i < COUNT; ++i)
    if (blockIdx.x >= segments.at[i].first) place = i;
  const Segment<Finish>& own = segments.at[COUNT > 1 ? place : 0];
  const u32 first = (blockIdx.x - own.first) * Way::COLUMNS, begin = blockIdx.y * k_split,
            end = min(k, begin + k_split);
  Acc* sums = reinterpret_cast<Acc*>(memory);
  u32 from = begin + warp * ROUND;
  // 1. Prefetch the first weights into L2 before the PDL wait: a prefetch reads no value, so it is safe there
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) Way::prefetch(own.b, own.step, first, own.n, from + u * Way::STEP, end);
  if (threadIdx.x < Way::COLUMNS) own.finish.prefetch(min(first + threadIdx.x, own.n - 1));
  overlap::wait();
  overlap::release();  // the next kernel may prefetch likewise
  // 2. Tokens: quantize if dynamic
  if constexpr (DYNAMIC) {
    i8* codes = reinterpret_cast<i8*>(sums + WARPS * TOKENS * Way::COLUMNS);
    float* scales = reinterpret_cast<float*>(codes + m * pitch);
    quantize_tokens<S, ACCESS, WARPS * 32>(codes, scales, a, a_row, m, k, pitch);
  }
  const A* token[OCTETS];  // out-of-range tokens are clamped to the last one
#pragma unroll
  for (int j = 0; j < OCTETS; ++j) {
    const u32 row = min(u32(8 * j + lane / 4), m - 1);
    if constexpr (DYNAMIC) token[j] = reinterpret_cast<const i8*>(sums + WARPS * TOKENS * Way::COLUMNS) + row * pitch;
    else token[j] = a + row * a_row;
  }

  Acc acc[Way::BLOCKS][OCTETS][4] = {};
  float total[GROUPED ? Way::BLOCKS : 1][OCTETS][4] = {};
  int of_columns[ZEROED ? Way::BLOCKS : 1][4] = {}, of_tokens[OCTETS][4] = {};
  typename Way::Raw raw[UNROLL];
  const auto load = [&](int u, u32 at, bool whole) {
    Way::load(raw[u], own.b, own.step, first, own.n, at + u * Way::STEP, end, whole);
  };
  Tokens<A, Way> early[OCTETS];
  const auto prefetch_tokens = [&](int j, u32 at, bool whole) {
    early[j].template load<READ>(token[j], at, DYNAMIC ? pitch : end, whole);
  };
  // mmas of one step. held: its tokens are already loaded; ahead: load the tokens of the step at `next` meanwhile
  const auto multiply = [&](int u, u32 at, bool whole, bool held = false, bool ahead = false, u32 next = 0) {
    typename Way::Words words;
    Way::words(words, raw[u]);
#pragma unroll
    for (int j = 0; j < OCTETS; ++j) {
      if (!held) prefetch_tokens(j, at, whole);
      const Tokens<A, Way> tokens = early[j];
      if (ahead) prefetch_tokens(j, next, true);
#pragma unroll
      for (int i = 0; i < Way::BLOCKS; ++i) Product<A>::template add<Way>(acc[i][j], words[i], tokens);
      if constexpr (ZEROED) Product<A>::template add_tokens<Way>(of_tokens[j], tokens);
    }
    if constexpr (ZEROED)
#pragma unroll
      for (int i = 0; i < Way::BLOCKS; ++i) Product<A>::template add_columns<Way>(of_columns[i], words[i]);
    if constexpr (GROUPED) {
      if (!whole && at >= end) return;
      const float* scales = own.scales + at / group * own.scales_row;
#pragma unroll
      for (int i = 0; i < Way::BLOCKS * 2; ++i) {
        const float scale = scales[min(first + Way::column(i / 2, i % 2), own.n - 1) * own.scales_col];
#pragma unroll
        for (int j = 0; j < OCTETS * 2; ++j) {
          Acc& part = acc[i / 2][j / 2][i % 2 * 2 + j % 2];
          total[i / 2][j / 2][i % 2 * 2 + j % 2] += scale * part;
          part = 0;
        }
      }
    }
  };

  // 3. Main loop: full rounds without predicates, which would serialise the loads, then the predicated tail. AHEAD
  // (registers permitting): reload each step's weights for the next round right after its mmas. EARLY: tokens one step
  // ahead
  constexpr bool AHEAD = TOKENS < 64 && UNROLL < 8;
  bool more = Way::inside(first, own.n) && from + ROUND <= end;
  if (AHEAD && more) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) load(u, from, true);
  }
  if (EARLY && more) {
#pragma unroll
    for (int j = 0; j < OCTETS; ++j) prefetch_tokens(j, from, true);
  }
#pragma unroll 1
  while (more) {
    const u32 next = from + WARPS * ROUND;
    more = next + ROUND <= end;
#pragma unroll
    for (int u = 0; !AHEAD && u < UNROLL; ++u) load(u, from, true);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const bool last = u + 1 == UNROLL;
      multiply(
          u, from + u * Way::STEP, true, EARLY, EARLY && (!last || more), last ? next : from + (u + 1) * Way::STEP);
      if (AHEAD && more) load(u, next, true);
    }
    from = next;
  }
#pragma unroll 1
  for (; from < end; from += WARPS * ROUND) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) load(u, from, false);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) multiply(u, from + u * Way::STEP, false);
  }

  // 4. Partial sums to shared memory, after the zero-point corrections
#pragma unroll
  for (int i = 0; i < Way::BLOCKS * 2; ++i) {
    const int column = Way::column(i / 2, i % 2);
#pragma unroll
    for (int j = 0; j < OCTETS * 2; ++j) {
      const int row = j / 2 * 8 + lane % 4 * 2 + j % 2;
      Acc sum = acc[i / 2][j / 2][i % 2 * 2 + j % 2];
      if constexpr (GROUPED) sum = total[i / 2][j / 2][i % 2 * 2 + j % 2];
      if constexpr (ZEROED) {
        const Finish& f = own.finish;
        if (f.zero_a) sum -= int(f.zero_a[min(u32(row), m - 1) * f.zero_a_step]) * of_columns[i / 2][i % 2 * 2];
        if (f.zero_b) sum -= int(f.zero_b[min(first + column, own.n - 1) * f.zero_b_step]) * of_tokens[j / 2][j % 2];
      }
      sums[(warp * TOKENS + row) * Way::COLUMNS + column] = sum;
    }
  }

  // 5. Add in warp order, epilogue
  __syncthreads();
  Finish finish = own.finish;
  finish.out += blockIdx.y * split_stride;
  if constexpr (DYNAMIC) {
    finish.scale_a = reinterpret_cast<const float*>(
        reinterpret_cast<const i8*>(sums + WARPS * TOKENS * Way::COLUMNS) + m * pitch);
    finish.scale_a_step = 1;
  }
  for (u32 i = threadIdx.x; i < m * Way::COLUMNS; i += WARPS * 32) {
    Acc sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += sums[w * TOKENS * Way::COLUMNS + i];
    const u32 row = i / Way::COLUMNS, column = first + i % Way::COLUMNS;
    if (column < own.n) finish.store(sum, row, column);
  }
}
