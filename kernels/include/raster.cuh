// From a running number to a piece of work: a tile, a matrix of the batch, a part of K. Mirrors _tiles.py.
#pragma once
#include "matrix.cuh"

struct Work {
  u32 m, n;  // tile
  u32 split;
  BatchIndex batch;
};

// Tiles go in bands of `band` rows, down each column of a band before the next, so that the tiles in flight together share
// rows of A and columns of B in L2.
struct Raster {
  u32 rows, cols, band, batches;
  Batch batch;

  __device__ __forceinline__ Work locate(u32 i) const {
    const u32 per_matrix = rows * cols;
    const u32 matrix = i / per_matrix, tile = i - matrix * per_matrix;
    const u32 first = tile / (band * cols) * band, height = min(band, rows - first), within = tile - first * cols;
    const u32 split = matrix / batches;
    return {first + within % height, within / height, split, batch.locate(matrix - split * batches)};
  }
};
