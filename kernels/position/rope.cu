// out = rotate(x, position * frequency), and k in the same launch (RoPE). INVERSE: negative angles (the gradient).
//
// Grid:      one thread per (chunk of V pairs, rounds * HEADS heads, token, operand). Chunks of a row are adjacent in a
//            warp, then heads or tokens, whichever has the smaller stride. Columns past the rotated ones are copied.
// Loads:     HEADS heads in flight per round; cos and sin are read or computed once per thread.
// Errors:    TABLES: a position outside the tables is not read; status is 1 and the rotated columns are 0.
// Shared:    none.   Bound: DRAM.
#include "core/index.cuh"
#include "position/angles.cuh"
#include "rows/words.cuh"

constexpr int ROPE_THREADS = 128;

// Strides in elements; column is 1 where V > 1.
struct RopeRows {
  i64 batch, token, head, column;
};
// Heads of an operand, and groups of heads (one thread per group).
template <class I> struct RopeHeads { I count, groups; };
// `sequence`: stride of status between batches; 0 if all batches share positions.
struct RopeAngles {
  position::Places places;
  i64 sequence;
};
// Thread index: chunk of a row, then head group or token, then the other of them, then batch.
template <class I> struct RopeShape {
  typename DivisorOf<I>::type chunks, inner, middle;
  I items, rotated, rounds, tokens_inside;
  RopeHeads<I> x, k;
  I width, half;  // columns per row; half of the rotated columns
};

template <class T, class C, class Position, class Table, bool TABLES, bool INTERLEAVED, bool INVERSE, int V, int HEADS,
    class I>
__global__ void __launch_bounds__(ROPE_THREADS) rope(RopeShape<I> shape, RopeRows to_rows, RopeRows to_k_rows,
    RopeRows rows, RopeRows k_rows, RopeAngles angles, T* out, T* k_out, i32* status, const T* x, const T* k,
    const Position* positions, const Table* cosines, const Table* sines, i64 offset, C factor) {
  const I item = I(blockIdx.x) * ROPE_THREADS + threadIdx.x;
  if (item >= shape.items) return;
  // 1. chunk, token, head group
  const I row = shape.chunks.divide(item), chunk = item - row * shape.chunks.divisor;
  const I outer = shape.inner.divide(row), inner = row - outer * shape.inner.divisor;
  const I batch = shape.middle.divide(outer), middle = outer - batch * shape.middle.divisor;
  const I token = shape.tokens_inside ? inner : middle, group = shape.tokens_inside ? middle : inner;
  const bool rotates = chunk < shape.rotated;
  const I passed = 2 * shape.half + (chunk - shape.rotated) * 2 * V;
  const I first = !rotates ? passed : INTERLEAVED ? chunk * 2 * V : chunk * V;
  const I second = first + (rotates && !INTERLEAVED ? shape.half : I(V));
  const bool both = second < shape.width;

  // 2. operand and addresses
  // In place, columns that are not rotated are skipped.
  const bool of_x = group < shape.x.groups;
  if (!rotates && (of_x ? out == x : k_out == k)) return;
  const RopeHeads<I> heads = of_x ? shape.x : shape.k;
  const RopeRows &read = of_x ? rows : k_rows, &written = of_x ? to_rows : to_k_rows;
  const i64 column = V > 1 ? 1 : read.column, to_column = V > 1 ? 1 : written.column;
  I head = of_x ? group : group - shape.x.groups;
  const T* from = (of_x ? x : k) +
      (i64(batch) * read.batch + i64(token) * read.token + i64(head) * read.head + i64(first) * column);
  T* to = (of_x ? out : k_out) +
      (i64(batch) * written.batch + i64(token) * written.token + i64(head) * written.head + i64(first) * to_column);
  const i64 next = i64(heads.groups) * read.head, to_next = i64(heads.groups) * written.head;
  const i64 pair_offset = i64(second - first) * column, to_pair_offset = i64(second - first) * to_column;

  // 3. loader: all heads of a round in flight
  rows::Held<T, V> low[HEADS], high[HEADS];
  const auto live = [&](int h) { return head + h * heads.groups < heads.count; };
  const auto load = [&] {
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      if (live(h)) low[h].load(from + h * next);
      if (live(h) && both) high[h].load(from + h * next + pair_offset);
    }
  };
  load();

  // 4. position, cos, sin
  const position::Angles<Table, Position, TABLES> source{angles.places, positions, cosines, sines};
  const i64 at = i64(u64(source.at(batch, token, token)) + u64(offset));
  const bool known = source.known(at);
  if constexpr (TABLES) {
    if (chunk == 0 && group == 0 && (angles.sequence || batch == 0))
      status[i64(batch) * angles.sequence + token] = known ? 0 : 1;
  }
  position::Rotation<C, V> rotation = {};
  if (rotates) rotation = source.template of<C, V>(at, i64(chunk) * V);
  rotation.template scale<INVERSE>(factor);

  // 5. rotate and store, round by round
  for (I round = shape.rounds;;) {
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      if (!live(h)) continue;
      if (rotates && known) position::rotate<INTERLEAVED>(low[h], high[h], rotation);
      else if (rotates) low[h] = high[h] = {};
      low[h].store(to + h * to_next);
      if (both) high[h].store(to + h * to_next + to_pair_offset);
    }
    if (--round == 0) break;
    head += HEADS * heads.groups, from += HEADS * next, to += HEADS * to_next;
    load();
  }
}
