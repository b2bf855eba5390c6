"""The house itself: structure, words, docs, records, generated files, benchmarks, and the tests of the tests."""
