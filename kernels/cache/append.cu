// pages[table[request][pos / page]][pos % page] = k or v of each new token, with RoPE or quantization on request.
//
// Grid:      LANES threads per row: HEADS heads of one token, V-wide vectors, of K or of V. The page table, lengths and
//            offsets are read on the device, so that a captured CUDA graph follows a growing batch.
// Loads:     a row is loaded before its destination is known, to overlap both latencies.
// Rotation:  append_rotated rotates K (RoPE); the row's HEADS heads share cos and sin; the result is rounded.
// Quantize:  the row stays in registers between its absmax and its codes.
// Atomicity: a request is written as a whole or not at all. Every row checks all pages (and positions) of its request,
//            or, CHECKED, reads the status that check_requests or check_rotated (one warp per request) has written.
// Shared:    none.   Bound: latency when small, DRAM when large.
#include "cache/request.cuh"
#include "rows/quantize.cuh"
#include "cache/rotation.cuh"
#include "rows/words.cuh"

// Strides in bytes of K or V: (request, token, head, column), (page, slot, head, column), and of scales (page, slot,
// head). Columns below 2 * half are rotated: a pair of vectors comes from the two halves.
struct Lines {
  i64 token[4], page[4], scale[3];
  u32 columns, half;
};

// Pointers of K or V.
struct Part {
  u8 *pages, *scales;
  const u8* source;
};

// Whether a CTA handles K, its index and the number of such CTAs. With RoPE, K and V CTAs alternate, so that an SM
// always has arithmetic beside loads and stores; otherwise all K CTAs come first.
struct Side {
  bool keys;
  u32 cta, ctas;
  static __device__ __forceinline__ Side interleaved() { return {blockIdx.x % 2 == 0, blockIdx.x / 2, gridDim.x / 2}; }
  static __device__ __forceinline__ Side separate() { return {blockIdx.y == 0, blockIdx.x, gridDim.x}; }
};

template <class T, class P, cache::Scaling SCALING, int V, int ITEMS, int LANES, int HEADS, int THREADS, bool CHECKED,
    class Rotation, bool RAGGED, class I>
__device__ __forceinline__ void append(const Rotation& rotation, const cache::Requests<RAGGED, I>& requests,
    const Part& part, const Lines& lines, const Side& side, i32* status, const typename DivisorOf<I>::type& heads,
    I count) {
  constexpr int GROUPS = THREADS / LANES;
  const bool first = side.keys;
  const cache::Batch<I>& batch = requests.batch;
  const i32* lengths = requests.lengths;
  const bool broken = !CHECKED && requests.broken();
  const u32 lane = threadIdx.x % LANES;
  const u32 columns = lines.columns;

  // 1. token and request of the row
  const I row = I(side.cta) * GROUPS + threadIdx.x / LANES;
  bool live = row < count && !broken;
  const I token = heads.divide(live ? row : 0);
  const u32 head = u32((live ? row : 0) - token * heads.divisor), request = requests.of(token);
  const cache::Span span = requests.span(request);
  live = live && i64(token) >= span.begin && i64(token) < span.begin + span.count;
  const i64 within = i64(token) - span.begin;

  // 2. load the row
  rows::Held<T, V> pack[HEADS][ITEMS];
  const u8* from = part.source +
      (RAGGED ? i64(token) * lines.token[1] : request * lines.token[0] + within * lines.token[1]) +
      head * lines.token[2];
#pragma unroll
  for (int h = 0; h < HEADS; ++h, from += heads.divisor * lines.token[2])
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 column = Rotation::template column<V, LANES>(i, lane, lines.half);
      if (live && column < columns) pack[h][i].load(reinterpret_cast<const T*>(from + column * lines.token[3]));
    }

  // 3. destination page and slot; status of the request
  const i64 length = live ? lengths[request] : 0;
  i32 fault;
  if constexpr (CHECKED) fault = live ? status[request] : 0;
  else fault = requests.template fault<LANES>(rotation, request, live ? span.count : 0, length, lane);
  const i64 position = length + within;
  const bool writes = live && fault == 0;
  const u32 place = writes ? batch.page.divide(u32(position)) : 0;
  const u32 slot = u32(position) - place * batch.page.divisor;
  const i64 id = writes ? requests.page_of(request, place) : 0;
  if constexpr (!CHECKED) {
    if (first && live && i64(token) == span.begin && head == 0 && lane == 0) status[request] = fault;
  }

  // 4. RoPE (K only)
  if constexpr (Rotation::ROTATES) {
    if (first && live) rotation.template rotate<V, LANES>(
        pack, rotation.at(requests, request, within, length), lines.half, lane);
  }

  // 5. store each head
  u8* to = part.pages + id * lines.page[0] + slot * lines.page[1] + head * lines.page[2];
