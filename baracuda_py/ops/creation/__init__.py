"""Arrays made of numbers: constants, sequences, unit matrices, one-hot rows."""
