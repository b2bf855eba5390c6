// A block format of GGUF files, as the table in baracuda_py/types/gguf.py spells it.
#pragma once
#include "quantized/gguf/codes.cuh"
#include "quantized/gguf/scales.cuh"

namespace gguf {

// BYTES hold WEIGHTS weights, of which SUB share a scale: weight = scale * (code - LESS) - least.
template <int WEIGHTS_, int BYTES_, int SUB_, class Codes_, class Scales_> struct Format {
  static constexpr int WEIGHTS = WEIGHTS_, BYTES = BYTES_, SUB = SUB_, LESS = Codes_::LESS;
  static constexpr bool SIGNED = Codes_::SIGNED, LEAST = Scales_::LEAST;
  using Codes = Codes_;
  template <int ALIGN> using Scales = typename Scales_::template Of<ALIGN>;
};

}  // namespace gguf
