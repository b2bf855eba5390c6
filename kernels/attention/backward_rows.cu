// stats = (lse, delta) with delta = rowsum(dO * O); grad_sinks = -sum min(exp(sink - lse), 1) delta.
//
// Threads:   stats: LANES threads per row, V columns per access. Sinks: one CTA of 256 threads per head; rows strided
//            by thread, then a fixed-order CTA reduction.
// Shared:    sinks: 64 bytes.   Bound: DRAM.
#include "attention/gradients.cuh"
#include "rows/group.cuh"

using namespace attention;

template <class T, class C, int V, int LANES>
__global__ void __launch_bounds__(256) attention_stats(Problem<T, T, C> p, Gradients<T, C> g, u32 tiles) {
  constexpr int ROWS = 256 / LANES;
  const int line = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const Place<Problem<T, T, C>> place(p, blockIdx.x / tiles);
  const Head<T, T, C> head(p, place.batch, place.head);
  const QueryGradients<T, C> own(p, g, place.batch, place.head);
  // one iteration, unless a sequence exceeds max_seqlen_q
  for (int first = blockIdx.x % tiles * ROWS; u32(first) < u32(head.rows); first += tiles * ROWS) {
    const int row = first + line;
    C sum = 0;
    if (row < head.rows)
      for (int c = lane * V; c < int(p.d_v); c += LANES * V) {
        const auto grad = *reinterpret_cast<const Vec<T, V>*>(own.grad + row * g.grad_strides.row + c);
        const auto out = *reinterpret_cast<const Vec<T, V>*>(head.out + row * p.out_strides.row + c);
#pragma unroll
        for (int v = 0; v < V; ++v) sum += convert<C>(grad.at[v]) * convert<C>(out.at[v]);
      }
    sum = rows::sum<LANES>(sum);
    if (row >= head.rows || lane) continue;
    // lse = -inf (a row that sees no key) is stored as +inf, so that its weights are 0
    const C lse = head.lse[row * p.lse_strides.row];
    own.stats[row] = {lse == rows::minus_infinity<C>() ? -lse : lse, sum};
  }
}

// grad_sinks = -sum min(exp(sink - lse), 1) delta over the queries of all sequences. One CTA per head.
template <class T, class C, class S>
__global__ void __launch_bounds__(256)
attention_grad_sinks(Problem<T, T, C> p, Gradients<T, C> g, S* grad_sinks, i64 step, u32 sequences) {
  C sum = 0;
  for (u32 sequence = 0; sequence < sequences; ++sequence) {
    const Head<T, T, C> head(p, sequence, blockIdx.x);
    const QueryGradients<T, C> own(p, g, sequence, blockIdx.x);
    const C sink = sink_of<T, C>(p, head);
#pragma unroll 1
    for (int row = threadIdx.x; row < head.rows; row += 256)
      sum -= weight_of(sink, own.stats[row]) * own.stats[row].at[DELTA];
  }
  sum = rows::sum<256>(sum);
  if (threadIdx.x == 0) grad_sinks[blockIdx.x * step] = convert<S>(sum);
}
