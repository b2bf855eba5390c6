"""Distinct elements."""
