"""What all attention has: its problem, which keys a query sees, the kernels' struct, error bounds."""
