"""Moving elements without computing on them."""
