// Scales of 8-bit queries, keys and values: a number times an f32 per head, or per sequence and head. Mirrors
// baracuda_py/ops/attention_fp8/_scales.py.
#pragma once
#include "core/dtype.cuh"

namespace attention_fp8 {

struct Steps { i64 batch, head; };

struct Scales {
  const float *q, *k, *v;  // null: 1
  Steps q_steps, k_steps, v_steps;
  double q_number, k_number, v_number;

  static __device__ __forceinline__ float at(const float* scales, Steps steps, u32 batch, u32 head) {
    return scales ? scales[batch * steps.batch + head * steps.head] : 1.0f;
  }
  // What products of queries and keys are multiplied with; in f64, so that no part of it leaves f32's range.
  __device__ __forceinline__ float of_scores(double scale, u32 batch, u32 head, u32 group) const {
    return float(scale * q_number * k_number * at(q, q_steps, batch, head) * at(k, k_steps, batch, head / group));
  }
  __device__ __forceinline__ float of_values(u32 batch, u32 head, u32 group) const {
    return float(v_number * at(v, v_steps, batch, head / group));
  }
};

}  // namespace attention_fp8
