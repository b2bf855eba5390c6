"""Operands of a call: their layouts as a key, their conversion, their checks, the stream that they are used on."""
