// Products of a warp's int4 weights and tokens, slab after slab, without a gap between them: while the products of one step of 16 of
// K are under way, the weights of the next are unpacked and its tokens on their way, those of the next slab among them.
//
// A group's sums are multiplied by its scales between the first products of the next group. Registers: two sets of sums of
// 4 STRIPS TILES each, 8 TILES of tokens, 4 STRIPS of words and 8 of weights: 15 tiles are what 255 hold. A slab of STRIPS TILES has
// 8 STRIPS TILES products, 72 STRIPS instructions of unpacking, 4 STRIPS TILES of scales a group, and about 100 others, most of them
// of copies. Two warps of a scheduler hide little of what stops one of them: there is no branch within a slab, and what is read or
// copied is spread over the products.
#pragma once
#include "quantized/int4_fragment.cuh"

namespace nibbles {

// TILES of 8 tokens are the warp's.
template <class Slab, int TILES> struct Pipeline {
  using T = typename Slab::Element;
  using S = typename Slab::Scale;
  static constexpr int STRIPS = Slab::STRIPS, STEPS = Slab::DEPTH / 16, OF_GROUP = STEPS / Slab::GROUPS;
  static constexpr int AHEAD = OF_GROUP > 2 ? 2 : 1, READ = STEPS - AHEAD;  // steps that tokens come ahead; that which reads the next slab

  float acc[STRIPS][TILES][4] = {}, sum[STRIPS][TILES][4] = {};
  u32 words[STRIPS][4], a[2][4], b[2][TILES][4], scale[STRIPS] = {}, zero[STRIPS];

  // A strip's words from step `step` on, four steps' (and zero points, where a group begins), and tokens, two steps'.
  __device__ __forceinline__ void load_words(int step, int s, u32 weights, u32 lane) {
    if (step % 4 == 0) load_quad(words[s], weights + (s * 2 + step / 4) * 512 + lane * 16);
    if (step % OF_GROUP == 0) zero[s] = Slab::zeros_of(weights, step / OF_GROUP, s, lane);
  }
  __device__ __forceinline__ void load_tokens(int step, int tile, u32 tokens, u32 lane) {
    if (step % 2 == 0) load_quad(b[step / 2 % 2][tile], tokens + (step / 2 * Slab::TOKENS + tile * 8) * 64 + lane * 16);
  }
  // Fragments are of strips in turn.
  __device__ __forceinline__ void unpack(int step, int s) {
    const Unpack<T> unpacked(zero[s] & 255, zero[s] >> 8);
    unpacked(a[(step * STRIPS + s) % 2], words[s][step % 4]);
  }
  __device__ __forceinline__ void flush(int s, int tile) {
    const float even = convert<float>(S{u16(scale[s])}), odd = convert<float>(S{u16(scale[s] >> 16)});
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      acc[s][tile][e] = fma(e < 2 ? even : odd, sum[s][tile][e], acc[s][tile][e]);
      sum[s][tile][e] = 0;
    }
  }

  // The first slab's first products are made ready.
  __device__ __forceinline__ void enter(u32 weights, u32 tokens, u32 lane) {
#pragma unroll
    for (int s = 0; s < STRIPS; ++s) load_words(0, s, weights, lane);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) load_tokens(0, tile, tokens, lane);
    unpack(0, 0);
  }

  // acc += scale (codes - zero) x / UNIT of a slab, but for its last group, whose sums wait for the next. `refill` brings a
  // quarter of a slab that is to come, when all warps are past the slab before; `next` is called when the slab is read to its end: it
  // puts the place of the one that follows into `weights` and `tokens`, once it is there, or leaves them where none follows.
  template <class Refill, class Next>
  __device__ __forceinline__ void multiply(u32& weights, u32& tokens, u32 lane, const Refill& refill, const Next& next) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const int then = (step + 1) % STEPS;
      if ((step + STEPS - READ) % OF_GROUP == 0)
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) Slab::load_scale(scale[s], weights, step / OF_GROUP, s, lane);
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

  // The last group's sums.
  __device__ __forceinline__ void leave() {
#pragma unroll
    for (int s = 0; s < STRIPS; ++s)
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) flush(s, tile);
  }
};

}  // namespace nibbles
