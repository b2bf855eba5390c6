"""Calls: arrays of every kind, streams, captures, the short path, and what is refused."""
