"""What all oracles share: rounding to a kind, special functions, the guarantee of a wide result. It knows only `types`."""
