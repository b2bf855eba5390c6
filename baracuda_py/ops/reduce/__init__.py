"""Reductions over any axes, of any extent; no result depends on how many rows there are."""
