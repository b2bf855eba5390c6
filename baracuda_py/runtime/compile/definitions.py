"""Splits CUDA sources into definitions, with the names that each one defines and uses.

A kernel depends only on those definitions of its headers that it reaches. Definitions are followed by name alone: a name stands
for all definitions of it in any namespace, with overloads, specialisations and out-of-class members, so C++'s look-up rules are
not needed. A class is one definition with its members, an enumeration one with its enumerators. A local variable with the name
of a function reaches that function too: the result may be too large, but never too small.

Items that are used without being named belong to all users of the file: directives other than includes, operators, ``using
namespace``, ``static_assert``, and the functions that range-for and structured bindings look up. A file in an unknown form is
not split: all of it, and all that is compiled with it, belongs to its users. Comments and white space do not count; the order
of definitions does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Piece", "Text", "identifiers", "read"]

_TOKEN = re.compile(
    r"""//(?:\\\n|[^\n])* | /\*.*?\*/ | (
    \#(?:\\\n|/\*.*?\*/|[^\n])*
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
    | [^\W\d]\w* | \.?\d(?:[eEpP][+-]|'?\w|\.)* | \.[^\W\d]\w*
    | <<= | >>= | \.\.\. | ->\* | \+\+ | -- | << | >> | && | \|\| | :: | -> | [-+*/%&|^<>=!]= | \S)""",
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"[^\W\d]\w*")
_INCLUDE = re.compile(r'#\s*include\s*"([^"]+)"')
_DEFINE = re.compile(r"#\s*define\s+(\w+)(\(?)")
_NO_ARGUMENTS = re.compile(r",\s*##\s*__VA_ARGS__")

_CLASS = {"class", "struct", "union", "enum"}
_ATTRIBUTES = {  # keywords before a bracket that are no functions
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__align__", "__attribute__", "alignas", "decltype", "noexcept",
}  # fmt: skip
_KEYWORDS = {
    "alignof", "auto", "bool", "char", "const", "double", "explicit", "float", "int", "long", "short", "sizeof", "unsigned",
    "void",
}  # fmt: skip
_IMPLICIT = {"begin", "end", "get", "tuple_size", "tuple_element"}  # looked up by the language without being written
_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_MARKS = set('()[]{};#\\"')
_ANGLES = {"<": 1, ">": -1, ">>": -2}
_FOLLOWS = ("=", "[", ",", ";", "{", "(")  # a name that is being declared


@dataclass(frozen=True)
class Piece:
    """A definition, or another item at namespace level. An item without `names` belongs to all users of the file."""

    names: frozenset[str]
    uses: frozenset[str]
    digest: str


@dataclass(frozen=True)
class Text:
    """A file: its pieces, with the names of included headers between them, and the macros that it defines. With `whole`,
    neither it nor the files that it is compiled with may be split."""

    parts: tuple[Piece | str, ...]
    macros: frozenset[str] = frozenset()
    whole: bool = False


class _Unknown(Exception):
    """The text has a form that this module does not know."""


def identifiers(text: str) -> frozenset[str]:
    """Every name in a C++ expression."""
    return frozenset(_NAME.findall(text))


@lru_cache(maxsize=1024)
def read(text: str) -> Text:
    """`text` in pieces; each text is read once."""
    tokens = _tokens(text)
    directives = [token for token in tokens if token[0] == "#"]
    try:
        macros = frozenset(found[1] for token in directives if (found := _DEFINE.match(token)))
        return Text(tuple(_parts(tokens)), macros)
    except (_Unknown, IndexError):  # IndexError: the text ends too early
        includes = (found[1] for token in directives if (found := _INCLUDE.match(token)))
        return Text((*includes, _piece(tokens, frozenset())), whole=True)


def _tokens(text: str) -> list[str]:
    """The tokens of a text without comments: a directive is one, and so is a member with its dot."""
    return [_bare(token) if token[0] == "#" else token for token in _TOKEN.findall(text) if token]


def _bare(directive: str) -> str:
    """A directive in normal form. ``#define F(x)`` differs from ``#define F (x)``."""
    words = [word for word in _TOKEN.findall(directive[1:]) if word]
    macro = _DEFINE.match(directive)
    if macro and macro[2]:
        words[1:3] = [f"{macro[1]}("]
    return f"#{' '.join(words)}"


def _parts(tokens: list[str]) -> Iterator[Piece | str]:
    scopes: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token[0] == "#":
            yield from _directive(token)
            at += 1
        elif token == "}":
            if not scopes:
                raise _Unknown
            scopes.pop()
            at += 1
        elif (body := _scope(tokens, at)) > at:
            scopes.append(" ".join(tokens[at:body]))
            at = body
        else:
            end, names = _declaration(tokens, at)
            yield _piece([*scopes, *tokens[at:end]], names)
            for token in tokens[at:end]:
                if token[0] == "#" and _DEFINE.match(token):  # a macro has no closing brace
                    yield from _directive(token)
            at = end
    if scopes:
        raise _Unknown


def _piece(tokens: Sequence[str], names: frozenset[str]) -> Piece:
    words = set(tokens)
    uses = set(filter(str.isidentifier, words))  # members are omitted: their class is reached anyway
    for token in words:
        if token[0] == "#":
            uses |= identifiers(token)
    digest = hashlib.sha256("\0".join(tokens).encode()).hexdigest()
    return Piece(frozenset() if names & _IMPLICIT else names, frozenset(uses), digest)


def _directive(token: str) -> Iterator[Piece | str]:
    _check(token)
    if included := _INCLUDE.match(token):
        yield included[1]
    elif token != "#pragma once":
        yield _piece([token], frozenset())


