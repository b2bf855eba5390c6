"""Elements by index: picking them, and finding those that are not zero."""
