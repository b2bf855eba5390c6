"""Norms along rows, and their gradients."""
