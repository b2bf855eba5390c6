"""The benchmark harness: ours, a matched floor and the peers, side by side in one run (``python -m benchmarks``)."""
