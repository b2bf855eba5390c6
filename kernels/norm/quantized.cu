// codes = y / scale in 8 bits, scale = max|y| / MOST (127, or 448 for e4m3) per row or per GROUP adjacent columns.
//
// norm_quantized:  y of a norm (norm/normed.cuh); *_cluster: the CTAs of a cluster share a row.
// gate_quantized:  y = x sigmoid(x) gate.
// Threads:   LANES threads per row: part of a warp, a warp, or a CTA (rows/row.cuh), resident (x is read once) or
//            streamed.
// WHOLE:     columns are accessed by vectors of V; otherwise (groups of rows at odd strides) by elements.
// Rounding:  y is f32 and not rounded to T.
// Shared:    one value per warp.   Bound: DRAM.
#include "math/silu_mul.cuh"
#include "norm/codes.cuh"
#include "norm/normed.cuh"

using namespace norms;
enum Own { SCALES = OWN, OPERANDS };

template <int GROUP, bool WHOLE, class P, class Places> struct StoreCoded {
  const Places& places;
  P* codes;
  float* scales;

  template <class Line, class Load, class Value, class Row>
  __device__ __forceinline__ void operator()(
      Line& line, const Load& reload, const Value& value, const Row& row) const {
    store_codes<OUT, SCALES, GROUP, WHOLE>(
        line, reload, value, places, row.at, row.part, row.live, codes, scales);
  }
};

template <bool CENTERED, int WITH, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int GROUP, bool WHOLE,
    int CTAS, class P, class T, class W, class I, int R, int RC>
__device__ __forceinline__ void rows_quantized(I count, I length, float eps,
    const rows::Places<I, R, RC, OPERANDS>& places, P* codes, T* residual_out, const T* x, const T* residual,
    const W* weight, const W* bias, float* scales) {
  const StoreCoded<GROUP, WHOLE, P, rows::Places<I, R, RC, OPERANDS>> store{places, codes, scales};
  norm_row<CENTERED, WITH, V, ITEMS, LANES, THREADS, RESIDENT, RESIDENT, WHOLE, CTAS, (GROUP > V ? GROUP : V)>(
      count, length, eps, places, residual_out, x, residual, weight, bias, store);
}

template <class T, class W, class P, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH, int GROUP, bool WHOLE>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, float, THREADS>))
    norm_quantized(I count, I length, float eps, rows::Places<I, R, RC, OPERANDS> places, P* codes, T* residual_out,
        const T* x, const T* residual, const W* weight, const W* bias, float* scales) {
  rows_quantized<CENTERED, WITH, V, ITEMS, LANES, THREADS, RESIDENT, GROUP, WHOLE, 1>(
      count, length, eps, places, codes, residual_out, x, residual, weight, bias, scales);
}

#if __CUDA_ARCH__ >= 900
template <class T, class W, class P, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC, class I,
    bool CENTERED, int WITH, int GROUP, bool WHOLE, int CTAS>
__global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    norm_quantized_cluster(I count, I length, float eps, rows::Places<I, R, RC, OPERANDS> places, P* codes,
        T* residual_out, const T* x, const T* residual, const W* weight, const W* bias, float* scales) {
  rows_quantized<CENTERED, WITH, V, ITEMS, LANES, THREADS, RESIDENT, GROUP, WHOLE, CTAS>(
      count, length, eps, places, codes, residual_out, x, residual, weight, bias, scales);
}
#endif

enum GateOperand { GATE_CODES, GATE_SCALES, GATE_X, GATE_Y, GATE_OPERANDS };

template <class T, class P, int DIGITS, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT, int R, int RC,
    class I, int GROUP, bool WHOLE>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, float, THREADS>))
    gate_quantized(I count, I length, rows::Places<I, R, RC, GATE_OPERANDS> places, P* codes, float* scales,
        const T* x, const T* gated) {
  struct Loaded { rows::Pack<T, V> x, gated; float y[V]; };
  const rows::Part<1, I> part(length, V, THREADS / LANES, threadIdx.x / LANES);
  const bool live = part.row < count;
  i64 at[GATE_OPERANDS];
  places.enter(live ? part.row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    return Loaded{norms::gather<WHOLE, GATE_X, V>(places, x, at, column),
        norms::gather<WHOLE, GATE_Y, V>(places, gated, at, column), {}};
  };
  line.load(load);
  rows::hold(line, &Loaded::x, &Loaded::gated);
  const auto value = [&](Loaded& loaded, I, int, float(&y)[V]) {
    float b[V];
    loaded.x.widen(y);
    loaded.gated.widen(b);
#pragma unroll
    for (int v = 0; v < V; ++v) y[v] = math::silu_mul<DIGITS>(y[v], b[v]);
  };
  norms::store_codes<GATE_CODES, GATE_SCALES, GROUP, WHOLE>(
      line, load, value, places, at, part, live, codes, scales);
}
