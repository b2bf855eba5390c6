"""Gradients of reductions with two results."""
