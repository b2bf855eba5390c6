"""The inputs of a test: the files that can have a part in it, the packages that are installed, and what the device ledger says.

A test of an op, or in a family's folder, has for inputs its own modules, all of the package but the families of ops and the
command line, and of these families those that it reaches: its own, and transitively those that their modules import or whose ops
they name, as strings or as attributes of the package. A name that only looks like an op's counts too: too many families are
used, and never too few.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import platform
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from baracuda_py._index import NAMES
from baracuda_py.plan import all_ops

from . import records
from .families import declared, family_of
from .places import ROOT, TESTS

__all__ = ["FAMILIES", "KERNELS", "OPS", "families_of_ops", "inputs", "inputs_digest", "installed"]

PACKAGE = ROOT / "baracuda_py"
OPS, KERNELS, FAMILIES = PACKAGE / "ops", ROOT / "kernels", TESTS / "families"
ALWAYS = (ROOT / "pyproject.toml", TESTS / "conftest.py")
# Read by path or imported by tests whose modules name them, and by no others.
NAMED = {
    "cli": PACKAGE / "cli",
    "docs": ROOT / "docs",
    "examples": ROOT / "examples",
    "benchmarks": ROOT / "benchmarks",
}
SHARED, FAMILY, PLACE, BESIDE_IT, MODULE = "shared", "family", "place", "beside", "module"  # sorts of groups of inputs
NAMES_OF_PACKAGE = ("bp", "baracuda_py")  # by which modules take a public name
WORD = re.compile(r"\w+")
# Installed for tests beside what the package's extras name; extras of which no test depends are left out.
BESIDE = ("torch", "jax", "transformers", "expecttest", "flatbuffers", "nvidia-cuda-nvcc-cu12")
NO_PART = ("docs", "bench")


@cache
def families_of_ops() -> dict[str, str]:
    """The family of each op that this package has."""
    return {op: family for op in all_ops() if (family := family_of(op))}


@cache
def inputs_digest(test: Path, families: tuple[str, ...]) -> str:
    """The digest of all that a test of these families in the file `test` depends on."""
    groups, _ = _groups(test, families)
    lines = (installed(), *(f"{group}\0{_group_digest(group)}" for group in groups))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@cache
def inputs(test: Path, families: tuple[str, ...]) -> tuple[frozenset[Path], frozenset[str]]:
    """The files, and the families that the test reaches."""
    groups, used = _groups(test, families)
    return frozenset(path for group in groups for path in _group(group)), used


def _groups(test: Path, families: tuple[str, ...]) -> tuple[list[str], frozenset[str]]:
    """The groups of files, and the families that the test reaches."""
    own, mentioned = _of_test(test)
    used = _reached(mentioned.union(families))
    return sorted({SHARED, *own, *(group for family in used for group in _of_family(family))}), used


@cache
def _of_test(test: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The groups of the modules of a test, and the families that these mention."""
    modules = _modules_of(test)
    return _of_modules(modules), frozenset(family for path in modules for family in _mentioned(path))


@cache
def _of_family(family: str) -> frozenset[str]:
    return _of_modules(_modules_of_family(family)) | {f"{FAMILY} {family}"}


def _of_modules(modules: frozenset[Path]) -> frozenset[str]:
    """The modules, the tables beside them, and what they name."""
    words = {word for path in modules for word in WORD.findall(_text(path))}
    places = {f"{PLACE} {word}" for word in NAMED if word in words}
    beside = {f"{BESIDE_IT} {path.parent.relative_to(ROOT).as_posix()}" for path in modules}
    return frozenset({*places, *beside, *(f"{MODULE} {path.relative_to(ROOT).as_posix()}" for path in modules)})


@cache
def _group(group: str) -> tuple[Path, ...]:
    kind, _, name = group.partition(" ")
    if kind == SHARED:
        return (*ALWAYS, *_files(KERNELS / "include"), *_shared())
    if kind == FAMILY:
        return (*_files(OPS / name), *_files(KERNELS / name))
    if kind == PLACE:
        return tuple(_files(NAMED[name]))
    if kind == BESIDE_IT:  # tables, which a test reads by their path; those of mutants are read by no test
        return tuple(sorted(x for x in (ROOT / name).iterdir() if x.is_file() and x.suffix not in (".py", ".toml")))
    return (ROOT / name,)


@cache
def _group_digest(group: str) -> str:
    """Of the content of its files; of a family, also of the names that it defines and what the device ledger says of its ops."""
    kind, _, name = group.partition(" ")
    lines = [f"{path.relative_to(ROOT).as_posix()}\0{_content(path)}" for path in _group(group)]
    if kind in (SHARED, FAMILY):
        of = name if kind == FAMILY else ""
        lines += [f"{name} {place}" for name, place in sorted(NAMES.items()) if _public().get(name, "") == of]
        lines += [f"{op} {_ledger(op)}" for op, family in sorted(families_of_ops().items()) if family == of]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@cache
def _reached(families: frozenset[str]) -> frozenset[str]:
    found, waiting = set(families), set(families)
    while waiting:
        further = _further(waiting.pop()) - found
        found |= further
        waiting |= further
    return frozenset(found)


