"""Positions put into activations: rotary embedding."""
