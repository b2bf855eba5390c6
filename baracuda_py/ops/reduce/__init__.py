"""Reductions over any set of axes."""
