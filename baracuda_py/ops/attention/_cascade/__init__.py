"""Attention over a shared prefix: its parts, which are plans of their own, and what these promise together."""
