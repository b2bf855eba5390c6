"""Whole rows in order."""
