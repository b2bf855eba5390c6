"""The paths from operands to a launch: the long one of a first call, and the short ones of later calls."""
