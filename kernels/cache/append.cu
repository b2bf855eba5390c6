// New keys and values written into the pages of a paged cache; page table, lengths and offsets are read here, so that a captured
// CUDA graph follows a batch that grows.
//
// append_pages: LANES threads take a row, the V-wide vectors of HEADS heads of one token, of keys or of values. Rows are
// loaded ahead of everything that says where they go. append_turned: keys are turned by their positions, by angles
// that a row's heads share, rounded, and then stored. A row that is quantised stays in registers between its largest magnitude and its codes. A
// request is written as a whole or not at all: every row asks whether all pages of its request are there (and its positions in
// the tables), or, CHECKED, reads what check_requests or check_turned (a warp a request) has found. No shared memory.
// Bound: memory latency when small, bandwidth when large.
#include "cache/request.cuh"
#include "cache/quantise.cuh"
#include "cache/turn.cuh"
#include "rows/words.cuh"

// Where one of keys and values lie: strides in bytes by (request, token, head, column), (page, slot, head, column) and, of scales,
// (page, slot, head). Vectors of the first 2 * half columns come from either half.
struct Lines {
  i64 token[4], page[4], scale[3];
  u32 columns, half;
};

// Of keys or values: their pages, scales and rows.
struct Part {
  u8 *pages, *scales;
  const u8* source;
};

// Whether a CTA has keys, and which of `ctas` it is that have. Where keys are turned, CTAs of values lie between theirs: an SM then has
// work for its units beside loads and stores all the time. Else all keys come first.
struct Side {
  bool keys;
  u32 cta, ctas;
  static __device__ __forceinline__ Side by_turns() { return {blockIdx.x % 2 == 0, blockIdx.x / 2, gridDim.x / 2}; }
  static __device__ __forceinline__ Side apart() { return {blockIdx.y == 0, blockIdx.x, gridDim.x}; }
};

template <class T, class P, cache::Scaling SCALING, int V, int ITEMS, int LANES, int HEADS, int THREADS, bool CHECKED, class Turn, bool RAGGED,
          class I>
__device__ __forceinline__ void append(const Turn& turn, const cache::Requests<RAGGED, I>& requests, const Part& part, const Lines& lines, const Side& side, i32* status,
                                       const typename DivisorOf<I>::type& heads, I count) {
  constexpr int GROUPS = THREADS / LANES;
  const bool first = side.keys;
  const cache::Batch<I>& batch = requests.batch;
  const i32* lengths = requests.lengths;
  const bool broken = !CHECKED && requests.broken();
  const u32 lane = threadIdx.x % LANES;
  const u32 columns = lines.columns;

  // The row's token, and its request
  const I row = I(side.cta) * GROUPS + threadIdx.x / LANES;
  bool live = row < count && !broken;
  const I token = heads.divide(live ? row : 0);
  const u32 head = u32((live ? row : 0) - token * heads.divisor), request = requests.of(token);
  const cache::Span span = requests.span(request);
  live = live && i64(token) >= span.begin && i64(token) < span.begin + span.count;
  const i64 within = i64(token) - span.begin;

  // Into registers
  rows::Held<T, V> pack[HEADS][ITEMS];
  const u8* from = part.source + (RAGGED ? i64(token) * lines.token[1] : request * lines.token[0] + within * lines.token[1]) + head * lines.token[2];
#pragma unroll
  for (int h = 0; h < HEADS; ++h, from += heads.divisor * lines.token[2])
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 column = Turn::template column<V, LANES>(i, lane, lines.half);
      if (live && column < columns) pack[h][i].load(reinterpret_cast<const T*>(from + column * lines.token[3]));
    }

  // Where the row goes, and whether all of its request can be written
  const i64 length = live ? lengths[request] : 0;
  i32 fault;
  if constexpr (CHECKED) fault = live ? status[request] : 0;
  else fault = requests.template fault<LANES>(turn, request, live ? span.count : 0, length, lane);
  const i64 position = length + within;
  const bool writes = live && fault == 0;
  const u32 place = writes ? batch.page.divide(u32(position)) : 0;
  const u32 slot = u32(position) - place * batch.page.divisor;
  const i64 id = writes ? requests.page_of(request, place) : 0;
  if constexpr (!CHECKED) {
    if (first && live && i64(token) == span.begin && head == 0 && lane == 0) status[request] = fault;
  }

  // Turned as it is to be
  if constexpr (Turn::TURNS) {
    if (first && live) turn.template turn<V, LANES>(pack, turn.at(requests, request, within, length), lines.half, lane);
  }

  u8* to = part.pages + id * lines.page[0] + slot * lines.page[1] + head * lines.page[2];
