"""The oracles of GGUF blocks: wide, slow, exact. They share no code with the kernels."""
