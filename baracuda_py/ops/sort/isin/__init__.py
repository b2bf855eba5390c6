"""Which elements are among others."""
