"""Caches of keys and values in pages that sequences share: appending tokens, copying pages."""
