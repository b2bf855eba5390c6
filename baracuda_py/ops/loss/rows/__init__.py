"""Losses whose value is a function of sums along a row, and their gradients."""
