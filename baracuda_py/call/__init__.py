"""From operands to launches: intake, checks, keys and recipes, allocation, streams, bound plans, graphs."""
