// out = sum exp(lse_i - lse) out_i, lse = log sum exp(lse_i): combines split-KV (or other) partial attentions.
//
// Threads:   TEAM (1 or 4) warps per row, 4 warps per CTA; warp w takes parts w, w + TEAM, ...; V columns per lane.
// Order:     part i is added to accumulator i % 4; the four are added in order at the end (through shared memory if
//            they belong to different warps), so that bits depend neither on TEAM nor on parts of weight 0.
// Loads:     IN_FLIGHT parts in flight; parts with lse = -inf are not read.
// Shared:    2 KB.   Bound: DRAM; few rows: latency.
#include "attention/problem.cuh"
#include "attention/softmax.cuh"
#include "ptx/overlap.cuh"
#include "rows/group.cuh"
#include "core/shared.cuh"

using namespace attention;

template <class In, class Out> struct Parts {
  Out* out;
  float* lse;
  const In* outs;
  const float* lses;
  OperandStrides out_strides, lse_strides, outs_strides, lses_strides;
  i64 out_step, lse_step;  // stride from part to part
  u32 heads, rows, count, parts, columns;
};

template <class In, class Out, int V, int TEAM>
__global__ void __launch_bounds__(128, 6) attention_merge(Parts<In, Out> p) {
  constexpr int SUMS = 4 / TEAM, IN_FLIGHT = 8;  // parts in flight
  __shared__ float shared[TEAM > 1 ? 4 * 32 * V : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, member = warp % TEAM;
  const u32 flat = blockIdx.x * (4 / TEAM) + warp / TEAM;
  const bool live = flat < p.count;
  const u32 at = live ? flat : 0, row = at % p.rows, head = at / p.rows % p.heads, batch = at / p.rows / p.heads;
  const In* outs = p.outs + batch * p.outs_strides.batch + head * p.outs_strides.head + row * p.outs_strides.row;
  const float* lses = p.lses + batch * p.lses_strides.batch + head * p.lses_strides.head + row * p.lses_strides.row;
  Out* out = p.out + batch * p.out_strides.batch + head * p.out_strides.head + row * p.out_strides.row;
  overlap::wait();
  overlap::release();

  // 1. loader: IN_FLIGHT parts in flight
  // A part with lse = -inf saw no key and is not read. The first parts arrive during step 2.
  const float none = rows::minus_infinity<float>();
  float seen[IN_FLIGHT];
  Vec<In, V> part[IN_FLIGHT];
  const auto issue_loads = [&](u32 first_part, u32 column) {
#pragma unroll
    for (int a = 0; a < IN_FLIGHT; ++a)
      seen[a] = first_part + a * TEAM < p.parts ? lses[(first_part + a * TEAM) * p.lse_step] : none;
#pragma unroll
    for (int a = 0; a < IN_FLIGHT; ++a) {
      part[a] = {};
      if (seen[a] != none)
        part[a] = *reinterpret_cast<const Vec<In, V>*>(outs + (first_part + a * TEAM) * p.out_step + column);
    }
  };
  if (lane * V < p.columns) issue_loads(member, lane * V);

  // 2. maximum lse, sum of weights
  float most = none, whole = 0.0f;
  for (u32 i = lane; i < p.parts; i += 32) {
    const float lse = lses[i * p.lse_step];
    most = most > lse || most != most ? most : lse;
  }
  most = rows::group_reduce<32>(most, [](float a, float b) { return a > b || a != a ? a : b; });
  const float base = most == none ? 0.0f : most;
  for (u32 i = lane; i < p.parts; i += 32) whole += math::ex2_ftz((lses[i * p.lse_step] - base) * math::LOG2E);
  whole = rows::sum<32>(whole);
  const float division = whole == 0.0f ? 0.0f : 1.0f / whole;
  if (live && p.lse && member == 0 && lane == 0)
    p.lse[batch * p.lse_strides.batch + head * p.lse_strides.head + row * p.lse_strides.row] = whole == 0.0f
        ? none
        : base + ::logf(whole);

  // 3. weighted sum of parts
  for (u32 first = 0; first < p.columns; first += 32 * V) {
    const u32 column = first + lane * V;
    float sums[SUMS][V] = {};
    if (column < p.columns) {
      for (u32 first_part = member; first_part < p.parts; first_part += IN_FLIGHT * TEAM) {
        if (first || first_part != member) issue_loads(first_part, column);
#pragma unroll
        for (int a = 0; a < IN_FLIGHT; ++a) {
          const float weight = math::ex2_ftz((seen[a] - base) * math::LOG2E);
          if (weight == 0.0f) continue;
#pragma unroll
          // a NaN part stays NaN
          for (int v = 0; v < V; ++v) sums[a % SUMS][v] += weight * convert<float>(part[a].at[v]);
        }
      }
    }
    float(&x)[V] = sums[0];
#pragma unroll
    for (int s = 1; s < SUMS; ++s)
#pragma unroll
      for (int v = 0; v < V; ++v) x[v] += sums[s][v];
    if constexpr (TEAM > 1) {
      __syncthreads();
#pragma unroll
      for (int v = 0; v < V; ++v) shared[(warp * V + v) * 32 + lane] = x[v];
      __syncthreads();
#pragma unroll
      for (int v = 0; v < V; ++v) {
        x[v] = shared[(warp / TEAM * TEAM * V + v) * 32 + lane];
#pragma unroll
        for (int w = 1; w < TEAM; ++w) x[v] += shared[((warp / TEAM * TEAM + w) * V + v) * 32 + lane];
      }
    }
    if (!live || member || column >= p.columns) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] *= division;
    *reinterpret_cast<Vec<Out, V>*>(out + column) = round_to<Out>(x);
  }
}
