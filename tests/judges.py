"""What judges the emulated runs of an op: the emulator, and the definitions of Python by which their results are judged.

A definition is a function, a class or an assignment of a module. It reaches each definition of a name that it mentions, in any of
the modules that may judge. A name may have definitions in modules that have nothing to do with one another: then all are reached,
which is too many and never too few. So a function that is added to `numerics`, a row that is added to a table, or a comment makes
no record stale; a change of a function that an oracle calls does, for the ops that reach it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import baracuda_py
from baracuda_py.plan.registry import all_ops, get_op
from baracuda_py.runtime.system.toolchain import nvrtc_version

__all__ = ["Definition", "definitions", "judged_by", "judges", "reached"]

PACKAGE = Path(baracuda_py.__file__).parent
ROOT = PACKAGE.parent
EMULATOR = PACKAGE / "emulator"
# What judges results, beside the oracles of an op's family. The data, the kernels and how they are launched are in each run's
# own digest.
JUDGES = (
    PACKAGE / "numerics",
    *(PACKAGE / "types" / f"{name}.py" for name in ("elements", "faults", "gguf", "kinds", "precision")),
    ROOT / "tests" / "gauntlet",
    ROOT / "tests" / "arena.py",
)
BEGIN = "Problem"  # of `tests.gauntlet`: it lays data out and checks results
BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # of a statement, the statements in it
# A literal text, in which a number sign is no comment, or a comment.
TEXT_OR_COMMENT = re.compile(r"(\"{3}|'{3}|[\"'])(?:\\.|.)*?\1|#[^\n]*", re.DOTALL)
# Decorators that do nothing elsewhere. What has another is taken to be reached.
PURE = {
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",
    "lru_cache",
    "property",
    "staticmethod",
}


@dataclass(frozen=True, eq=False)
class Definition:
    """A part of a module: the names that it defines, its code without comments and docstrings, the names that it mentions, its
    lines. What defines no name is executed whenever its module is imported."""

    path: Path
    names: tuple[str, ...]
    code: str
    mentions: frozenset[str]
    lines: range

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.path.relative_to(ROOT).as_posix()}\0{self.code}".encode()).hexdigest()


@dataclass
class _Rows:
    """What a family's modules mention beside their oracles: in the rows of ops, and elsewhere."""

    of: defaultdict[str, list[Definition]] = field(default_factory=lambda: defaultdict(list))
    elsewhere: set[str] = field(default_factory=set)


@lru_cache(maxsize=512)
def judged_by(op: str) -> str:
    """The digest of what emulates an op and judges its results, the compiler's version among it."""
    emulator, _ = _emulator()
    lines = [repr(nvrtc_version()), emulator, *sorted({of.digest for of in reached(op)})]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _emulator() -> tuple[str, frozenset[str]]:
    """The digest of all of the emulator, and the names that it mentions."""
    parts = [of for path in _modules(EMULATOR) for of in definitions(path)]
    digest = hashlib.sha256("\n".join(of.digest for of in parts).encode()).hexdigest()
    return digest, frozenset().union(*(of.mentions for of in parts))


def reached(op: str) -> list[Definition]:
    """Beside the emulator: the rows of an op, and all that they, the rest of its family and the emulator reach."""
    family = family_of(op)
    rows = [of for name, found in _rows(family).of.items() if op == name or op.startswith(f"{name}_") for of in found]
    common = _common(family)
    return [*rows, *common, *_reach({name for of in rows for name in of.mentions}, family, common)]


@lru_cache(maxsize=64)
def _common(family: Path) -> tuple[Definition, ...]:
    """What all ops of a family reach."""
    return tuple(_reach({BEGIN, *_rows(family).elsewhere, *_emulator()[1]}, family, ()))


def _reach(names: Iterable[str], family: Path, known: Iterable[Definition]) -> Iterable[Definition]:
    """The definitions of these names and all that these reach, but for the known ones, of which all that they reach is known."""
    by_name, executed = _pool(family)
    old, found = set(known), dict[Definition, None]()
    entered = {of.path for of in old}
    seen, waiting = {name for of in old for name in of.names}, set(names)
    while waiting:
        name = waiting.pop()
        seen.add(name)
        new = [of for of in by_name.get(name, ()) if of not in found and of not in old]
        for path in {of.path for of in new} - entered:
            entered.add(path)
            new += executed.get(path, ())
        found.update(dict.fromkeys(new))
        waiting |= {mentioned for of in new for mentioned in of.mentions} - seen
    return found


def family_of(op: str) -> Path:
    return PACKAGE / "ops" / get_op(op).function.__module__.split(".")[2]


def judges(op: str) -> list[Path]:
    """The modules that may judge an op, without the emulator's."""
    return _judges(family_of(op))


@lru_cache(maxsize=64)
def _judges(family: Path) -> list[Path]:
    shared = [path for place in JUDGES for path in _modules(place) if not path.name.endswith("_test.py")]
    return [*shared, *_oracles_of(family)]


@lru_cache(maxsize=64)
def _pool(family: Path) -> tuple[dict[str, list[Definition]], dict[Path, list[Definition]]]:
    """Of the modules that may judge a family: the definitions of each name, and what is executed when a module is imported."""
    by_name, executed = defaultdict[str, list[Definition]](list), defaultdict[Path, list[Definition]](list)
    for path in _judges(family):
        for of in definitions(path):
            for name in of.names:
                by_name[name].append(of)
            if not of.names:
                executed[path].append(of)
    return by_name, executed


