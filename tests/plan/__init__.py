"""Plans: descriptors, selection, guarantees, tuning, saved plans."""
