// Losses of rows, Loss of the text before this file: sums along a row of Loss::add, and Loss::loss of these; or the
// gradients of columns, Loss::slopes of the sums that they need. Computed in C.
//
// Mapping:  LANES threads per row (rows/row.cuh), resident in registers or streamed; a CTA has THREADS / LANES rows.
//           row_loss_total: one CTA, in an order that `count` alone fixes.
// Labels:   out of range: never read; the loss and the row's gradients are NaN, and `status` is set.
// Shared:   a value of each sum per warp.   Bound: DRAM.
#include "loss/labelled.cuh"
#include "rows/fold.cuh"
#include "rows/group.cuh"
#include "rows/place.cuh"
#include "rows/row.cuh"

enum Operand { OUT, GRAD, TARGET, WEIGHT, X0, X1, X2, SLOPE0, SLOPE1, SLOPE2, OPERANDS };
constexpr int TOTAL_THREADS = 512;

template <class C> struct RowSums {
  C at[Loss::SUMS];
  __device__ __forceinline__ RowSums operator+(const RowSums& other) const {
    RowSums sums;
#pragma unroll
    for (int i = 0; i < Loss::SUMS; ++i) sums.at[i] = at[i] + other.at[i];
    return sums;
  }
};

// What formulas are computed from: the row's own numbers, its sums, and the column's inputs.
template <class C> struct RowCell {
  C grad, scale, margin, eps, width;
  C target, own, weight, here;
  RowSums<C> sums;
  C x[Loss::INPUTS];

  template <int V> __device__ __forceinline__ void enter(const C (&columns)[Loss::INPUTS][V], int v, bool labelled) {
#pragma unroll
    for (int i = 0; i < Loss::INPUTS; ++i) x[i] = columns[i][v];
    here = C(labelled);
  }
};

template <class T, class C, int V> struct RowInputs {
  rows::Pack<T, V> x[Loss::INPUTS];
  __device__ __forceinline__ void widen(C (&columns)[Loss::INPUTS][V]) const {
#pragma unroll
    for (int i = 0; i < Loss::INPUTS; ++i) x[i].widen(columns[i]);
  }
};

// T: of operands; L: of labels, or of numbers, one a row; out and grad have one value a row.
template <class T, class L, class C, int DIGITS, bool GRADIENT, int V, int ITEMS, int LANES, int THREADS, bool RESIDENT,
    int R, int RC, class I>
__global__ void __launch_bounds__(THREADS, (rows::LEAST_CTAS<RESIDENT && V != 1, C, THREADS>))
row_loss(I count, I length, C margin, C eps, C scale, C* losses, i32* status,
    rows::Places<I, R, RC, OPERANDS> places, C* out, const C* grad, const L* target, const T* weight, const T* x0,
    const T* x1, const T* x2, T* slope0, T* slope1, T* slope2) {
  using Loaded = RowInputs<T, C, V>;
  constexpr int WHOLE = sizeof(C) == 8 ? 53 : 24;
  const I row = I(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
  const bool live = row < count, first = threadIdx.x % LANES == 0;
  i64 at[OPERANDS];
  places.enter(live ? row : 0, at);
  rows::Row<RESIDENT, Loaded, V, ITEMS, LANES, I> line(live ? length : 0, threadIdx.x % LANES);
  const auto load = [&](I column) {
    Loaded loaded;
    loaded.x[0].load(places.template at<X0>(x0, at, column));
    if constexpr (Loss::INPUTS > 1) loaded.x[1].load(places.template at<X1>(x1, at, column));
    if constexpr (Loss::INPUTS > 2) loaded.x[2].load(places.template at<X2>(x2, at, column));
    return loaded;
  };
  line.load(load);

  RowCell<C> cell = {};
  cell.grad = GRADIENT ? *places.template of_row<GRAD>(grad, at) : C(1);
  cell.scale = scale, cell.margin = margin, cell.eps = eps, cell.width = C(length);
  i64 label = -1;
  if constexpr (Loss::LABELLED) {
    label = i64(*places.template of_row<TARGET>(target, at));
    const bool wrong = label < 0 || label >= i64(length);
    if (wrong && live && first && status) atomicOr(status, 1);
    cell.own = wrong ? C(0) : convert<C>(*places.template at<X0>(x0, at, I(label)));
    cell.weight = wrong ? not_a_number<C>()
                : weight ? convert<C>(*places.template at<WEIGHT>(weight, at, I(label))) : C(1);
  } else if constexpr (Loss::TARGETED) {
    cell.target = convert<C>(*places.template of_row<TARGET>(target, at));
  }
  // 1. the sums
  if constexpr (Loss::ADDS) {
    RowSums<C> sums = {};
    line.pass(load, [&](Loaded& loaded, I column, int) {
      C x[Loss::INPUTS][V];
      loaded.widen(x);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        cell.enter(x, v, i64(column) + v == label);
        Loss::template add<WHOLE, C>(cell, sums.at);
      }
    });
    const auto join = [](const RowSums<C>& a, const RowSums<C>& b) { return a + b; };
    cell.sums = rows::group_reduce<LANES>(sums, join);
  }

  // 2. the loss, or the gradients
  if constexpr (!GRADIENT) {
    if (live && first)
      *(losses ? losses + row : places.template of_row<OUT>(out, at)) = Loss::template loss<WHOLE, C>(cell);
  } else {
    line.pass(load, [&](Loaded& loaded, I column, int) {
      C x[Loss::INPUTS][V], slope[V], second[V], third[V];
      loaded.widen(x);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        cell.enter(x, v, i64(column) + v == label);
        slope[v] = Loss::template slope0<DIGITS, C>(cell);
        second[v] = Loss::template slope1<DIGITS, C>(cell), third[v] = Loss::template slope2<DIGITS, C>(cell);
      }
      rows::put(places.template at<SLOPE0>(slope0, at, column), slope);
      if constexpr (Loss::SLOPES > 1) rows::put(places.template at<SLOPE1>(slope1, at, column), second);
      if constexpr (Loss::SLOPES > 2) rows::put(places.template at<SLOPE2>(slope2, at, column), third);
    });
  }
}

// out = sum(losses) / divisor.
template <class C>
__global__ void __launch_bounds__(TOTAL_THREADS) row_loss_total(u32 count, C divisor, const C* losses, C* out) {
  const auto plus = [](C a, C b) { return a + b; };
  const auto load = [&](u32 row) { return losses[row]; };
  C sum = rows::fold<4>(threadIdx.x, count, TOTAL_THREADS, C(0), load, plus);
  sum = rows::sum<TOTAL_THREADS>(sum);
  if (threadIdx.x == 0) *out = sum / divisor;
}
