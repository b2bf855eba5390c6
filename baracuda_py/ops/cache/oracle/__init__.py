"""The oracles of appends to caches. They share no code with the kernels."""
