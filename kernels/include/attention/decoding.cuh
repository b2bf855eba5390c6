// Shared by the decode kernels: the rows of a CTA, the keys that these see, and the epilogue.
#pragma once
#include "attention/cache.cuh"
#include "attention/softmax.cuh"

namespace attention {

// L2 prefetch of the line at an address, issued while the previous kernel still runs (PDL). It reads no value, so later
// writes of that kernel are seen.
template <class T> __device__ __forceinline__ void prefetch_l2(const T* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// L2 prefetch of ROWS rows of up to COLUMNS columns by LANES threads; `rows` and `columns` exist, line(i) is the
// address of row i.
template <int COLUMNS, int ROWS, int LANES, class Line>
__device__ __forceinline__ void prefetch_l2(int lane, int rows, int columns, const Line& line) {
  constexpr int EACH = 128 / sizeof(*line(0)), LINES = (COLUMNS + EACH - 1) / EACH;
#pragma unroll
  for (int i = lane; i < ROWS * LINES; i += LANES)
    if (i / LINES < rows && i % LINES * EACH < columns) prefetch_l2(line(i / LINES) + i % LINES * EACH);
}

// Address of row `row` of those that share a KV head, for sequences that are not packed (no cu_seqlens).
template <class T, class Out>
__device__ __forceinline__ const T* query_of(const Problem<T, Out, float>& p, u32 sequence, u32 kv_head, int row) {
  const int token = row / int(p.group);
  return p.q + sequence * p.q_strides.batch + (kv_head * p.group + row - token * int(p.group)) * p.q_strides.head +
      token * p.q_strides.row;
}

// The rows that share one KV head of one sequence: (token, query head of the group), token by token; a CTA's
// rows are `first` to `last`.
template <class T, class Out> struct SharedRows {
  const Problem<T, Out, float>& p;
  u32 sequence, kv_head;
  int length;
  Extent tokens;
  int count, first, last;

  __device__ __forceinline__ SharedRows(
      const Problem<T, Out, float>& p, const Cache& cache, u32 sequence, u32 kv_head, int first, int most)
      : p(p), sequence(sequence), kv_head(kv_head), length(cache.length(sequence)),
        tokens(p.starts_q, sequence, p.rows), count(tokens.count * int(p.group)), first(first),
        last(min(first + most, count) - 1) {}

  __device__ __forceinline__ int token(int row) const { return row / int(p.group); }
  __device__ __forceinline__ Standing standing(int row) const {
    return {
        length, p.offset_given ? p.offset : i64(length) - tokens.count, sequence, kv_head * p.group + row % p.group};
  }
  __device__ __forceinline__ Keys seen_by(int row) const { return keys_of(p, standing(row), token(row)); }

  // Loads Q into Panels, with the sign flipped where the scale is negative. Each thread loads its chunks of a row, one
  // per panel, before it stores any. NARROW: columns permuted to the order in which ldmatrix delivers 8-bit keys.
  template <class Panels, int ROWS, int THREADS, bool NARROW>
  __device__ __forceinline__ void load_queries(u32 to, u32 flipped) const {
    constexpr int LANES = Panels::WIDTH / 8, PANELS = Panels::CHUNKS / LANES;
    const int chunk = threadIdx.x % LANES;
#pragma unroll 1
    for (int line = threadIdx.x / LANES; line < ROWS; line += THREADS / LANES) {
      const int row = first + line;
      const T* from = query_of(p, sequence, kv_head, row) + tokens.first * p.q_strides.row;
      uint4 words[PANELS];
#pragma unroll
      for (int panel = 0; panel < PANELS; ++panel) {
        const int part = panel * LANES + chunk;
        words[panel] = {0, 0, 0, 0};
        if (row < count && part * 8 < int(p.d)) words[panel] = *reinterpret_cast<const uint4*>(from + part * 8);
      }
#pragma unroll
      for (int panel = 0; panel < PANELS; ++panel)
        store_queries<Panels, NARROW>(to, line, panel * LANES + chunk, words[panel], flipped);
    }
  }

  // A split without keys stores lse = -inf.
  template <int THREADS> __device__ __forceinline__ void store_empty(const Splits& splits, u32 split) const {
    for (int row = first + int(threadIdx.x); row <= last; row += THREADS)
      splits.lse[place(splits, row, split)] = rows::minus_infinity<float>();
  }

  // The factor of a row's accumulators; `whole` is the row's sum of weights.
  static __device__ __forceinline__ float division(float of_values, float whole) {
    return whole == 0.0f ? 0.0f : of_values / whole;
  }

  // `whole`, a row's sum of weights, becomes that for the reference maximum `most` (base 2), with the sink's term in
  // split 0; returns the factor of the accumulators. `highest`: the row's maximum.
  __device__ __forceinline__ float with_sink(u32 split, int row, float highest, float& whole, float& most) const {
    const float sink =
        split == 0 ? sink_of<T, float>(p, standing(row)) * math::LOG2E : rows::minus_infinity<float>();
    most = fmaxf(highest, sink);
    const float base = OnlineSoftmax<1>::shift(most), weight = math::ex2_ftz(highest - base);
    whole = math::ex2_ftz(sink - base) + whole * weight;
    return weight;
  }

  // A row's lse, or (PARTS, with several splits) its split's; `most` is the reference maximum of `whole`, in base 2.
  // The fma is explicit: the compiler contracts it in some instantiations only, and bits would depend on the row count.
  template <bool PARTS>
  __device__ __forceinline__ void store_lse(const Splits& splits, u32 split, int row, float whole, float most) const {
    const float lse = whole == 0.0f ? rows::minus_infinity<float>()
                                    : fmaf(OnlineSoftmax<1>::shift(most), math::LN2, ::logf(whole));
    if (PARTS && splits.out) splits.lse[place(splits, row, split)] = lse;
    else if (p.lse)
      p.lse[sequence * p.lse_strides.batch + head(row) * p.lse_strides.head +
          (tokens.first + token(row)) * p.lse_strides.row] = lse;
  }

  // Offset of a row's first column in the result, or (PARTS, with several splits) in the partial results.
  template <bool PARTS> __device__ __forceinline__ i64 destination(const Splits& splits, u32 split, int row) const {
    if (PARTS && splits.out) return place(splits, row, split) * p.d_v;
    return sequence * p.out_strides.batch + head(row) * p.out_strides.head +
        (tokens.first + token(row)) * p.out_strides.row;
  }

  // Stores N columns of a row, normalized; the thread with column 0 also stores lse.
  template <bool PARTS, int N>
  __device__ __forceinline__ void store(const Splits& splits, u32 split, float of_values, int row, int column,
      Vec<float, N>& x, float whole, float most) const {
    const float by = division(of_values, whole);
#pragma unroll
    for (int e = 0; e < N; ++e) x.at[e] *= by;
    if (column == 0) store_lse<PARTS>(splits, split, row, whole, most);
    const i64 to = destination<PARTS>(splits, split, row) + column;
    if (!PARTS || !splits.out) *reinterpret_cast<Vec<Out, N>*>(p.out + to) = round_to<Out>(x.at);
    else if (whole != 0.0f) *reinterpret_cast<Vec<float, N>*>(splits.out + to) = x;
  }

 private:
  __device__ __forceinline__ u32 head(int row) const { return kv_head * p.group + row % p.group; }

  template <class Panels, bool NARROW>
  static __device__ __forceinline__ void store_queries(u32 to, int line, int part, uint4 words, u32 flipped) {
    words = {words.x ^ flipped, words.y ^ flipped, words.z ^ flipped, words.w ^ flipped};
    if constexpr (NARROW) {
      const u32 even = to + part % 2 * 8 + Panels::offset(line, part / 2 * 2),
                odd = to + part % 2 * 8 + Panels::offset(line, part / 2 * 2 + 1);
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(even), "r"(__byte_perm(words.x, words.y, 0x5410)),
          "r"(__byte_perm(words.z, words.w, 0x5410))
          : "memory");
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(odd), "r"(__byte_perm(words.x, words.y, 0x7632)),
          "r"(__byte_perm(words.z, words.w, 0x7632))
          : "memory");
    } else {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + Panels::offset(line, part)),
                   "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w) : "memory");
    }
  }

  __device__ __forceinline__ i64 place(const Splits& splits, int row, u32 split) const {
    const i64 line = (p.starts_q ? 0 : i64(sequence)) * p.heads + head(row);
    return (line * p.rows + tokens.first + token(row)) * splits.count + split;
  }
};

}  // namespace attention
