// loss = -log(sum over alignments of a sequence's labels, with blanks between them, of the product of their
// probabilities), by the forward recursion over states (label, blank) in log space, and the gradient of log_probs.
//
// Mapping:  ctc_loss, ctc_posteriors: one CTA per sequence, threads across its 2 * size + 1 states, one barrier per
//           step; the first state of a thread has its log-probability prefetched. ctc_gradient: one CTA per step.
// Order:    equal labels of a gradient are added in their order, blanks by group_reduce: no atomics.
// Wrong:    lengths or labels out of range: never read past; loss and gradient are NaN, and `status` is set.
// Shared:   two rows of states, or `rows` in global memory where they do not fit.
// Bound:    latency of a step; ctc_gradient: DRAM, a write of the gradient and a read of the posteriors.
#include "loss/labelled.cuh"
#include "rows/group.cuh"

constexpr int THREADS = 256, HELD = 2048;

template <class C> __device__ __forceinline__ C minus_infinity() { return C(__uint_as_float(0xff800000)); }

// log(e^a + e^b + e^c)
template <class C> __device__ __forceinline__ C log_sum(C a, C b, C c) {
  const C most = ::fmax(::fmax(a, b), c);
  if (most == minus_infinity<C>()) return a + b + c;  // NaN where one is
  return most + ::log(::exp(a - most) + ::exp(b - most) + ::exp(c - most));
}

// Sequences, and the limits of their lengths, classes and labels; elements from one to the next in each operand.
struct Batch {
  u32 count, steps, classes, most;
  i64 blank, at_step, at_sequence, at_class, target_row, target_step, input_step, size_step;
};

template <class T, class C, class L, class N> struct Sequence {
  const T* log_probs;
  const L* labels;
  i64 at_step, at_class, label_step, blank;
  u32 steps, size, states;
  bool wrong;

  __device__ __forceinline__ Sequence(const Batch& batch, u32 n, const T* log_probs, const L* targets,
      const N* input_lengths, const N* target_lengths)
      : log_probs(log_probs + n * batch.at_sequence), labels(targets + n * batch.target_row), at_step(batch.at_step),
        at_class(batch.at_class), label_step(batch.target_step), blank(batch.blank) {
    const i64 inputs = input_lengths[n * batch.input_step], labelled = target_lengths[n * batch.size_step];
    wrong = inputs < 0 || inputs > batch.steps || labelled < 0 || labelled > batch.most;
    steps = wrong ? 0 : u32(inputs), size = wrong ? 0 : u32(labelled), states = 2 * size + 1;
  }
  // Whether any label is no class: all threads of the CTA take part.
  __device__ __forceinline__ void check(u32 classes) {
    u32 outside = wrong;
    for (u32 j = threadIdx.x; j < size; j += THREADS) {
      const i64 own = label(2 * j + 1);
      outside |= own < 0 || own >= classes;
    }
    wrong = rows::group_reduce<THREADS, 1>(outside, [](u32 a, u32 b) { return a | b; });
    __syncthreads();
  }
  __device__ __forceinline__ i64 label(u32 state) const {
    return state & 1 ? i64(labels[state / 2 * label_step]) : blank;
  }
  __device__ __forceinline__ C log_prob(u32 t, u32 state) const {
    return convert<C>(log_probs[t * at_step + label(state) * at_class]);
  }

  // entered = log_sum of the states from which a state is entered; a row is entered + log_prob. AHEAD: from the first
  // step on; otherwise from the last one, states in the opposite order. keep(t, state, entered, entered + log_prob).
  // Returns the log-probability of all alignments.
  template <bool AHEAD, class Keep>
  __device__ __forceinline__ C recursion(C* both, u32 stride, const Keep& keep) const {
    const auto step_of = [&](u32 i) { return AHEAD ? i : steps - 1 - i; };
    const auto state_of = [&](u32 m) { return AHEAD ? m : states - 1 - m; };
    C fetched = threadIdx.x < states && steps ? log_prob(step_of(0), state_of(threadIdx.x)) : C(0);
    for (u32 i = 0; i < steps; ++i) {
      const C* const from = both + (i & 1) * stride;
      C* const to = both + (~i & 1) * stride;
      const C own = fetched;
      if (threadIdx.x < states && i + 1 < steps) fetched = log_prob(step_of(i + 1), state_of(threadIdx.x));
      for (u32 m = threadIdx.x; m < states; m += THREADS) {
        const u32 state = state_of(m);
        C entered = m < 2 ? C(0) : minus_infinity<C>();
        if (i > 0) {
          const bool skips = (m & 1) && m > 1 && label(state) != label(AHEAD ? state - 2 : state + 2);
          const C before = m > 0 ? from[m - 1] : minus_infinity<C>();
          entered = log_sum(from[m], before, skips ? from[m - 2] : minus_infinity<C>());
        }
        const C alpha = entered + (m == threadIdx.x ? own : log_prob(step_of(i), state));
        to[m] = alpha;
        keep(step_of(i), state, entered, alpha);
      }
      __syncthreads();
    }
    const C* const last = both + (steps & 1) * stride;
    C total = states == 1 ? C(0) : minus_infinity<C>();
    const C none = minus_infinity<C>();
    if (steps) total = log_sum(last[states - 1], states > 1 ? last[states - 2] : none, none);
    __syncthreads();
    return total;
  }
};

template <class C> __device__ __forceinline__ C* rows_of(C (&held)[2 * HELD], C* rows, u32 stride) {
  return stride <= HELD ? held : rows + i64(blockIdx.x) * 2 * stride;
}

