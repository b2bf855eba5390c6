"""Softmax and log-softmax along an axis, and their gradients."""
