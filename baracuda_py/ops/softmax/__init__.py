"""Softmax and its kin along an axis, and their gradients."""
