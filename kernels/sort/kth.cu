// grad_x[row, indices[row]] = grad[row], on zeros: the gradient of one element per row.
//
// Grid:    one thread per row; a row whose index is out of range is left as it is.
// Bound:   DRAM: zeros before (a fill), then one element per row.
#include "core/index.cuh"

template <int WIDTH, class I, int R>
__global__ void __launch_bounds__(256) place_gradients(
    u8* grad_x, const u8* grad, const u8* indices, I count, i64 extent, i64 step, Dims<I, R, 3> dims) {
  using Word = typename ::Word<WIDTH>::type;
  const I row = I(blockIdx.x) * 256 + threadIdx.x;
  if (row >= count) return;
  i64 offset[3] = {0, 0, 0};
  dims.locate(row, offset);
  const i64 place = *reinterpret_cast<const i64*>(indices + offset[2]);
  if (place < 0 || place >= extent) return;
  *reinterpret_cast<Word*>(grad_x + offset[0] + place * step) = *reinterpret_cast<const Word*>(grad + offset[1]);
}
