// grad_x[i] = finish(i, join of the states of the elements i + 1 ... n - 1), the gradient of a running reduction.
//
// Op:       one of scan/gradients.cuh: the state of an element, their associative join, the result of an element.
// Tiling:   LINES lines per CTA, ALONG threads per line, ITEMS adjacent elements per thread; tiles from the last one to
//           the first, the states of those already done in `carry`. DOWN: adjacent threads hold adjacent lines, else
//           adjacent parts of a line. Only the extent fixes the order of joins.
// Scan:     thread-serial, then a suffix scan over the line's threads in shared memory (log2(ALONG) steps).
// Chunks:   long lines take two launches: TOTALS (one CTA per chunk) writes totals[line][chunk]; CHUNKS joins those of
//           the chunks behind its own and reads the elements again.
// Shared:   two states per thread, at most 8 KB.   Bound: DRAM.
#include "core/index.cuh"
#include "scan/gradients.cuh"

enum Operand { GRAD_X, GRAD, X, Y, OPERANDS };
enum Mode { WHOLE, TOTALS, CHUNKS };

template <class T> __device__ __forceinline__ T* stepped(T* base, i64 bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<u64>(base) + bytes);
}

template <class Op, class T, class C, int ITEMS, int ALONG, int LINES, bool DOWN, int MODE, int R, class I>
__global__ void __launch_bounds__(ALONG * LINES)
    scan_gradient(I lines, I extent, I chunk, I chunks, Dims<I, R, OPERANDS> dims, i64 grad_x_step, i64 grad_step,
        i64 x_step, i64 y_step, T* grad_x, const T* grad, const T* x, const T* y, typename Op::State* totals) {
  using State = typename Op::State;
  __shared__ State slots[2][ALONG][LINES];
  const u32 own = DOWN ? threadIdx.x % LINES : threadIdx.x / ALONG;
  const u32 along = DOWN ? threadIdx.x / LINES : threadIdx.x % ALONG;
  const I part = MODE == WHOLE ? 0 : I(blockIdx.x) % chunks;
  const I block = MODE == WHOLE ? I(blockIdx.x) : I(blockIdx.x) / chunks, line = block * LINES + own;
  const bool live = line < lines;
  i64 at[OPERANDS] = {0};
  if constexpr (R > 0) dims.locate(live ? line : 0, at);
  const I first = MODE == WHOLE ? 0 : part * chunk;
  const I n = MODE == WHOLE || extent - first < chunk ? extent - first : chunk, end = live ? n : 0;
  const i64 from = i64(first);

  State carry = Op::none();
  if (MODE == CHUNKS && live)
    for (I other = chunks - 1; other > part; --other) carry = Op::join(totals[i64(line) * chunks + other], carry);

  constexpr I TILE = ALONG * ITEMS;
  for (I tiles = (n + TILE - 1) / TILE; tiles > 0; --tiles) {
    const I begin = (tiles - 1) * TILE + along * ITEMS;
    // 1. load; the states of a thread's elements, joined
    typename Op::Element held[ITEMS];
    State mine = Op::none();
#pragma unroll
    for (int i = ITEMS - 1; i >= 0; --i) {
      if (begin + i >= end) continue;
      const i64 place = from + i64(begin + i);
      const T* const result = stepped(y, at[Y] + place * y_step);
      held[i].grad = convert<C>(*stepped(grad, at[GRAD] + place * grad_step));
      held[i].x = convert<C>(*stepped(x, at[X] + place * x_step));
      if constexpr (Op::OF_PRECEDING) held[i].y = place > 0 ? convert<C>(*stepped(result, -y_step)) : C(1);
      else held[i].y = convert<C>(*result);
      mine = Op::join(Op::one(held[i]), mine);
    }
    // 2. suffix scan over the line's threads
    slots[0][along][own] = mine;
    __syncthreads();
    u32 buffer = 0;
#pragma unroll
    for (u32 step = 1; step < ALONG; step *= 2, buffer ^= 1) {
      if (along + step < ALONG) mine = Op::join(mine, slots[buffer][along + step][own]);
      slots[buffer ^ 1][along][own] = mine;
      __syncthreads();
    }
    // 3. results, from the last element to the first
    if constexpr (MODE != TOTALS) {
      State run = along + 1 < ALONG ? Op::join(slots[buffer][along + 1][own], carry) : carry;
#pragma unroll
      for (int i = ITEMS - 1; i >= 0; --i) {
        if (begin + i >= end) continue;
        const i64 place = from + i64(begin + i);
        *stepped(grad_x, at[GRAD_X] + place * grad_x_step) = convert<T>(Op::finish(held[i], run));
        run = Op::join(Op::one(held[i]), run);
      }
    }
    carry = Op::join(slots[buffer][0][own], carry);
    __syncthreads();
  }
  if (MODE == TOTALS && live && along == 0) totals[i64(line) * chunks + part] = carry;
}
