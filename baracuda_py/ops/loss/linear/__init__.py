"""Cross entropy of a linear layer's logits, which are never stored as a whole."""
