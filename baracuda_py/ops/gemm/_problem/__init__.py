"""A matrix product as a problem: its operands' elements, shapes, scales and weights, its gradients, and how kernels walk it."""
