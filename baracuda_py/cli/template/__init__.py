"""The files of a new family of ops, from the texts in this folder. docs/adding-an-op.md shows them."""

from .files import Names, checkout_files, package_files

__all__ = ["Names", "checkout_files", "package_files"]
