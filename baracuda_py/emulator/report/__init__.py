"""What a run counts, and its report."""
