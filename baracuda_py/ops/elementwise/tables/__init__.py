"""Further rows of the families, by subject."""
