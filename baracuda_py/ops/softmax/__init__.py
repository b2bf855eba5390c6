"""Softmax and log-softmax along an axis, softmax of scaled and masked rows, and their gradients."""
