"""The benchmark harness: ours, a matched floor and the peers, together in one run (``python -m benchmarks``)."""
