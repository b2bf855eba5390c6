"""Gradients of elementwise functions: each follows from the expressions in its row."""
