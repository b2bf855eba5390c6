"""Matrices of few bits an element: quantised on the device, and multiplied."""
