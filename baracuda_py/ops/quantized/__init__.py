"""Products with quantised weights, and what makes such weights."""