#pragma unroll
  for (int h = 0; h < HEADS; ++h, to += heads.divisor * lines.page[2]) {
    // The head's scale
    const u32 own = head + h * u32(heads.divisor);
    float inverse = 1.0f;
    if constexpr (SCALING == cache::GIVEN) {
      inverse = 1.0f / *reinterpret_cast<const float*>(part.scales + own * lines.scale[2]);
    } else if constexpr (SCALING == cache::MADE) {
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (!live || Turn::template column<V, LANES>(i, lane, lines.half) >= columns) continue;
        float x[V];
        pack[h][i].widen(x);
#pragma unroll
        for (int k = 0; k < V; ++k) largest = cache::larger(largest, x[k]);
      }
      const float scale = cache::scale_of<P>(cache::largest_of<LANES>(largest));
      inverse = 1.0f / scale;
      if (writes && lane == 0)
        *reinterpret_cast<float*>(part.scales + id * lines.scale[0] + slot * lines.scale[1] + own * lines.scale[2]) = scale;
    }

    // Out, as it is or as codes
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 column = Turn::template column<V, LANES>(i, lane, lines.half);
      if (!writes || column >= columns) continue;
      P* at = reinterpret_cast<P*>(to + column * lines.page[3]);
      if constexpr (SCALING == cache::STORED) pack[h][i].store(at);
      else cache::put_codes<P, V>(at, pack[h][i], inverse);
    }
  }

  // Requests without rows: those of no tokens, and all where the offsets make no sense
  if constexpr (!CHECKED) {
    const u32 step = side.ctas * THREADS;
    for (u32 b = side.cta * THREADS + threadIdx.x; first && b < batch.requests; b += step)
      if (broken || requests.span(b).count == 0) status[b] = broken ? cache::OFFSETS : 0;
  }
}

template <class T, class P, cache::Scaling SCALING, int V, int ITEMS, int LANES, int HEADS, int THREADS, bool RAGGED, bool CHECKED, class I>
__global__ void __launch_bounds__(THREADS)
append_pages(u8* k_pages, u8* v_pages, u8* k_scales, u8* v_scales, const u8* k, const u8* v, const i32* table, const i32* lengths,
             const i32* offsets, i32* status, cache::Batch<I> batch, typename DivisorOf<I>::type heads, I count,
             const __grid_constant__ Lines keys, const __grid_constant__ Lines values) {
  const cache::Requests<RAGGED, I> requests{batch, table, lengths, offsets};
  const Side side = Side::apart();
  const Part part = side.keys ? Part{k_pages, k_scales, k} : Part{v_pages, v_scales, v};
  append<T, P, SCALING, V, ITEMS, LANES, HEADS, THREADS, CHECKED>(cache::Still{}, requests, part, side.keys ? keys : values, side, status, heads, count);
}

template <class T, class P, cache::Scaling SCALING, int V, int ITEMS, int LANES, int HEADS, int THREADS, bool RAGGED, bool CHECKED, class I,
          class Turn>
__global__ void __launch_bounds__(THREADS)
append_turned(u8* k_pages, u8* v_pages, u8* k_scales, u8* v_scales, const u8* k, const u8* v, const i32* table, const i32* lengths,
              const i32* offsets, i32* status, cache::Batch<I> batch, typename DivisorOf<I>::type heads, I count,
              const __grid_constant__ Lines keys, const __grid_constant__ Lines values, const typename Turn::Position* positions,
              const typename Turn::Table* cosines, const typename Turn::Table* sines, const __grid_constant__ position::Places places, float factor) {
  const cache::Requests<RAGGED, I> requests{batch, table, lengths, offsets};
  const Turn turn{{places, positions, cosines, sines}, factor};
  const Side side = Side::by_turns();
  const Part part = side.keys ? Part{k_pages, k_scales, k} : Part{v_pages, v_scales, v};
  append<T, P, SCALING, V, ITEMS, LANES, HEADS, THREADS, CHECKED>(turn, requests, part, side.keys ? keys : values, side, status, heads, count);
}

template <int THREADS, class Turn, bool RAGGED, class I>
__device__ __forceinline__ void check(const Turn& turn, const cache::Requests<RAGGED, I>& requests, i32* status) {
  const bool broken = requests.broken();
  const u32 b = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  const bool live = b < requests.batch.requests && !broken;
  const i64 count = live ? requests.span(b).count : 0;
  const i32 fault = requests.template fault<32>(turn, live ? b : 0, count, live ? requests.lengths[b] : 0, threadIdx.x % 32);
  if (b < requests.batch.requests && threadIdx.x % 32 == 0) status[b] = broken ? cache::OFFSETS : fault;
}

template <bool RAGGED, int THREADS, class I>
__global__ void __launch_bounds__(THREADS)
check_requests(const i32* table, const i32* lengths, const i32* offsets, i32* status, cache::Batch<I> batch) {
  check<THREADS>(cache::Still{}, cache::Requests<RAGGED, I>{batch, table, lengths, offsets}, status);
}

template <bool RAGGED, int THREADS, class I, class Turn>
__global__ void __launch_bounds__(THREADS)
check_turned(const i32* table, const i32* lengths, const i32* offsets, i32* status, cache::Batch<I> batch, const typename Turn::Position* positions,
             const __grid_constant__ position::Places places) {
  check<THREADS>(Turn{{places, positions, nullptr, nullptr}, 1.0f}, cache::Requests<RAGGED, I>{batch, table, lengths, offsets}, status);
}
