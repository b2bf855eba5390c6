"""Matrices of few bits an element: quantised on the device, and multiplied."""
"""Products with quantised weights, and what makes such weights."""
