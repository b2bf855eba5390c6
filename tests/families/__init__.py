"""The tests' part of each family of ops: what it declares, its independent answers, its own tests, and its mutants.

A family is ``<family>.py`` with ``<family>.toml`` beside it, or a package whose ``.toml`` files are its mutants. `Family` says
what can be declared.
"""

from .declaration import Family, NoMeaning, by_op, declared, family_of, folders, joined, templates

__all__ = ["Family", "NoMeaning", "by_op", "declared", "family_of", "folders", "joined", "templates"]
