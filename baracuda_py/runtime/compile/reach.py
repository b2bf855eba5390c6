"""The sources of a kernel: the definitions that its entry and its prelude reach by name, directly or through others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from .definitions import Piece, Text, identifiers, read

__all__ = ["Reach"]


class Reach:
    """The pieces of a prelude, a kernel file and the headers of both, in the order in which they are compiled."""

    def __init__(self, prelude: str, text: str, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._pieces: list[Piece] = []
        self._included: set[str] = set()
        self._compile(read(prelude), nameless=True)  # the whole prelude was generated for this kernel
        self._compile(read(text))
        texts = [read(each) for each in (prelude, text, *headers.values())]
        macros = frozenset[str]().union(*(each.macros for each in texts))
        whole = any(each.whole for each in texts)
        # a macro may expand to any name, so its apparent definition may define another name
        self._common = {i for i, p in enumerate(self._pieces) if whole or not p.names or p.names & macros}
        self._defined: dict[str, set[int]] = {}
        for i, piece in enumerate(self._pieces):
            for name in piece.names:
                self._defined.setdefault(name, set()).add(i)
        self._known = frozenset(self._defined)
        self._digests: dict[frozenset[str], str] = {}

    def _compile(self, text: Text, *, nameless: bool = False) -> None:
        for part in text.parts:
            if isinstance(part, Piece):
                self._pieces.append(replace(part, names=frozenset()) if nameless and part.names else part)
            elif part not in self._included:
                self._included.add(part)
                self._compile(read(self._headers.get(part, "")))

    def digest(self, entry: str) -> str:
        """SHA-256 of the definitions that a name expression reaches."""
        roots = identifiers(entry) & self._known
        if roots not in self._digests:
            parts = (self._pieces[i].digest for i in sorted(self._reached(roots)))
            self._digests[roots] = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return self._digests[roots]

    def names(self, entry: str) -> frozenset[str]:
        """The names that an entry reaches."""
        roots = identifiers(entry) & self._known
        return frozenset[str]().union(*(self._pieces[i].names for i in self._reached(roots)))

    def _reached(self, roots: frozenset[str]) -> set[int]:
        found: set[int] = set()
        fresh = self._common.union(*(self._defined[name] for name in roots))
        while fresh:
            found |= fresh
            names = frozenset[str]().union(*(self._pieces[i].uses for i in fresh)) & self._known
            fresh = set[int]().union(*(self._defined[name] for name in names)) - found
        return found
