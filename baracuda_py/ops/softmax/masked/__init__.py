"""Softmax of scaled and masked rows, and its gradient."""
