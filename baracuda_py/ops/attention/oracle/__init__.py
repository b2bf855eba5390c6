"""The oracles of attention: wide, slow, exact. They share no code with the kernels."""
