// Software-pipelined mma loop of int4 weights: during the mmas of one step (16 of K), the next step's weights are
// unpacked and its tokens loaded, across k_block boundaries.
//
// A group's accumulators are scaled between the first mmas of the next group (flush). Registers: two accumulator sets
// of 4 STRIPS TILES, 8 TILES of tokens, 4 STRIPS of codes, 8 of fragments; 255 registers hold 15 tiles. A k_block has 8
// STRIPS TILES mmas, 72 STRIPS unpack instructions, 4 STRIPS TILES FMAs per group, and about 100 others, mostly copies.
// With two warps per scheduler stalls are hardly hidden: there is no branch inside a k_block, and loads and copies are
// spread between the mmas.
#pragma once
#include "quantized/int4_fragment.cuh"

namespace nibbles {

// TILES: the warp's tiles of 8 tokens.
template <class StageLayout, int TILES> struct Pipeline {
  using T = typename StageLayout::Element;
  using S = typename StageLayout::Scale;
  static constexpr int STRIPS = StageLayout::STRIPS, STEPS = StageLayout::DEPTH / 16,
                       OF_GROUP = STEPS / StageLayout::GROUPS;
  // token prefetch distance; step that opens the next stage
  static constexpr int AHEAD = OF_GROUP > 2 ? 2 : 1, READ = STEPS - AHEAD;

  float acc[STRIPS][TILES][4] = {}, sum[STRIPS][TILES][4] = {};
  u32 words[STRIPS][4], a[2][4], b[2][TILES][4], scale[STRIPS] = {}, zero[STRIPS];

  // Loads a strip's codes of four steps (and its zero points, at a group's first step), and a tile's tokens of two
  // steps.
  __device__ __forceinline__ void load_words(int step, int s, u32 weights, u32 lane) {
    if (step % 4 == 0) load_quad(words[s], weights + (s * 2 + step / 4) * 512 + lane * 16);
    if (step % OF_GROUP == 0) zero[s] = StageLayout::zeros_of(weights, step / OF_GROUP, s, lane);
  }
  __device__ __forceinline__ void load_tokens(int step, int tile, u32 tokens, u32 lane) {
    if (step % 2 == 0)
      load_quad(b[step / 2 % 2][tile], tokens + (step / 2 * StageLayout::TOKENS + tile * 8) * 64 + lane * 16);
  }
  // Unpacks the A fragment of strip s; two buffers alternate from strip to strip.
  __device__ __forceinline__ void unpack(int step, int s) {
    const Unpack<T> unpacked(zero[s] & 255, zero[s] >> 8);
    unpacked(a[(step * STRIPS + s) % 2], words[s][step % 4]);
  }
  // acc += scale * sum, then sum = 0.
  __device__ __forceinline__ void flush(int s, int tile) {
    const float even = convert<float>(S{u16(scale[s])}), odd = convert<float>(S{u16(scale[s] >> 16)});
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      acc[s][tile][e] = fma(e < 2 ? even : odd, sum[s][tile][e], acc[s][tile][e]);
      sum[s][tile][e] = 0;
    }
  }

  // Prologue: loads and unpacks the operands of the first step.
  __device__ __forceinline__ void prologue(u32 weights, u32 tokens, u32 lane) {
#pragma unroll
    for (int s = 0; s < STRIPS; ++s) load_words(0, s, weights, lane);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) load_tokens(0, tile, tokens, lane);
    unpack(0, 0);
  }

  // acc += scale (codes - zero) x / UNIT over one k_block; its last group is flushed during the next k_block. `refill`
  // issues a quarter of a later k_block's copies, once all warps have left the stage they overwrite. `next` is called
  // when the stage has been read: it waits for the next stage and sets `weights` and `tokens` to it, or keeps them if
  // there is none.
  template <class Refill, class Next>
  __device__ __forceinline__ void multiply(
      u32& weights, u32& tokens, u32 lane, const Refill& refill, const Next& next) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const int then = (step + 1) % STEPS;
      if ((step + STEPS - READ) % OF_GROUP == 0)
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) StageLayout::load_scale(scale[s], weights, step / OF_GROUP, s, lane);
      if (step > 0 && step < 5) refill(step - 1, 4);
      if (step == READ) next();
#pragma unroll
      for (int s = 0; s < STRIPS; ++s) {
        load_words(then, s, weights, lane);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          if (s == 0) load_tokens((step + AHEAD) % STEPS, tile, tokens, lane);
          if (step % OF_GROUP == 0) flush(s, tile);
          Mma<T>::run(sum[s][tile], a[(step * STRIPS + s) % 2], b[step / 2 % 2][tile] + step % 2 * 2);
        }
        if (s + 1 < STRIPS) unpack(step, s + 1);
        else unpack(then, 0);
      }
    }
  }

  // Epilogue: flushes the last group.
  __device__ __forceinline__ void drain() {
#pragma unroll
    for (int s = 0; s < STRIPS; ++s)
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) flush(s, tile);
  }
};

}  // namespace nibbles
