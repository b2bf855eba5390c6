"""Queries, keys and values of the same tokens: products with int8 or int4 weights in one plan."""
