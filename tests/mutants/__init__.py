"""Edits that a careless hand could make, one at a time, and whether the suite notices: ``python -m tests.mutants``."""