// `losses`: one per sequence, or null; `partial`: the sum of this CTA's, if not null. `mean`: divided by max(size, 1).
template <class T, class C, class L, class N>
__global__ void __launch_bounds__(THREADS, 1) ctc_loss(Batch batch, const T* log_probs, const L* targets,
    const N* input_lengths, const N* target_lengths, bool zero_infinity, bool mean,
    C* rows, i32* status, C* losses, i64 loss_step, C* partial) {
  __shared__ C held[2 * HELD];
  const u32 stride = 2 * batch.most + 1;
  C sum = 0;
  for (u32 n = blockIdx.x; n < batch.count; n += gridDim.x) {
    Sequence<T, C, L, N> sequence(batch, n, log_probs, targets, input_lengths, target_lengths);
    sequence.check(batch.classes);
    C loss = not_a_number<C>();
    if (!sequence.wrong)
      loss = -sequence.template recursion<true>(rows_of(held, rows, stride), stride, [](u32, u32, C, C) {});
    else if (status && threadIdx.x == 0) atomicOr(status, 1);
    if (zero_infinity && loss == -minus_infinity<C>()) loss = 0;
    if (mean) loss /= C(max(sequence.size, 1u));
    if (losses && threadIdx.x == 0) losses[n * loss_step] = loss;
    sum += loss;
  }
  if (partial && threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// posteriors[n][t][state] = P(state at step t | labels), links[n][j]: the next label that equals j, and in the top bit
// whether one ahead does; losses[n], infinite below for what is wrong.
template <class T, class C, class L, class N>
__global__ void __launch_bounds__(THREADS, 1) ctc_posteriors(Batch batch, const T* log_probs, const L* targets,
    const N* input_lengths, const N* target_lengths, C* rows, i32* status,
    C* posteriors, u32* links, C* losses) {
  __shared__ C held[2 * HELD];
  const u32 stride = 2 * batch.most + 1;
  C* const both = rows_of(held, rows, stride);
  for (u32 n = blockIdx.x; n < batch.count; n += gridDim.x) {
    Sequence<T, C, L, N> sequence(batch, n, log_probs, targets, input_lengths, target_lengths);
    sequence.check(batch.classes);
    if (sequence.wrong) {
      if (status && threadIdx.x == 0) atomicOr(status, 1);
      if (threadIdx.x == 0) losses[n] = minus_infinity<C>();
      continue;
    }
    for (u32 j = threadIdx.x; j < sequence.size; j += THREADS) {
      const i64 own = sequence.label(2 * j + 1);
      u32 next = j + 1, ahead = 0;
      while (next < sequence.size && sequence.label(2 * next + 1) != own) ++next;
      while (ahead < j && sequence.label(2 * ahead + 1) != own) ++ahead;
      links[i64(n) * batch.most + j] = next | (ahead < j ? 1u << 31 : 0);
    }
    C* const of_sequence = posteriors + i64(n) * batch.steps * stride;
    const C total = sequence.template recursion<true>(both, stride, [&](u32 t, u32 state, C, C alpha) {
      of_sequence[i64(t) * stride + state] = alpha;
    });
    if (threadIdx.x == 0) losses[n] = -total;
    if (total == minus_infinity<C>()) continue;
    sequence.template recursion<false>(both, stride, [&](u32 t, u32 state, C entered, C) {
      C& posterior = of_sequence[i64(t) * stride + state];
      posterior = ::exp((posterior + entered) - total);
    });
  }
}

// The gradient of a step of a sequence: -g times the sum of the posteriors of each class's states.
template <class T, class C, class L, class N>
__global__ void __launch_bounds__(THREADS, 1) ctc_gradient(Batch batch, const T* log_probs, const L* targets,
    const N* input_lengths, const N* target_lengths, bool zero_infinity, bool mean,
    C scale, const C* grad, i64 grad_step, const C* posteriors, const u32* links, const C* losses, T* slope,
    i64 slope_step,
    i64 slope_sequence, i64 slope_class) {
  const u32 n = blockIdx.x % batch.count, t = blockIdx.x / batch.count;
  const Sequence<T, C, L, N> sequence(batch, n, log_probs, targets, input_lengths, target_lengths);
  const C loss = losses[n], infinity = -minus_infinity<C>();
  T* const slopes = slope + t * slope_step + n * slope_sequence;
  const bool outside = t >= sequence.steps && loss != -infinity;
  const bool unknown = !outside && !(loss < infinity && loss > -infinity) && !(zero_infinity && loss == infinity);
  const T rest = convert<T>(unknown ? not_a_number<C>() : C(0));
  for (u32 label = threadIdx.x; label < batch.classes; label += THREADS) slopes[label * slope_class] = rest;
  if (outside || unknown || loss == infinity) return;
  const C g = grad[n * grad_step] * scale / C(mean ? max(sequence.size, 1u) : 1);
  const C* const posterior = posteriors + (i64(n) * batch.steps + t) * (2 * batch.most + 1);

  // 1. the blank
  C sum = 0;
  for (u32 state = threadIdx.x; state < sequence.states; state += THREADS)
    if (sequence.label(state) == batch.blank) sum += posterior[state];
  sum = rows::sum<THREADS>(sum);  // a barrier: the classes are written
  if (threadIdx.x == 0) slopes[batch.blank * slope_class] = convert<T>(-(g * sum));

  // 2. labels, each where it first occurs
  for (u32 j = threadIdx.x; j < sequence.size; j += THREADS) {
    const i64 label = sequence.label(2 * j + 1);
    u32 link = links[i64(n) * batch.most + j];
    if (link >> 31 || label == batch.blank) continue;
    C of_label = posterior[2 * j + 1];
    for (u32 next = link; next < sequence.size; next = links[i64(n) * batch.most + next] & ~(1u << 31))
      of_label += posterior[2 * next + 1];
    slopes[label * slope_class] = convert<T>(-(g * of_label));
  }
}
