"""Op families: one folder per family, with descriptors, candidates, plans, tables of ops, functions, oracle and samples."""
