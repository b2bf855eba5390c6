"""Softmax of logits with Gumbel noise, and its gradient."""
