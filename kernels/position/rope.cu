// Rotary position embedding of x and, in the same launch, of k; INVERSE: of their gradients, by the negative angles.
//
// A thread takes one chunk of up to HEADS heads of one token: V pairs, whose cosines and sines it reads or computes once, or 2 V
// of the columns behind them, which are copied. Chunks of a row are neighbours in a warp; behind them come heads or tokens,
// whichever lie closer. All loads of a thread are under way at once. No shared memory. Bound: bandwidth.
// A position outside of the TABLES is not read: status says 1, and what is rotated is 0.
#include "index.cuh"
#include "position/angles.cuh"

constexpr int ROPE_THREADS = 128;

// Where rows lie, in elements; `column` is 1 where V is more.
struct RopeRows {
  i64 batch, token, head, column;
  template <class I> __device__ __forceinline__ i64 at(I b, I t, I h) const { return i64(b) * batch + i64(t) * token + i64(h) * head; }
};
// `sequence`: tokens of a batch's own status; 0 where all share one.
struct RopeAngles {
  position::Places places;
  i64 sequence;
};
// How threads are laid out: chunks of a row, then heads or tokens, then the other of them, then batches.
template <class I> struct RopeShape {
  typename DivisorOf<I>::type chunks, inner, middle;
  I items, rotated, groups, tokens_inside;
  I heads, k_heads, width, half;  // of both operands; columns of a row, and half of those that are rotated
};

template <class T, class C, class Position, class Table, bool TABLES, bool INTERLEAVED, bool INVERSE, int V, int HEADS, class I>
__global__ void __launch_bounds__(ROPE_THREADS)
rope(RopeShape<I> shape, RopeRows to_rows, RopeRows to_k_rows, RopeRows rows, RopeRows k_rows, RopeAngles angles, T* out, T* k_out, i32* status,
     const T* x, const T* k, const Position* positions, const Table* cosines, const Table* sines, i64 offset, C factor) {
  const I item = I(blockIdx.x) * ROPE_THREADS + threadIdx.x;
  if (item >= shape.items) return;
  // Which chunk of which token and heads
  const I row = shape.chunks.divide(item), chunk = item - row * shape.chunks.divisor;
  const I outer = shape.inner.divide(row), inner = row - outer * shape.inner.divisor;
  const I batch = shape.middle.divide(outer), middle = outer - batch * shape.middle.divisor;
  const I token = shape.tokens_inside ? inner : middle, group = shape.tokens_inside ? middle : inner;
  const bool rotates = chunk < shape.rotated;
  const I passed = 2 * shape.half + (chunk - shape.rotated) * 2 * V;
  const I first = !rotates ? passed : INTERLEAVED ? chunk * 2 * V : chunk * V;
  const I second = first + (rotates && !INTERLEAVED ? shape.half : I(V));
  const bool both = second < shape.width;

  // Heads, all under way at once; what is in its place already is not copied
  rows::Pack<T, V> low[HEADS], high[HEADS];
  bool live[HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    const I head = group + h * shape.groups;
    const bool of_x = head < shape.heads;
    const T* from = of_x ? x + rows.at(batch, token, head) : k + k_rows.at(batch, token, head - shape.heads);
    const i64 column = of_x ? rows.column : k_rows.column;
    live[h] = head < shape.heads + shape.k_heads && (rotates || (of_x ? out != x : k_out != k));
    if (live[h]) {
      low[h].load(from + i64(first) * column);
      if (both) high[h].load(from + i64(second) * column);
    }
  }

  // The position, and its cosines and sines
  const position::Angles<Table, Position, TABLES> source{angles.places, positions, cosines, sines};
  const i64 at = i64(u64(source.at(batch, token, token)) + u64(offset));
  const bool known = source.known(at);
  if constexpr (TABLES) {
    if (chunk == 0 && group == 0 && (angles.sequence || batch == 0)) status[i64(batch) * angles.sequence + token] = known ? 0 : 1;
  }
  if (rotates) {
    auto rotation = source.template of<C, V>(at, i64(chunk) * V);
    rotation.template scale<INVERSE>(factor);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      if (!live[h]) continue;
      if (known) position::turn<INTERLEAVED>(low[h], high[h], rotation);
      else low[h] = high[h] = {};
    }
  }
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    if (!live[h]) continue;
    const I head = group + h * shape.groups;
    const bool of_x = head < shape.heads;
    T* to = of_x ? out + to_rows.at(batch, token, head) : k_out + to_k_rows.at(batch, token, head - shape.heads);
    const i64 column = of_x ? to_rows.column : to_k_rows.column;
    low[h].store(to + i64(first) * column);
    if (both) high[h].store(to + i64(second) * column);
  }
}
