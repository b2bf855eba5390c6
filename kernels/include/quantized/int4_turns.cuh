// Products of a warp's int4 weights and tokens, strip after strip: tokens of a run of K stay in registers while every strip of
// weights passes, so that only one strip has sums of its own beside those of all of K.
//
// A run is 64 of K, or a scale's group where that is shorter. While the products of one step of 16 of K are under way, the weights
// of the next are unpacked; words come a strip ahead, tokens two steps. A strip's sums are multiplied by its scales between the
// first products of the next strip.
// Registers: sums of 4 (STRIPS + 1) TILES, 8 TILES of tokens, 8 of words and 8 of weights. A slab of STRIPS TILES has
// 8 STRIPS TILES products, 72 STRIPS instructions of unpacking, 8 STRIPS TILES of scales (32 / RUN as many), and about 110 others.
#pragma once
#include "quantized/int4_fragment.cuh"

namespace nibbles {

template <bool FIRST, class A, class B> struct Either { using type = A; };
template <class A, class B> struct Either<false, A, B> { using type = B; };

// TILES of 8 tokens are the warp's.
template <class Slab, int TILES> struct Turns {
  using T = typename Slab::Element;
  using S = typename Slab::Scale;
  static constexpr int STRIPS = Slab::STRIPS, STEPS = Slab::DEPTH / 16, OF_GROUP = STEPS / Slab::GROUPS;
  static constexpr int RUN = OF_GROUP < 4 ? OF_GROUP : 4, ASKED = RUN / 2 - 1;  // steps; that which asks for the next strip's words

  float acc[STRIPS][TILES][4] = {}, sum[TILES][4] = {};
  u32 words[2][RUN], zero[2], a[2][4], b[2][TILES][4], scale = 0;  // two strips', steps' and pairs of steps'

  // Of the run that begins with step `step`: the words and zero points of a strip, the how manieth of all is even or odd.
  __device__ __forceinline__ void load_words(int odd, int step, int s, u32 weights, u32 lane) {
    const u32 from = weights + (s * 2 + step / 4) * 512 + lane * 16;
    if constexpr (RUN == 4)
      load_quad(words[odd], from);
    else
      load_couple(words[odd], from + step % 4 * 4);
    zero[odd] = Slab::zeros_of(weights, step / OF_GROUP, s, lane);
  }
  // Tokens of two steps.
  __device__ __forceinline__ void load_tokens(int step, int tile, u32 tokens, u32 lane) {
    load_quad(b[step / 2 % 2][tile], tokens + (step / 2 * Slab::TOKENS + tile * 8) * 64 + lane * 16);
  }
  __device__ __forceinline__ void unpack(int odd, int step) {
    const Unpack<T> unpacked(zero[odd] & 255, zero[odd] >> 8);
    unpacked(a[step % 2], words[odd][step % RUN]);
  }
  __device__ __forceinline__ void flush(int s, int tile) {
    const float even = convert<float>(S{u16(scale)}), odd = convert<float>(S{u16(scale >> 16)});
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      acc[s][tile][e] = fma(e < 2 ? even : odd, sum[tile][e], acc[s][tile][e]);
      sum[tile][e] = 0;
    }
  }

  // The first slab's first products are made ready.
  __device__ __forceinline__ void enter(u32 weights, u32 tokens, u32 lane) {
    load_words(0, 0, 0, weights, lane);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) load_tokens(0, tile, tokens, lane);
    unpack(0, 0);
  }

  // acc += scale (codes - zero) x / UNIT of a slab, but for its last strip's last run, whose sums wait for the next slab. `refill`
  // is called when all warps are past the slab before; `next` when the slab is read to its end: it puts the place of the one that
  // follows into `weights` and `tokens`, once it is there.
  template <class Refill, class Next>
  __device__ __forceinline__ void multiply(u32& weights, u32& tokens, u32 lane, const Refill& refill, const Next& next) {
#pragma unroll
    for (int first = 0; first < STEPS; first += RUN)
#pragma unroll
      for (int s = 0; s < STRIPS; ++s) {
        const bool ends = s + 1 == STRIPS;
        const int odd = (first / RUN * STRIPS + s) % 2;
        const int then = ends ? (first + RUN) % STEPS : first;  // the next strip's run
        u32 coming;
        Slab::load_scale(coming, weights, first / OF_GROUP, s, lane);
#pragma unroll
        for (int within = 0; within < RUN; ++within) {
          const int step = first + within;
          if (const int past = (first / RUN * STRIPS + s) * RUN + within; past > 0 && past < 5) refill(past - 1, 4);
          if (ends && first + RUN == STEPS && within == ASKED) next();
          if (within == ASKED) load_words(1 - odd, then, (s + 1) % STRIPS, weights, lane);
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
            if (RUN == 4 && s == 0 && within == 0) load_tokens(step + 2, tile, tokens, lane);
            if (ends && within == RUN - 2) load_tokens(then, tile, tokens, lane);
            if (within == 0) flush(s ? s - 1 : STRIPS - 1, tile);
            Mma<T>::run(sum[tile], a[step % 2], b[step / 2 % 2][tile] + step % 2 * 2);
          }
          if (within == 0) scale = coming;
          if (within + 1 < RUN)
            unpack(odd, step + 1);
          else
            unpack(1 - odd, 0);
        }
      }
  }

  // The last strip's sums.
  __device__ __forceinline__ void leave() {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) flush(STRIPS - 1, tile);
  }
};

}  // namespace nibbles
