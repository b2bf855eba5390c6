"""PTX translated to Python source."""
