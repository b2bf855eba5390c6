// loss = sum(max(0, 1 - x[t] + x[i])) / C of each row over its targets t and the classes i that are none, and the
// gradient of x. A row's targets end at its first -1. Computed in C.
//
// Mapping:  LANES threads per row, a warp or a CTA, and ITEMS classes per thread at a time; a gradient's targets have
//           one warp each. At most PARTIAL_SUMS CTAs, which loop over rows; pointwise_total (total.cu) adds up.
// Order:    of a class over its targets, of a thread over its classes, of the group; counts are integers.
// Targets:  out of range: the loss and the row's gradients are NaN, and `status` is set. Duplicates count each time.
// Shared:   1 - x[t] of LANES targets; the bits of targets, or for long rows `scratch`.
// Bound:    DRAM, C * (bytes of x and of the gradient) + 8 bytes per target; instruction issue, 3 per pair (t, i).
#include "loss/labelled.cuh"
#include "rows/group.cuh"

constexpr int THREADS = 256, ITEMS = 4;  // the second launch bound of 1 keeps ptxas from spilling

// A matrix of `row` and `column` elements from one to the next, at one of its rows.
template <class T> struct Line {
  T* from;
  i64 step;
  __device__ __forceinline__ Line(T* base, u32 row, i64 row_step, i64 step) : from(base + row * row_step), step(step) {}
  __device__ __forceinline__ T& operator[](i64 column) const { return from[column * step]; }
};

// What a group of threads finds of a row.
template <class T, class C, class L, int LANES> struct Targets {
  Line<const T> x;
  Line<const L> labels;
  u32 length, lane, count;  // `count`: labels ahead of the first -1
  u32* marks;               // a bit per class: whether it is a target
  C* margins;               // of LANES targets, 1 - x[t]
  bool wrong;

  static __device__ __forceinline__ void meet() {
    if constexpr (LANES == 32) __syncwarp();
    else __syncthreads();
  }
  __device__ __forceinline__ bool marked(u32 column) const { return marks[column / 32] >> column % 32 & 1; }
  __device__ __forceinline__ C margin(u32 j) const { return C(1) - convert<C>(x[i64(labels[j])]); }

  __device__ __forceinline__ Targets(Line<const T> x, Line<const L> labels, u32 length, u32* marks, C* margins)
      : x(x), labels(labels), length(length), lane(threadIdx.x % LANES), count(length), marks(marks), margins(margins) {
    const auto least = [](u32 a, u32 b) { return a < b ? a : b; };
    const auto either = [](u32 a, u32 b) { return a | b; };
    u32 outside = 0;
    meet();
    for (u32 word = lane; word < (length + 31) / 32; word += LANES) marks[word] = 0;
    meet();
    for (u32 base = 0, turn = 0; base < count; base += LANES, turn ^= 1) {
      const u32 j = base + lane;
      const i64 label = j < length ? i64(labels[j]) : -1;
      count = rows::group_reduce<LANES, 1>(label == -1 && j < length ? j : length, least, turn);
      if (j >= count) continue;
      if (label < 0 || label >= length) outside = 1;
      else atomicOr(marks + label / 32, 1u << label % 32);
    }
    wrong = rows::group_reduce<LANES, 2>(outside, either);
    meet();
  }

  // visit(column, sum of term(1 - x[t] + x[column]) over the targets t) of each column that is no target.
  template <class S, class Term, class Visit>
  __device__ __forceinline__ void others(const Term& term, const Visit& visit) const {
    for (u32 base = lane; base - lane < length; base += LANES * ITEMS) {
      C at[ITEMS];
      S sum[ITEMS] = {};
      bool other[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        const u32 column = base + i * LANES;
        other[i] = column < length && !marked(column);
        at[i] = other[i] ? convert<C>(x[column]) : C(0);
      }
      for (u32 tile = 0; tile < count; tile += LANES) {
        if (base == lane || count > LANES) {  // a row with one tile of targets has them loaded once
          meet();
          if (tile + lane < count) margins[lane] = margin(tile + lane);
          meet();
        }
        S part[ITEMS] = {};
        const u32 held = min(u32(LANES), count - tile);
        for (u32 j = 0; j < held; ++j) {
          const C margin = margins[j];
#pragma unroll
          for (int i = 0; i < ITEMS; ++i) part[i] += term(margin + at[i]);
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) sum[i] += part[i];
      }
#pragma unroll
      for (int i = 0; i < ITEMS; ++i)
        if (other[i]) visit(base + i * LANES, sum[i]);
    }
  }
};

