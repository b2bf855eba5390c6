"""Rotary embedding of queries and keys in one launch, with scaled frequencies, and its gradient."""
