"""Recorded steps: calls of functions and plans that are kept, bound, replayed and explained as one."""
