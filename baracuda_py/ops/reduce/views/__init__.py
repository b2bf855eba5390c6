"""Sums over views: along a diagonal, and to the shape before a broadcast."""
