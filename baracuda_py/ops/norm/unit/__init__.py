"""Vectors along axes divided by their lengths, and the gradients."""
