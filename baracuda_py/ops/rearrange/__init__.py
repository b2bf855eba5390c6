"""Elements of arrays at other places: rolled, flipped, padded, tiled, repeated, joined; triangles of matrices."""
