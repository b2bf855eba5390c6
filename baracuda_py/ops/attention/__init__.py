"""Attention of whole sequences or ragged ones, its gradients, and decoding against caches, dense or in pages.

Grouped heads, windows, masks, softcap, ALiBi, sinks; caches of f16, bf16, fp8 or int8.
"""
