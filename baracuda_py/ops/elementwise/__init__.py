"""Elementwise functions: a table of rows over one kernel."""