#pragma unroll
  for (int h = 0; h < HEADS; ++h, to += heads.divisor * lines.page[2]) {
    // 5a. quantization scale of the head
    const u32 own = head + h * u32(heads.divisor);
    float inverse = 1.0f;
    if constexpr (SCALING == cache::GIVEN) {
      inverse = 1.0f / *reinterpret_cast<const float*>(part.scales + own * lines.scale[2]);
    } else if constexpr (SCALING == cache::MADE) {
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (!live || Rotation::template column<V, LANES>(i, lane, lines.half) >= columns) continue;
        float x[V];
        pack[h][i].widen(x);
#pragma unroll
        for (int k = 0; k < V; ++k) largest = cache::larger(largest, x[k]);
      }
      const float scale = cache::scale_of<P>(cache::largest_of<LANES>(largest));
      inverse = 1.0f / scale;
      if (writes && lane == 0)
        *reinterpret_cast<float*>(
            part.scales + id * lines.scale[0] + slot * lines.scale[1] + own * lines.scale[2]) = scale;
    }

    // 5b. store elements or codes
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 column = Rotation::template column<V, LANES>(i, lane, lines.half);
      if (!writes || column >= columns) continue;
      P* at = reinterpret_cast<P*>(to + column * lines.page[3]);
      if constexpr (SCALING == cache::STORED) pack[h][i].store(at);
      else cache::put_codes<P, V>(at, pack[h][i], inverse);
    }
  }

  // 6. status of requests without rows
  // These are requests without tokens, or all of them if the offsets are invalid.
  if constexpr (!CHECKED) {
    const u32 step = side.ctas * THREADS;
    for (u32 b = side.cta * THREADS + threadIdx.x; first && b < batch.requests; b += step)
      if (broken || requests.span(b).count == 0) status[b] = broken ? cache::OFFSETS : 0;
  }
}

template <class T, class P, cache::Scaling SCALING, int V, int ITEMS, int LANES, int HEADS, int THREADS, bool RAGGED,
    bool CHECKED, class I>
__global__ void __launch_bounds__(THREADS)
    append_pages(u8* k_pages, u8* v_pages, u8* k_scales, u8* v_scales, const u8* k, const u8* v, const i32* table,
        const i32* lengths, const i32* offsets, i32* status, cache::Batch<I> batch, typename DivisorOf<I>::type heads,
        I count, const __grid_constant__ Lines keys, const __grid_constant__ Lines values) {
  const cache::Requests<RAGGED, I> requests{batch, table, lengths, offsets};
  const Side side = Side::separate();
  const Part part = side.keys ? Part{k_pages, k_scales, k} : Part{v_pages, v_scales, v};
  append<T, P, SCALING, V, ITEMS, LANES, HEADS, THREADS, CHECKED>(
      cache::Unrotated{}, requests, part, side.keys ? keys : values, side, status, heads, count);
}

template <class T, class P, cache::Scaling SCALING, int V, int ITEMS, int LANES, int HEADS, int THREADS, bool RAGGED,
    bool CHECKED, class I, class Rotation>
__global__ void __launch_bounds__(THREADS)
    append_rotated(u8* k_pages, u8* v_pages, u8* k_scales, u8* v_scales, const u8* k, const u8* v, const i32* table,
        const i32* lengths, const i32* offsets, i32* status, cache::Batch<I> batch, typename DivisorOf<I>::type heads,
        I count, const __grid_constant__ Lines keys, const __grid_constant__ Lines values,
        const typename Rotation::Position* positions, const typename Rotation::Table* cosines,
        const typename Rotation::Table* sines, const __grid_constant__ position::Places places, float factor) {
  const cache::Requests<RAGGED, I> requests{batch, table, lengths, offsets};
  const Rotation rotation{{places, positions, cosines, sines}, factor};
  const Side side = Side::interleaved();
  const Part part = side.keys ? Part{k_pages, k_scales, k} : Part{v_pages, v_scales, v};
  append<T, P, SCALING, V, ITEMS, LANES, HEADS, THREADS, CHECKED>(
      rotation, requests, part, side.keys ? keys : values, side, status, heads, count);
}

// Status of every request, one warp each, before the rows are written.
template <int THREADS, class Rotation, bool RAGGED, class I>
__device__ __forceinline__ void check(
    const Rotation& rotation, const cache::Requests<RAGGED, I>& requests, i32* status) {
  const bool broken = requests.broken();
  const u32 b = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  const bool live = b < requests.batch.requests && !broken;
  const i64 count = live ? requests.span(b).count : 0;
  const i32 fault = requests.template fault<32>(
      rotation, live ? b : 0, count, live ? requests.lengths[b] : 0, threadIdx.x % 32);
  if (b < requests.batch.requests && threadIdx.x % 32 == 0) status[b] = broken ? cache::OFFSETS : fault;
}

template <bool RAGGED, int THREADS, class I>
__global__ void __launch_bounds__(THREADS)
check_requests(const i32* table, const i32* lengths, const i32* offsets, i32* status, cache::Batch<I> batch) {
  check<THREADS>(cache::Unrotated{}, cache::Requests<RAGGED, I>{batch, table, lengths, offsets}, status);
}

template <bool RAGGED, int THREADS, class I, class Rotation>
__global__ void __launch_bounds__(THREADS)
    check_rotated(const i32* table, const i32* lengths, const i32* offsets, i32* status, cache::Batch<I> batch,
        const typename Rotation::Position* positions, const __grid_constant__ position::Places places) {
  check<THREADS>(Rotation{{places, positions, nullptr, nullptr}, 1.0f},
      cache::Requests<RAGGED, I>{batch, table, lengths, offsets}, status);
}
