// Rows of x, of the sorted values and of their indices, in any layout.
#pragma once
#include "core/index.cuh"
#include "sort/source.cuh"

namespace sort {

enum Operand { X, VALUES, INDICES };

// Axes of the rows, and byte strides along the row, of x, values and indices.
template <class I, int R> struct Lines {
  Dims<I, R, 3> dims;
  i64 step[3];
};

// The results of one row. Without HAS_VALUES there are indices alone.
template <class T, class Index, bool HAS_VALUES> struct Results {
  using Word = typename Order<T>::Word;
  u8* values;
  u8* indices;
  i64 value_step, index_step;

  template <class I, int R>
  __device__ __forceinline__ Results(u8* values, u8* indices, const i64 (&offset)[3], const Lines<I, R>& lines)
      : values(values + offset[VALUES]), indices(indices + offset[INDICES]), value_step(lines.step[VALUES]),
        index_step(lines.step[INDICES]) {}
  __device__ __forceinline__ void put(u32 slot, Word word, u32 place) const {
    if constexpr (HAS_VALUES) *reinterpret_cast<Word*>(values + slot * value_step) = word;
    *reinterpret_cast<Index*>(indices + slot * index_step) = Index(place);
  }
};

}  // namespace sort
