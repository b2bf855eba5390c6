"""The command line: ``python -m baracuda_py``."""