@cache
def _further(family: str) -> frozenset[str]:
    """The families that a family's modules import or mention, those of its tests' declaration among them."""
    found: set[str] = set()
    for path in (*_files(OPS / family), *_modules_of_family(family)):
        if path.suffix == ".py":
            found |= _mentioned(path)
            found |= {x.relative_to(OPS).parts[0] for x in _imported(path) if _is_of_family(x)}
    for path in _files(KERNELS / family):
        found |= {name for name in _folders() if f'"{name}/' in _text(path)}
    return frozenset(found)


@cache
def _modules_of_family(family: str) -> frozenset[Path]:
    """What a family declares for the tests, with its independent answers: all of its modules that hold no tests, and what these
    import."""
    modules = (x for x in (FAMILIES / f"{family}.py", *_files(FAMILIES / family)) if x.suffix == ".py")
    return _with_imported(x for x in modules if not x.name.endswith("_test.py"))


@cache
def _folders() -> frozenset[str]:
    return frozenset({x.name for x in OPS.iterdir() if x.is_dir() and x.name != "__pycache__"} | set(declared()))


def _is_of_family(path: Path) -> bool:
    return path.is_relative_to(OPS) and path.relative_to(OPS).parts[0] in _folders()


@cache
def _shared() -> tuple[Path, ...]:
    """The package without the families of ops, the command line and the list of public names, which is a table of the others."""
    without = {PACKAGE / "_index.py", PACKAGE / "__init__.pyi"}
    return tuple(
        x for x in _files(PACKAGE) if not _is_of_family(x) and not x.is_relative_to(NAMED["cli"]) and x not in without
    )


@cache
def _modules_of(test: Path) -> frozenset[Path]:
    """A test file, with its folders' conftest.py and the modules of tests and benchmarks that these import."""
    folders = (x for x in test.parents if x.is_relative_to(TESTS) and x != TESTS)
    return _with_imported((test, *(x / "conftest.py" for x in folders)))


def _with_imported(paths: Iterable[Path]) -> frozenset[Path]:
    found, waiting = set[Path](), set(paths)
    while waiting:
        path = waiting.pop()
        if path.is_file() and path not in found:
            found.add(path)
            waiting |= {x for x in _imported(path) if not x.is_relative_to(PACKAGE)} - found
    return frozenset(found)


@cache
def _imported(path: Path) -> frozenset[Path]:
    """The modules of this repository that a module imports anywhere in it, with the packages that this executes: its own too."""
    names: set[str] = set()
    own = path.relative_to(ROOT).with_suffix("").parts
    for node in _nodes(path):
        if isinstance(node, ast.ImportFrom):
            place = (
                ".".join((*own[: len(own) - node.level], *filter(None, [node.module]))) if node.level else node.module
            )
            names |= {f"{place}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset().union(*(_found(name) for name in (*names, ".".join(own[:-1]))))


@cache
def _found(name: str) -> frozenset[Path]:
    """The files of a module, or of the one that a name is of, and of the packages that hold it."""
    parts = name.split(".")
    if parts[0] not in (PACKAGE.name, TESTS.name, "benchmarks"):
        return frozenset()
    places = [ROOT.joinpath(*parts[:n]) for n in range(1, len(parts) + 1)]
    return frozenset(x for place in places for x in (place.with_suffix(".py"), place / "__init__.py") if x.is_file())


@cache
def _mentioned(path: Path) -> frozenset[str]:
    """The families whose ops a module names as a string, or whose public names it takes from the package."""
    found: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(families_of_ops().get(node.value, ""))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in NAMES_OF_PACKAGE:
            found.add(_public().get(node.attr, ""))
        elif isinstance(node, ast.ImportFrom) and (node.module == PACKAGE.name or not node.module):
            found |= {_public().get(alias.name, "") for alias in node.names}
    return frozenset(found - {""})


@cache
def _public() -> dict[str, str]:
    """The family that defines each public name that a family defines."""
    places = {name: place.partition(":")[0].split(".") for name, place in NAMES.items()}
    return {name: parts[1] for name, parts in places.items() if parts[0] == "ops" and parts[1] in _folders()}


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    kinds = (ast.Import, ast.ImportFrom, ast.Constant, ast.Attribute)
    return tuple(node for node in ast.walk(ast.parse(_text(path))) if isinstance(node, kinds))


def _files(place: Path) -> Iterable[Path]:
    return _listed(place) if place.is_dir() else ()


@cache
def _listed(place: Path) -> tuple[Path, ...]:
    return tuple(sorted(x for x in place.rglob("*") if x.is_file() and x.suffix != ".pyc"))


@cache
def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


@cache
def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _ledger(op: str) -> str:
    said: Any = records.read(records.records_dir(), op).get("device")
    return json.dumps(said, sort_keys=True)


# ---- packages ---------------------------------------------------------------------------------------------------------


@cache
def installed() -> str:
    """Python, and the versions of the packages that tests can import."""
    project = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]
    extras = (lines for extra, lines in project["optional-dependencies"].items() if extra not in NO_PART)
    waiting = {*BESIDE, *_names((*project["dependencies"], *chain.from_iterable(extras)))}
    found: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
            continue
        required = importlib.metadata.requires(name) or ()
        waiting |= set(_names(line for line in required if "extra ==" not in line)) - found.keys()
    versions = (f"{name} {version}" for name, version in sorted(found.items()) if version)
    return "\n".join((platform.python_version(), platform.machine(), *versions))


def _names(lines: Iterable[str]) -> Iterator[str]:
    """The packages that requirements name."""
    for line in lines:
        yield re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line, maxsplit=1)[0]).lower()
