"""Search for ops by name, by the names of other libraries, and by what people call the subject."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Protocol

from ...types.names import ALIASES, SYNONYMS

__all__ = ["aliases_of", "found", "squeezed"]


class Described(Protocol):
    """What a search reads of an op."""

    @property
    def summary(self) -> str: ...

    @property
    def plan(self) -> Any: ...


def aliases_of(name: str) -> list[str]:
    """The other names under which ``bp`` has an op's function."""
    return [alias for alias, op in ALIASES.items() if op == name]


def found(text: str, ops: Mapping[str, Described]) -> list[str]:
    """Ops for a text: those it names, then those whose subject it is, then those whose facts contain it; for several words
    those that answer to all of them, else to most; else ops of similar names."""
    phrase = text.strip().lower()
    words = phrase.split()
    best = _answers(phrase, ops)
    if not best and len(words) > 1:
        each = [_answers(word, ops) for word in words]
        count = {name: sum(name in hits for hits in each) for hits in each for name in hits}
        best = [name for name in count if count[name] == max(count.values())]
    if not best:
        known = {squeezed(name): name for name in ops} | {squeezed(a): op for a, op in ALIASES.items() if op in ops}
        near = difflib.get_close_matches(squeezed(phrase), [*known, *SYNONYMS], n=5)
        best = [name for key in near for name in ([known[key]] if key in known else SYNONYMS[key])]
    return [name for name in dict.fromkeys(best) if name in ops]


def _answers(phrase: str, ops: Mapping[str, Described]) -> list[str]:
    key = squeezed(phrase)
    if not key:
        return list(ops)
    singular = key.removesuffix("s")
    exact = [name for name in ops if squeezed(name) == key] + [op for a, op in ALIASES.items() if squeezed(a) == key]
    listed = [*SYNONYMS.get(key, ()), *SYNONYMS.get(singular, ())]
    inside = [name for name in ops if key in squeezed(name)]
    if exact or listed or inside:
        return [*exact, *listed, *inside]
    return [n for n, op in ops.items() if phrase in op.plan.category.value or phrase in op.summary.lower()]


def squeezed(text: str) -> str:
    """A text in lower case without what names are spelled with in several ways."""
    return re.sub(r"[\s_.\-]+", "", text.lower()).replace("quantis", "quantiz")
