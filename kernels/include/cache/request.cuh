// Requests of a batch that appends to a paged cache: token ranges, and whether their pages exist.
#pragma once
#include "core/index.cuh"

namespace cache {

constexpr i32 TOO_SHORT = 1, NO_PAGE = 2, OFFSETS = 3, OUTSIDE = 4;  // status

template <class I> struct Batch {
  i64 table_row, table_column;  // strides of the page table in elements
  i64 capacity;                 // tokens that one row of the table holds
  I tokens;                     // all requests together
  typename DivisorOf<I>::type each;  // tokens per request, if equal for all
  Divisor32 page;
  u32 requests, pages;
};

struct Span { i64 begin, count; };

// RAGGED: request b has the tokens [offsets[b], offsets[b + 1]).
template <bool RAGGED, class I> struct Requests {
  const Batch<I>& batch;
  const i32 *table, *lengths, *offsets;

  // Whether offsets decrease or exceed the tokens. Warp-wide: all threads of the warp take part.
  __device__ __forceinline__ bool broken() const {
    if constexpr (!RAGGED) return false;
    bool bad = offsets[0] < 0 || i64(offsets[batch.requests]) > i64(batch.tokens);
    for (u32 b = threadIdx.x % 32; b < batch.requests; b += 32) bad |= offsets[b] > offsets[b + 1];
    return __any_sync(~0u, bad);
  }

  __device__ __forceinline__ Span span(u32 b) const {
    if constexpr (!RAGGED) return Span{i64(b) * batch.each.divisor, i64(batch.each.divisor)};
    const i64 begin = offsets[b];
    return Span{begin, i64(offsets[b + 1]) - begin};
  }

  // The last request that begins at or before a token (binary search): the token's own request, if it has one.
  __device__ __forceinline__ u32 of(I token) const {
    if constexpr (!RAGGED) return u32(batch.each.divide(token));
    u32 low = 0, high = batch.requests;
    while (high - low > 1) {
      const u32 middle = (low + high) / 2;
      if (i64(offsets[middle]) <= i64(token)) low = middle;
      else high = middle;
    }
    return low;
  }

  __device__ __forceinline__ i64 page_of(u32 b, u32 place) const {
    return table[b * batch.table_row + place * batch.table_column];
  }

  // The status of appending `count` tokens at `length`: 0 if possible. LANES adjacent lanes share the work; all threads
  // of the warp take part.
  template <int LANES, class Rotation>
  __device__ __forceinline__ i32 fault(const Rotation& rotation, u32 b, i64 count, i64 length, u32 lane) const {
    const bool fits = length >= 0 && length + count <= batch.capacity;
    bool bad = false;
    if (fits && count > 0) {
      const u32 end = batch.page.divide(u32(length + count - 1));
      for (u32 place = batch.page.divide(u32(length)) + lane; place <= end; place += LANES)
        bad |= u32(page_of(b, place)) >= batch.pages;
    }
    const u32 group = (LANES == 32 ? ~0u : (1u << LANES % 32) - 1) << (threadIdx.x % 32 / LANES * LANES);
    const u32 votes = __ballot_sync(~0u, bad) & group;
    u32 outside = 0;
    if constexpr (Rotation::ROTATES)
      outside = __ballot_sync(~0u, rotation.template outside<RAGGED, LANES>(*this, b, count, length, lane)) & group;
    return count > 0 && !fits ? TOO_SHORT : votes ? NO_PAGE : outside ? OUTSIDE : 0;
  }
};

}  // namespace cache
