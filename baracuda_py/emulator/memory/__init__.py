"""Memory by state space, the accesses that are checked, and asynchronous copies."""
