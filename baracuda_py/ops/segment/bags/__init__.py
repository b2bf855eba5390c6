"""Reductions of bags of a table's rows, which ids name, and their gradients."""
