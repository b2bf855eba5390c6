// Tile swizzle: maps a linear tile index to a tile of a matrix of the batch.
#pragma once
#include "core/matrix.cuh"

struct Work {
  u32 m, n;  // tile
  BatchIndex batch;
};

// Grouped tile order: groups of `group_m` tile rows, column-major within a group, so that concurrent tiles share
// rows of A and columns of B in L2.
struct Raster {
  u32 rows, cols, group_m;  // tiles; wgmma.cu counts the stacked tiles of a multicast cluster as one
  u32 begin, end;  // linear tile range
  Batch batch;

  __device__ __forceinline__ Work locate(u32 i) const {
    const u32 per_matrix = rows * cols;
    const u32 matrix = i / per_matrix, tile = i - matrix * per_matrix;
    const u32 first = tile / (group_m * cols) * group_m, height = min(group_m, rows - first),
              within = tile - first * cols;
    return {first + within % height, within / height, batch.locate(matrix)};
  }
};
