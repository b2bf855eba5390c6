// New keys and values written into the pages of a paged cache; page table, lengths and offsets are read here, so that a captured
// CUDA graph follows a batch that grows.
//
// append_pages: LANES threads take a row, the V-wide vectors of one token and head, and UNROLL rows at a time; blockIdx.y is 0 for
// keys and 1 for values. Rows are loaded ahead of everything that says where they go. A row that is quantised stays in registers
// between its largest magnitude and its codes. A request is written as a whole or not at all: every row asks whether all pages
// of its request are there, or, CHECKED, reads what check_requests (a warp a request) has found. No shared memory.
// Bound: memory latency when small, bandwidth when large.
#include "cache/request.cuh"
#include "cache/quantise.cuh"
#include "rows/pack.cuh"

// Where one of keys and values lie: strides in bytes by (request, token, head, column), (page, slot, head, column) and, of scales,
// (page, slot, head).
struct Lines {
  i64 token[4], page[4], scale[3];
  u32 columns, unused;
};

template <class T, class P, cache::Scaling SCALING, int V, int ITEMS, int LANES, int UNROLL, int THREADS, bool RAGGED, bool CHECKED, class I>
__global__ void __launch_bounds__(THREADS)
append_pages(u8* k_pages, u8* v_pages, u8* k_scales, u8* v_scales, const u8* k, const u8* v, const i32* table, const i32* lengths,
             const i32* offsets, i32* status, cache::Batch<I> batch, typename DivisorOf<I>::type heads, I count,
             const __grid_constant__ Lines keys, const __grid_constant__ Lines values) {
  constexpr int GROUPS = THREADS / LANES;
  const bool first = blockIdx.y == 0;
  const Lines& lines = first ? keys : values;
  const u8* source = first ? k : v;
  u8* pages = first ? k_pages : v_pages;
  u8* scales = first ? k_scales : v_scales;
  const cache::Requests<RAGGED, I> requests{batch, table, lengths, offsets};
  const bool broken = !CHECKED && requests.broken();
  const u32 lane = threadIdx.x % LANES;
  const u32 columns = lines.columns;

  // Rows into registers
  rows::Pack<T, V> pack[UNROLL][ITEMS];
  I token[UNROLL];
  u32 request[UNROLL], head[UNROLL];
  bool live[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const I row = I(blockIdx.x) * (GROUPS * UNROLL) + u * GROUPS + threadIdx.x / LANES;
    live[u] = row < count && !broken;
    token[u] = heads.divide(live[u] ? row : 0);
    head[u] = u32((live[u] ? row : 0) - token[u] * heads.divisor);
    request[u] = requests.of(token[u]);
    const cache::Span span = requests.span(request[u]);
    live[u] = live[u] && i64(token[u]) >= span.begin && i64(token[u]) < span.begin + span.count;
    const i64 within = RAGGED ? i64(token[u]) : i64(token[u]) - span.begin;
    const u8* from = source + (RAGGED ? 0 : request[u] * lines.token[0]) + within * lines.token[1] + head[u] * lines.token[2];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 column = (i * LANES + lane) * V;
      if (live[u] && column < columns) pack[u][i].load(reinterpret_cast<const T*>(from + column * lines.token[3]));
    }
  }

#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    // Where the row goes, and whether all of its request can be written
    const cache::Span span = requests.span(request[u]);
    const i64 length = live[u] ? lengths[request[u]] : 0;
    i32 fault;
    if constexpr (CHECKED) fault = live[u] ? status[request[u]] : 0;
    else fault = requests.template fault<LANES>(request[u], live[u] ? span.count : 0, length, lane);
    const i64 position = length + (i64(token[u]) - span.begin);
    const bool writes = live[u] && fault == 0;
    const u32 place = writes ? batch.page.divide(u32(position)) : 0;
    const u32 slot = u32(position) - place * batch.page.divisor;
    const i64 id = writes ? requests.page_of(request[u], place) : 0;
    if constexpr (!CHECKED) {
      if (first && live[u] && i64(token[u]) == span.begin && head[u] == 0 && lane == 0) status[request[u]] = fault;
    }

    // The scale of the row
    float inverse = 1.0f;
    if constexpr (SCALING == cache::GIVEN) {
      inverse = 1.0f / *reinterpret_cast<const float*>(scales + head[u] * lines.scale[2]);
    } else if constexpr (SCALING == cache::MADE) {
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (!live[u] || (i * LANES + lane) * V >= columns) continue;
        float x[V];
        pack[u][i].widen(x);
#pragma unroll
        for (int k = 0; k < V; ++k) largest = cache::larger(largest, x[k]);
      }
      const float scale = cache::scale_of<P>(cache::largest_of<LANES>(largest));
      inverse = 1.0f / scale;
      if (writes && lane == 0)
        *reinterpret_cast<float*>(scales + id * lines.scale[0] + slot * lines.scale[1] + head[u] * lines.scale[2]) = scale;
    }

    // Out, as it is or as codes
    u8* to = pages + id * lines.page[0] + slot * lines.page[1] + head[u] * lines.page[2];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 column = (i * LANES + lane) * V;
      if (!writes || column >= columns) continue;
      P* at = reinterpret_cast<P*>(to + column * lines.page[3]);
      if constexpr (SCALING == cache::STORED) pack[u][i].store(at);
      else cache::put_codes<P, V>(at, pack[u][i], inverse);
    }
  }

  // Requests without rows: those of no tokens, and all where the offsets make no sense
  if constexpr (!CHECKED) {
    const u32 step = gridDim.x * THREADS;
    for (u32 b = blockIdx.x * THREADS + threadIdx.x; first && b < batch.requests; b += step)
      if (broken || requests.span(b).count == 0) status[b] = broken ? cache::OFFSETS : 0;
  }
}

template <bool RAGGED, int THREADS, class I>
__global__ void __launch_bounds__(THREADS)
check_requests(const i32* table, const i32* lengths, const i32* offsets, i32* status, cache::Batch<I> batch) {
  const cache::Requests<RAGGED, I> requests{batch, table, lengths, offsets};
  const bool broken = requests.broken();
  const u32 b = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  const bool live = b < batch.requests && !broken;
  const i64 count = live ? requests.span(b).count : 0;
  const i32 fault = requests.template fault<32>(live ? b : 0, count, live ? lengths[b] : 0, threadIdx.x % 32);
  if (b < batch.requests && threadIdx.x % 32 == 0) status[b] = broken ? cache::OFFSETS : fault;
}
