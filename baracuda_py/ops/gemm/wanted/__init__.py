"""Problems of matrix products beside the ops' own samples; `baracuda_py.samples.wanted` says which."""
