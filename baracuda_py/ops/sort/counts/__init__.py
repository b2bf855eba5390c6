"""How many elements there are of each value, and in each interval."""
