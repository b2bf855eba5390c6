// Scales of a block: weight = scale(j) * code - least(j) of sub-block j, each rounded to f32 separately.
#pragma once
#include "quantized/gguf/planes.cuh"

namespace gguf {

enum Kind { F16, F32, E8M0 };  // E8M0: half of the power of two 2^(byte - 127)

struct Nothing {};
template <Kind KIND, int AT> struct Float {
  template <int ALIGN> static __device__ __forceinline__ float read(const u8* block) {
    if constexpr (KIND == F16) return convert<float>(f16{u16(half_word<ALIGN_AT<ALIGN, AT>>(block + AT))});
    else if constexpr (KIND == F32) return __uint_as_float(word<ALIGN_AT<ALIGN, AT>>(block + AT));
    else return __uint_as_float(block[AT] < 2 ? 0x00200000u << block[AT] : (block[AT] - 1u) << 23);
  }
};

// One scale for the block.
template <class D> struct Whole {
  static constexpr bool LEAST = false;
  template <int ALIGN> struct Of {
    float d;
    __device__ __forceinline__ explicit Of(const u8* block) : d(D::template read<ALIGN>(block)) {}
    __device__ __forceinline__ float scale(u32) const { return d; }
    __device__ __forceinline__ float least(u32) const { return 0; }
  };
};

// One scale and one offset (added) for the block.
template <class D, class M> struct WholeAndSum {
  static constexpr bool LEAST = true;
  template <int ALIGN> struct Of {
    float d, m;
    __device__ __forceinline__ explicit Of(const u8* block)
        : d(D::template read<ALIGN>(block)), m(M::template read<ALIGN>(block)) {}
    __device__ __forceinline__ float scale(u32) const { return d; }
    __device__ __forceinline__ float least(u32) const { return -m; }
  };
};

// Integer scales of sub-blocks, then integer minima, in bit planes. `j` may be a run-time index.
template <int LESS, bool SIGNED, class... Planes> struct Integers {
  template <int ALIGN> struct Of {
    const u8* block;
    __device__ __forceinline__ explicit Of(const u8* from) : block(from) {}
    __device__ __forceinline__ int at(u32 j) const {
      const u32 x = Stack<Planes...>::one(block, j);
      return SIGNED ? int(i8(x)) : int(x) - LESS;
    }
    template <int SUBS> __device__ __forceinline__ int scale(u32 j) const { return at(j); }
    template <int SUBS> __device__ __forceinline__ int least(u32 j) const { return at(SUBS + j); }
  };
};

// Eight 6-bit scales and eight 6-bit minima in twelve bytes: the first four of each are the low bits of bytes 0 to 7;
// the others have their low bits in bytes 8 to 11 and their two high bits in the top bits of bytes 0 to 7.
template <int AT> struct SixBits {
  template <int ALIGN> struct Of {
    u32 scales[2], minima[2];
    __device__ __forceinline__ explicit Of(const u8* block) {
      u32 w[3];
#pragma unroll
      for (int i = 0; i < 3; ++i) w[i] = word<ALIGN_AT<ALIGN, AT>>(block + AT + 4 * i);
      scales[0] = w[0] & 0x3f3f3f3fu;
      minima[0] = w[1] & 0x3f3f3f3fu;
      scales[1] = (w[2] & 0x0f0f0f0fu) | (w[0] >> 2 & 0x30303030u);
      minima[1] = (w[2] >> 4 & 0x0f0f0f0fu) | (w[1] >> 2 & 0x30303030u);
    }
    static __device__ __forceinline__ int at(const u32 (&of)[2], u32 j) {
      return int((j < 4 ? of[0] : of[1]) >> (j % 4 * 8) & 0xff);
    }
    template <int> __device__ __forceinline__ int scale(u32 j) const { return at(scales, j); }
    template <int> __device__ __forceinline__ int least(u32 j) const { return at(minima, j); }
  };
  // Scales and minima of sub-blocks t and t + 4, t < 4, times 2^-24: the integers are read as f16 subnormals, without a
  // conversion.
  template <int ALIGN>
  static __device__ __forceinline__ void two(float (&scale)[2], float (&least)[2], const u8* block, u32 t) {
    u32 w[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) w[i] = word<ALIGN_AT<ALIGN, AT>>(block + AT + 4 * i);
    const u32 select = t * 0x0101u + 0x0400u;
    const u32 ends = __byte_perm(w[0], w[1], select), last = __byte_perm(w[2], w[2] >> 4, select);
    const u32 pairs[2] = {ends & 0x003f003fu, (last & 0x000f000fu) | (ends >> 2 & 0x00300030u)};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      scale[e] = convert<float>(f16{u16(pairs[e])});
      least[e] = convert<float>(f16{u16(pairs[e] >> 16)});
    }
  }
};

// scale(j) = d * integer(j), and least(j) = m * integer(SUBS + j) if the format has minima.
template <class D, class M, class Ints, int SUBS> struct Each {
  static constexpr bool LEAST = !Same<M, Nothing>::value;
  template <int ALIGN> struct Of {
    typename Ints::template Of<ALIGN> integers;
    float d, m;
    __device__ __forceinline__ explicit Of(const u8* block) : integers(block), d(D::template read<ALIGN>(block)), m(0) {
      if constexpr (LEAST) m = M::template read<ALIGN>(block);
    }
    __device__ __forceinline__ float scale(u32 j) const {
      return __fmul_rn(d, float(integers.template scale<SUBS>(j)));
    }
    __device__ __forceinline__ float least(u32 j) const {
      if constexpr (LEAST) return __fmul_rn(m, float(integers.template least<SUBS>(j)));
      else return 0;
    }
  };
};

}  // namespace gguf
