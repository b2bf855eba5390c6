"""Barriers, exchanges within a warp, and atomic operations."""
