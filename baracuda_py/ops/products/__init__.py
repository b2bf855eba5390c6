"""What every op on matrix products shares: the problem that a kernel sees, its checks, bounds and launch arguments."""
