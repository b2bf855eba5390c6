"""Devices, compiling, caches, launches, and what of the sources a kernel reaches."""
