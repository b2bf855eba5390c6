"""Attention: of whole sequences, its gradients, decoding, and caches in pages."""