// Where a group keeps its marks: in shared memory if they fit.
template <int LANES>
__device__ __forceinline__ u32* marks_of(u32 (&held)[THREADS], u32* scratch, u32 group, u32 length) {
  const u32 words = (length + 31) / 32;
  return words <= LANES ? held + group * LANES : scratch + i64(blockIdx.x * (THREADS / LANES) + group) * words;
}

// `losses`: one per row, or null; `partial`: the sum of this CTA's rows, if not null. Steps count elements.
template <class T, class C, class L, int LANES>
__global__ void __launch_bounds__(THREADS, 1) multilabel_margin(u32 count, u32 length, C* losses, i64 loss_step,
    C* partial, i32* status, u32* scratch, const T* x, i64 x_row, i64 x_step, const L* target, i64 target_row,
    i64 target_step) {
  __shared__ u32 held[THREADS];
  __shared__ C margins[THREADS];
  const u32 group = threadIdx.x / LANES;
  u32* const marks = marks_of<LANES>(held, scratch, group, length);
  const bool first = threadIdx.x % LANES == 0;
  C total = 0;
  for (u64 row = u64(blockIdx.x) * (THREADS / LANES) + group; row < count; row += u64(gridDim.x) * (THREADS / LANES)) {
    const Targets<T, C, L, LANES> targets({x, u32(row), x_row, x_step}, {target, u32(row), target_row, target_step},
        length, marks, margins + group * LANES);
    C sum = targets.wrong ? not_a_number<C>() : C(0);
    if (!targets.wrong)
      targets.template others<C>([](C z) { return z <= C(0) ? C(0) : z; }, [&](u32, C lost) { sum += lost; });
    else if (status && first) atomicOr(status, 1);
    const C loss = rows::sum<LANES>(sum) / C(length);
    if (losses && first) losses[i64(row) * loss_step] = loss;
    total += loss;
  }
  if (!partial) return;
  total = rows::sum<THREADS, 3>(first ? total : C(0));
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// The gradient: of another class, how many targets have a positive term with it; of a target, minus the positive terms.
template <class T, class C, class L, int LANES>
__global__ void __launch_bounds__(THREADS, 1) multilabel_margin_backward(u32 count, u32 length, C scale, const C* grad,
    i64 grad_step, i32* status, u32* scratch, T* slope, i64 slope_row, i64 slope_step, const T* x, i64 x_row,
    i64 x_step, const L* target, i64 target_row, i64 target_step) {
  __shared__ u32 held[THREADS];
  __shared__ C margins[THREADS];
  const u32 group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  u32* const marks = marks_of<LANES>(held, scratch, group, length);
  for (u64 row = u64(blockIdx.x) * (THREADS / LANES) + group; row < count; row += u64(gridDim.x) * (THREADS / LANES)) {
    const Targets<T, C, L, LANES> targets({x, u32(row), x_row, x_step}, {target, u32(row), target_row, target_step},
        length, marks, margins + group * LANES);
    const Line<T> slopes(slope, u32(row), slope_row, slope_step);
    if (targets.wrong) {
      if (status && lane == 0) atomicOr(status, 1);
      for (u32 column = lane; column < length; column += LANES) slopes[column] = convert<T>(not_a_number<C>());
      continue;
    }
    const C g = grad[i64(row) * grad_step] * scale / C(length);
    const auto times = [&](u64 terms) { return convert<T>(terms ? g * C(i64(terms)) : C(0)); };

    // 1. the classes that are no targets
    targets.template others<u32>([](C z) { return u32(z > C(0)); }, [&](u32 column, u32 terms) {
      slopes[column] = times(terms);
    });

    // 2. the targets: a warp each, where it first occurs
    for (u32 j = lane / 32; j < targets.count; j += LANES / 32) {
      const i64 own = targets.labels[j];
      const C margin = targets.margin(j);
      u32 terms = 0, same = 0, earlier = 0;
      for (u32 column = lane % 32; column < length; column += 32)
        terms += !targets.marked(column) && margin + convert<C>(targets.x[column]) > C(0);
      for (u32 i = lane % 32; i < targets.count; i += 32) {
        const bool alike = i64(targets.labels[i]) == own;
        same += alike, earlier += alike && i < j;
      }
      terms = rows::sum<32>(terms), same = rows::sum<32>(same), earlier = rows::sum<32>(earlier);
      if (lane % 32 == 0 && !earlier) slopes[own] = convert<T>(terms ? -(g * C(i64(terms) * same)) : C(0));
    }
  }
}
