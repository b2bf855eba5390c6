"""Norms over the channels of groups and positions, and their gradients."""
