"""Op families: one file a family, with its descriptor, candidates, plan, table of ops and functions."""
