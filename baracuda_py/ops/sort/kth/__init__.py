"""One element of each row by its rank."""
