"""Optimizers: steps of arrays of parameters and of lists of them, in place."""
