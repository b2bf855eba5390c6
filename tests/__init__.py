"""The test suite: the registry drives every op through one gauntlet; the rest mirrors the package."""
