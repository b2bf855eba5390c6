"""Complex arrays: views of their parts, the conjugate, the angle, and what `abs` is of them.

Functions of ops on real arrays: none has a kernel or an element kind of its own.
"""
