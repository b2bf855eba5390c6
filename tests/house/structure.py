"""What the sources say of their structure: which module imports which and who uses whose private names, read with `ast`; which
header each file of the kernels includes.

Imports inside functions count. Those under ``if TYPE_CHECKING`` are not carried out, and are distinguished from the others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

__all__ = ["Module", "circles", "folders", "foreign_imports", "includes_of", "modules_of", "private_uses", "upward"]

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
OF_NAMEDTUPLES = {"_replace", "_asdict", "_fields", "_make"}


@dataclass
class Module:
    """One source file, by its dotted name."""

    name: str
    path: Path
    known: frozenset[str] = field(default_factory=frozenset, repr=False)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @cached_property
    def imported(self) -> list[tuple[str, str]]:
        """(module of the tree, the name taken from it or ""), of every import that is carried out."""
        return self._imports(_carried_out(self.tree))

    @cached_property
    def libraries(self) -> set[str]:
        """The top-level names of what is imported from outside the tree and the standard library, at any time."""
        nodes = list(ast.walk(self.tree))
        found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        found |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
        own = {name.partition(".")[0] for name in self.known}
        return {name.partition(".")[0] for name in found} - own - sys.stdlib_module_names

    @cached_property
    def named(self) -> list[tuple[str, str]]:
        """The same of every import, those that only type checkers read among them."""
        return self._imports(ast.walk(self.tree))

    def _imports(self, nodes: Iterable[ast.AST]) -> list[tuple[str, str]]:
        found = []
        for node in nodes:
            if isinstance(node, ast.Import):
                found += [(alias.name, "") for alias in node.names if alias.name in self.known]
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    if inner in self.known:
                        found.append((inner, ""))
                    elif base in self.known:
                        found.append((base, alias.name))
        return found

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Names that stand for a module of the tree."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (inner := f"{self._base(node)}.{alias.name}") in self.known:
                        found[alias.asname or alias.name] = inner
        return found

    @cached_property
    def defined(self) -> set[str]:
        """Private names that the module gives to functions, classes, variables, fields and attributes."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
                found.add(node.attr)
        return {name for name in found if is_private(name)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and len(name) > 1


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _of_types_only(node: ast.AST) -> bool:
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(test)  # type: ignore[arg-type]


def _carried_out(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if not _of_types_only(child):
            yield child
            yield from _carried_out(child)


def modules_of(root: Path) -> dict[str, Module]:
    """Every module below the package at `root`, by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    for module in found.values():
        module.known = frozenset(found)
    return found


def circles(modules: Mapping[str, Module], *, types: bool = False) -> list[list[str]]:
    """The sets of modules that import one another, directly or through others (Tarjan's strongly connected components). With
    `types`, what only type checkers import counts too."""
    arrows = {
        name: sorted({to for to, _ in (module.named if types else module.imported) if to != name})
        for name, module in modules.items()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for to in arrows[name]:
            if to not in index:
                visit(to)
                low[name] = min(low[name], low[to])
            elif to in stack:
                low[name] = min(low[name], index[to])
        if low[name] == index[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in arrows:
        if name not in index:
            visit(name)
    return found


def _homes(name: str) -> Iterator[str]:
    """The folder of each private part of a dotted name."""
    parts = name.split(".")
    return (".".join(parts[:place]) for place, part in enumerate(parts) if is_private(part))


def folders(modules: Mapping[str, Module]) -> dict[str, int]:
    """How many modules each folder holds, by its dotted name; its own `__init__.py` is not counted."""
    return dict(Counter(module.package for module in modules.values() if module.path.name != "__init__.py"))


def private_uses(modules: Mapping[str, Module]) -> list[str]:
    """``module:line name`` wherever a private name of another module is taken: imported, or asked of something that is not
    `self` or `cls`. A private *module* may be imported within its own folder, and so may all that a private folder holds."""
    everywhere = {name for module in modules.values() for name in module.defined}
    found = []
    for name, module in modules.items():
        for to, taken in module.imported:
            if is_private(taken):
                found.append(f"{name}: {taken} of {to}")
            if any(not (module.package + ".").startswith(home + ".") for home in _homes(to)):
                found.append(f"{name}: the module {to}")
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not is_private(node.attr) or _is_own(node.value):
                continue
            if node.attr in OF_NAMEDTUPLES or node.attr in module.aliases:
                continue
            if node.attr in everywhere and node.attr not in module.defined:
                found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    return found


def foreign_imports(
    modules: Mapping[str, Module], folder: str, known: Callable[[str], bool], libraries: Sequence[str]
) -> list[str]:
    """``module -> what it imports`` for the modules called `folder` or in a folder of that name, of imports that are neither
    `known` nor among `libraries`."""
    found = []
    for name, module in modules.items():
        if folder in name.split("."):
            imported = {to for to, _ in module.imported if not known(to)} | module.libraries.difference(libraries)
            found += [f"{name} -> {to}" for to in sorted(imported)]
    return found


def includes_of(kernels: Path) -> dict[str, list[str]]:
    """The headers that each file below `kernels` includes in quotes: ``gemm/tc.cu -> ["ptx/mma.cuh", ...]``. A header's own name
    is relative to ``include/``, as it is in an include."""
    files = sorted(path for path in kernels.rglob("*") if path.suffix in (".cu", ".cuh"))
    return {
        path.relative_to(kernels).as_posix().removeprefix("include/"): INCLUDE.findall(path.read_text(encoding="utf-8"))
        for path in files
    }


def upward(includes: Mapping[str, Sequence[str]], ladder: Sequence[Sequence[str]]) -> list[str]:
    """The includes of a header that is neither in the file's own folder nor on a lower rung of `ladder`, which lists the shared
    folders of headers from the bottom up. Kernels stand above all rungs, and so do headers in other folders (one family's)."""
    height = {folder: rung for rung, folders in enumerate(ladder) for folder in folders}
    top = len(ladder)
    found = []
    for file, headers in includes.items():
        own = _folder(file)
        rung = height.get(own, top) if file.endswith(".cuh") else top
        found += [f"{file} -> {h}" for h in headers if _folder(h) != own and height.get(_folder(h), top) >= rung]
    return found


def _folder(file: str) -> str:
    """The first folder of a path; empty for a flat file, which has no place on a ladder."""
    return file.partition("/")[0] if "/" in file else ""