def _check(token: str) -> None:
    """Raises _Unknown for tokens that concatenate names or lines. ``, ##__VA_ARGS__`` is permitted, because it makes no
    name."""
    if token == "\\" or "##" in _NO_ARGUMENTS.sub("", token):
        raise _Unknown


def _scope(tokens: Sequence[str], at: int) -> int:
    """The index behind the opening brace of a namespace or linkage block that begins at `at`; `at` if none does."""
    if tokens[at] == "extern" and tokens[at + 1][0] == '"' and tokens[at + 2] == "{":
        return at + 3
    begin = at
    at += tokens[at] == "inline"
    if tokens[at] != "namespace":
        return begin
    at += 1
    while tokens[at] == "::" or tokens[at].isidentifier():
        at += 1
    return at + 1 if tokens[at] == "{" else begin


def _declaration(tokens: Sequence[str], at: int) -> tuple[int, frozenset[str]]:
    """The index behind the declaration that begins at `at` (its semicolon, or a function's closing brace), and the declared
    names."""
    head = _untemplated(tokens, at)
    depth = opened = closed = 0
    function = False
    for i in range(head, len(tokens)):
        token = tokens[i]
        if token[0] not in _MARKS:
            continue
        if step := _DEPTH.get(token):
            if token == "{" and depth == 0:
                if opened or i == head:  # the declaration was misread
                    raise _Unknown
                opened, function = i, _is_function(tokens[head:i])
            depth += step
            if depth < 0:
                raise _Unknown
            if token == "}" and depth == 0:
                closed = i
                if function:
                    return i + 1, _declared(tokens[head:opened], "(")
        elif token != ";":
            _check(token)
            if _INCLUDE.match(token) or (
                token[0] == '"' and tokens[i - 1][-1] == "R"
            ):  # within a definition; a raw string
                raise _Unknown
        elif depth == 0:
            return i + 1, _named(tokens[head : i + 1], opened - head, closed - head)
    raise _Unknown


def _untemplated(tokens: Sequence[str], at: int) -> int:
    """The index behind the ``template <...>`` heads that begin at `at`."""
    while tokens[at] == "template" and tokens[at + 1] == "<":
        at += 1
        brackets = angles = 0
        while angles > 0 or tokens[at] == "<":
            brackets += _DEPTH.get(tokens[at], 0)
            angles += 0 if brackets else _ANGLES.get(tokens[at], 0)
            at += 1
    return at


def _level(tokens: Sequence[str]) -> Iterator[int]:
    """The indices of the tokens outside brackets, and of the brackets that open there, without those of attributes."""
    depth = 0
    for i, token in enumerate(tokens):
        step = _DEPTH.get(token, 0)
        if depth == 0 and step >= 0 and not (step and i and tokens[i - 1] in _ATTRIBUTES):
            yield i
        depth += step


def _is_function(head: Sequence[str]) -> bool:
    """Whether the tokens before a body are the head of a function."""
    level = {head[i] for i in _level(head)}
    parameters = "(" in level and ("=" not in level or "operator" in level)
    if _CLASS & level and ("(" in level or "=" in level):
        raise _Unknown
    return parameters


def _named(words: Sequence[str], opened: int, closed: int) -> frozenset[str]:
    """The names that a declaration with a semicolon declares; its first braces, if any, open and close there."""
    head = words[:opened] if opened > 0 else words
    level = [i for i in _level(head) if head[i] not in _ATTRIBUTES]
    key = max((i for i in level if head[i] in _CLASS), default=-1)
    if key >= 0:
        return _of_class(words, head, level, key, closed)
    if words[0] in ("static_assert", "namespace") or words[:2] == ["using", "namespace"] or words == [";"]:
        return frozenset()
    if words[0] == "using":
        return frozenset((words[1],)) if "=" in words else identifiers(" ".join(words[1:]))
    return _declared(words, *_FOLLOWS)


def _of_class(words: Sequence[str], head: Sequence[str], level: Sequence[int], key: int, closed: int) -> frozenset[str]:
    """The names of a class (an enumeration, with its enumerators) and of the variables behind it."""
    name = next((i for i in level if i > key), len(head))
    if "::" in head[name + 1 : name + 2]:  # a member of another
        raise _Unknown
    names = identifiers(" ".join(head[name : name + 1]))
    if len(head) < len(words):
        return names | identifiers(" ".join(words[len(head) if "enum" in head else closed :]))
    if len(level) > 3:  # more than `struct Name;`
        raise _Unknown
    return names


def _declared(words: Sequence[str], *followers: str) -> frozenset[str]:
    """The names before any of `followers`, with the classes that they are members of; none where operators are declared."""
    names: set[str] = set()
    level = list(_level(words))
    if any(words[i] == "operator" for i in level):
        return frozenset()
    value = next((i for i in level if words[i] == "="), len(words))  # the first name; the others follow commas
    for i in level:
        if words[i] in followers and (i <= value or words[i - 2] in (",", "*", "&")):
            if words[i] == "(" and words[i + 1] in ("*", "&"):  # possibly a pointer to a function
                raise _Unknown
            names |= set(_chain(words, i))
    return frozenset(names - _KEYWORDS)


def _chain(words: Sequence[str], end: int) -> Iterator[str]:
    """``Name`` and ``member`` of the ``Name<...>::member`` that ends at `end`."""
    while True:
        at = end - 1
        if at >= 0 and words[at] in (">", ">>"):
            brackets = angles = 0
            while at >= 0 and (angles < 0 or at == end - 1):
                brackets += _DEPTH.get(words[at], 0)
                angles += 0 if brackets else _ANGLES.get(words[at], 0)
                at -= 1
        if at < 0 or not words[at].isidentifier():
            return
        yield words[at]
        if at < 2 or words[at - 1] != "::":
            return
        end = at - 1
