"""Statistics of rows in a graph: reductions whose results later elementwise ops take, in the same kernel."""
