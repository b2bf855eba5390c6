"""Functions of operands of two kinds: floats beside integers, and floats beside their scales."""
