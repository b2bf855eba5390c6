"""Attention of e4m3 queries, keys and values with scales per head, on Hopper's 8-bit tensor cores; forward only."""
