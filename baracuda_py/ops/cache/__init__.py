"""Caches of keys and values in pages: what is appended to them, and pages that are moved."""
