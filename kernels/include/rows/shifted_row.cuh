// A resident row that starts at any address: vectors of V columns, counted from the row's start, in registers.
//
// Mapping:  LANES threads per row; a group of WIDTH adjacent lanes (a warp, or LANES of one) has ITEMS * WIDTH adjacent
//           vectors, lane l the vectors l, l + WIDTH, ... of these. So the alignment does not change the order of sums.
// Loads:    each lane loads the aligned 16-byte words at its vectors, all in flight; a vector is funnel shifted from
//           its word and the next one, which the next lane holds (4 shuffles). Lane 0 loads one more word, behind the
//           vectors of its group. The two words that exceed the row are loaded by elements, one per lane.
// Stores:   aligned 16-byte words, shifted from a vector and the next lane's; by elements at the two ends of the row
//           and of a group's columns. No byte outside of the row is read or written.
// In place: a group reads a word of the next group's columns, so results are stored behind a barrier of the row.
#pragma once
#include "rows/words.cuh"

namespace rows {

template <class T, int V, int ITEMS, int LANES> struct ShiftedRow {
  static_assert(V * sizeof(T) == 16 && (sizeof(T) == 4 || sizeof(T) == 2) && LANES >= 2 * V);
  static constexpr u32 WIDTH = LANES < 32 ? LANES : 32;
  using Vector = Held<T, V>;
  using Vectors = Vector[ITEMS];
  u32 length, lane, first;  // first: the thread's first vector

  // All threads of a warp take part in every call; those without a row have length 0.
  __device__ __forceinline__ ShiftedRow(u32 length)
      : length(length), lane(threadIdx.x % WIDTH), first(threadIdx.x % LANES / WIDTH * (ITEMS * WIDTH) + lane) {}

  __device__ __forceinline__ u32 column(int i) const { return (first + i * WIDTH) * V; }

  // The loaded words of a row.
  struct Words {
    u32 late, tail;  // elements of the first word ahead of the row; the word that has the row's end
    u32 element;     // of one of the two words that exceed the row
    uint4 word[ITEMS + 1];
  };
  // Loads the words of a row, elements past its end are `none`. Several rows may be in flight.
  __device__ __forceinline__ Words fetch(const T* from, T none) const {
    Words of;
    const u32 late = of.late = u32(reinterpret_cast<u64>(from)) % 16 / u32(sizeof(T));
    const T* const words = from - late;
    const u32 end = length + late, tail = of.tail = end / V;
    const u32 filled = sizeof(T) == 4 ? bits_of(&none) : bits_of(&none) * 0x10001;
#pragma unroll
    for (int i = 0; i <= ITEMS; ++i) {
      const u32 begin = column(i);
      of.word[i] = make_uint4(filled, filled, filled, filled);
      if ((i < ITEMS || (lane == 0 && late)) && begin >= late && begin + V <= end)
        of.word[i] = *reinterpret_cast<const uint4*>(words + begin);
    }
    const u32 index = lane < V ? lane : tail * V + lane - V;
    of.element = bits_of(&none);
    if ((lane < V ? starts(of) : ends(of) && lane < 2 * V) && index >= late && index < end)
      of.element = bits_of(words + index);
#pragma unroll
    for (int i = 0; i <= ITEMS; ++i)
      asm volatile("" : "+r"(of.word[i].x), "+r"(of.word[i].y), "+r"(of.word[i].z), "+r"(of.word[i].w));
    asm volatile("" : "+r"(of.element));
    return of;
  }
  // The vectors of a row.
  __device__ __forceinline__ void shift(Words& of, Vectors& vectors) const {
    __syncwarp();  // no instruction: no load is moved behind it
    if (WIDTH < 32 || starts(of) || ends(of)) {
      if constexpr (sizeof(T) == 2) of.element |= __shfl_down_sync(~0u, of.element, 1, WIDTH) << 16;
      const uint4 head = gathered(of.element, 0), last = gathered(of.element, V);
#pragma unroll
      for (int i = 0; i <= ITEMS; ++i)
        if (first + i * WIDTH == of.tail) of.word[i] = last;
      if (starts(of) && lane == 0) of.word[0] = head;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      Both both;
      both.word = of_two(of.word[i], of.word[i + 1], of.late);
      vectors[i] = both.vector;
    }
  }

  // Stores the vectors of a row.
  __device__ __forceinline__ void store(const Vectors& vectors, T* to) const {
    const u32 ahead = (16 - u32(reinterpret_cast<u64>(to)) % 16) % 16 / u32(sizeof(T));  // elements to the next word
    Both own, later, partial;
    own.vector = vectors[0], partial.word = own.word;
    const uint4 begins = own.word;
    u32 at = 0, count = 0;  // of the word that is not whole
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      own.vector = vectors[i], later.vector = vectors[i + 1 < ITEMS ? i + 1 : i];
      own.word = of_two(own.word, later.word, ahead);
      const u32 begin = column(i) + ahead;
      const u32 known = i == ITEMS - 1 && lane == WIDTH - 1 ? V - ahead : V;  // the next group has the others
      const u32 held = begin < length ? min(known, length - begin) : 0;
      if (held == V) *reinterpret_cast<uint4*>(to + begin) = own.word;
      else if (held > 0) partial.word = own.word, at = begin, count = held;
    }
    own.word = begins;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v < count) to[at + v] = partial.at[v];
      if (lane == 0 && v < ahead && column(0) + v < length) to[column(0) + v] = own.at[v];
    }
  }

 private:
  union Both {
    uint4 word;
    Vector vector;
    T at[V];
    __device__ Both() {}
  };
  // Whether the group has the row's first word, or that of its end, and these are not whole.
  __device__ __forceinline__ bool starts(const Words& of) const { return first == lane && of.late; }
  __device__ __forceinline__ bool ends(const Words& of) const {
    return of.tail >= first - lane && of.tail <= first - lane + ITEMS * WIDTH;
  }
  static __device__ __forceinline__ u32 bits_of(const T* from) {
    if constexpr (sizeof(T) == 4) return *reinterpret_cast<const u32*>(from);
    else return *reinterpret_cast<const u16*>(from);
  }
  // The word whose elements V lanes from `lane` on hold, those of 16 bits by pairs.
  static __device__ __forceinline__ uint4 gathered(u32 element, u32 lane) {
    constexpr u32 STEP = V / 4;
    return make_uint4(__shfl_sync(~0u, element, lane, WIDTH), __shfl_sync(~0u, element, lane + STEP, WIDTH),
        __shfl_sync(~0u, element, lane + 2 * STEP, WIDTH), __shfl_sync(~0u, element, lane + 3 * STEP, WIDTH));
  }
  // V elements from the one at `skipped` of a word and the next lane's; `later`: the word behind the last lane's, which
  // lane 0 holds.
  __device__ __forceinline__ uint4 of_two(const uint4& own, const uint4& later, u32 skipped) const {
    const auto next = [&](u32 mine, u32 behind) { return __shfl_sync(~0u, lane ? mine : behind, lane + 1, WIDTH); };
    const uint4 high =
        make_uint4(next(own.x, later.x), next(own.y, later.y), next(own.z, later.z), next(own.w, later.w));
    return shifted(own, high, skipped * u32(sizeof(T)));
  }
};

}  // namespace rows
