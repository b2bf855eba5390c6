"""Norms and gates whose results are 8-bit codes with scales."""
