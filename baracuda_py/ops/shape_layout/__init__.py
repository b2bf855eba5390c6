"""Moving elements without computing on them: windows written in place, copies in C order, caches appended to."""
