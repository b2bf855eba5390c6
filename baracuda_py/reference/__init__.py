"""The NumPy oracle: wide, slow, exact. It shares no code with the kernels and knows only `types`."""