def _modules(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


# ---- modules as definitions ------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def definitions(path: Path) -> tuple[Definition, ...]:
    """A module's parts, in their order."""
    tree, code = _read(path)
    return tuple(of for node in tree.body if not _is_public_list(node) for of in _defined(path, node, code))


def _defined(path: Path, node: ast.stmt, code: _Code) -> Iterator[Definition]:
    lines = _lines(node)
    if isinstance(
        node, (ast.Import, ast.ImportFrom)
    ):  # the name that is used here leads to the name that is defined there
        origin = f"{'.' * node.level}{node.module or ''} " if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            text = f"{origin}{alias.name} as {alias.asname or alias.name}"
            name = (alias.asname or alias.name).partition(".")[0]
            yield Definition(path, (name,), text, frozenset({alias.name.rpartition(".")[2]}), lines)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
        return
    yield Definition(path, _names_of(node), code.of(node), frozenset(_mentioned(node)), lines)


def _is_public_list(node: ast.AST) -> bool:
    """Whether a node is `__all__`, which only an import of all names reads."""
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
        isinstance(x, ast.Name) and x.id == "__all__" for x in getattr(node, "targets", [getattr(node, "target", None)])
    )


def _names_of(node: ast.stmt) -> tuple[str, ...]:
    """What a statement defines, and nothing else does."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        decorators = (x.func if isinstance(x, ast.Call) else x for x in node.decorator_list)
        names = (
            x.attr if isinstance(x, ast.Attribute) else x.id if isinstance(x, ast.Name) else "" for x in decorators
        )
        return (node.name,) if all(name in PURE for name in names) else ()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    flat = [x for target in targets for x in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return tuple(x.id for x in flat if isinstance(x, ast.Name)) if all(isinstance(x, ast.Name) for x in flat) else ()


def _mentioned(*nodes: ast.AST) -> Iterator[str]:
    """Names, attributes, and texts that may be either."""
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


class _Code:
    """The lines of a module, without comments."""

    def __init__(self, text: str) -> None:
        self.lines = TEXT_OR_COMMENT.sub(lambda found: "" if found[0][0] == "#" else found[0], text).splitlines()

    def of(self, node: ast.stmt | ast.expr) -> str:
        """A statement or an expression, its lines whole, without docstrings."""
        left_out = {line for inner in _statements(node) for line in _docstring(inner)}
        lines = (self.lines[n - 1].rstrip() for n in _lines(node) if n not in left_out)
        return "\n".join(line for line in lines if line)


def _lines(node: ast.stmt | ast.expr) -> range:
    """With those of its decorators."""
    first = min([node.lineno, *(x.lineno for x in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or first) + 1)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all statements in it, without a look into their expressions, which hold none and are most of a tree."""
    waiting = [node]
    while waiting:
        yield (outer := waiting.pop())
        for name in BLOCKS:
            waiting += getattr(outer, name, ()) if not isinstance(outer, ast.expr) else ()


def _docstring(node: ast.AST) -> range:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
        text = node.body[0]
        return range(text.lineno, (text.end_lineno or text.lineno) + 1)
    return range(0)


@lru_cache(maxsize=512)
def _read(path: Path) -> tuple[ast.Module, _Code]:
    text = path.read_text(encoding="utf-8")
    return ast.parse(text), _Code(text)


# ---- families ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _rows(family: Path) -> _Rows:
    rows = _Rows()
    for path in sorted(set(_modules(family)) - set(_oracles_of(family))):
        tree, code = _read(path)
        found = [row for statement in tree.body for row in _calls(statement)]
        listed = [node for node in tree.body if _is_public_list(node)]
        inside = {id(inner) for outer in (*listed, *(call for call, _ in found)) for inner in ast.walk(outer)}
        rows.elsewhere.update(
            _mentioned(*(node for node in ast.walk(tree) if id(node) not in inside and _is_leaf(node)))
        )
        for call, name in found:
            rows.of[name].append(Definition(path, (name,), code.of(call), frozenset(_mentioned(call)), _lines(call)))
    return rows


def _is_leaf(node: ast.AST) -> bool:
    """Whether a node mentions something itself."""
    return isinstance(node, (ast.Name, ast.Attribute, ast.alias, ast.Constant))


def _calls(node: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """The rows in a statement: calls whose first argument names an op, outside of functions and classes, and not those that have
    a name of their own, by which other rows may use them."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            return
        if isinstance(inner, ast.Call) and inner.args and _is_op(inner.args[0]) and not isinstance(node, ast.Assign):
            yield inner, inner.args[0].value  # type: ignore[attr-defined]
        else:
            yield from _calls(inner)


def _is_op(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _ops()


@lru_cache(maxsize=1)
def _ops() -> frozenset[str]:
    return frozenset(all_ops())


@lru_cache(maxsize=64)
def _oracles_of(family: Path) -> list[Path]:
    """The oracles that a family's modules import, and those that these import."""
    found: set[Path] = set()
    to_read = _modules(family)
    while to_read:
        fresh = {path for path in _imported(to_read.pop()) if "oracle" in (path.stem, path.parent.name)} - found
        found |= fresh
        to_read += fresh
    return sorted(found)


@lru_cache(maxsize=512)
def _imported(path: Path) -> tuple[Path, ...]:
    """The package's modules that a module imports by relative names."""
    found: list[Path] = []
    for node in _statements(_read(path)[0]):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for name in (place, *(place / alias.name for alias in node.names)):
                found += (file for file in (name.with_suffix(".py"), name / "__init__.py") if file.is_file())
    return tuple(found)
