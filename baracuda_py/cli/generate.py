"""Writes the public index: ``python -m baracuda_py.cli.generate`` (``--check`` only compares).

`types/kinds.py` lists the categories and the elementwise ops. `_index.py` maps every public name to its module, so that
importing the package imports nothing else; `__init__.pyi` gives the same names to type checkers and editors. In a checkout,
``docs/ops.md`` lists the ops, ``docs/ops/`` has a page for each, and the README links the families. In the stub, a dataclass
that converts its arguments (``element="bf16"``) is a subclass whose constructor has the accepted types; its attributes have
the stored types. Fields that a descriptor's table adds are keywords of the constructor; the attributes of an operand that several
descriptors have are declared once, in ``_<Operand>``.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

from .. import types
from ..ops.optim import lists
from ..ops.random import arrays
from ..plan.descriptor import Descriptor
from ..plan.plan import Plan
from ..plan.registry import all_ops
from ..plan.slot import OperandLayout
from ..types import ElementKind, PlanPreference
from ..types.names import ALIASES
from .pages import ops_text, page_text, readme_row, signature_text, split_parameters
from .template import Names, checkout_files

COLUMNS = 125  # of a line of the stub
PACKAGE = Path(__file__).resolve().parent.parent

# Public names other than ops, plans and their descriptors.
FIXED = {
    "ops.elementwise.fused.function": ("Fused", "fuse"),
    "ops.elementwise.fused.plan": ("FusedDescriptor", "FusedPlan"),
    "ops.gemm.backward": ("MatmulGradients",),
    "ops.gemm.linear": ("linear",),
    "ops.position.scaling": ("RopeScaling",),
    "ops.quantized.int4.pack": ("pack_int4", "repack_int4"),
    "ops.quantized.nf4.quantize": ("pack_nf4",),
    "ops.complex.conjugate": ("conj",),
    "ops.complex.parts": ("imag", "real"),
    "ops.complex.polar": ("angle",),
    "ops.creation.arrays": ("arange", "eye", "full", "linspace"),
    "ops.random.arrays": tuple(name for name in arrays.__all__ if name != "filled"),
    "ops.random.multinomial": ("multinomial",),
    "ops.sort.counts.histogramdd": ("histogramdd",),
    "ops.sort.whole.lexsort": ("lexsort",),
    "ops.random.generator": ("Generator", "GeneratorState"),
    "ops.optim.lists": tuple(lists.__all__),
    "ops.rearrange.join": ("concatenate", "stack"),
    "ops.rearrange.views": ("broadcast_to", "chunk", "diagonal", "meshgrid", "rot90", "split", "unfold"),
    "call.bound": ("BoundPlan",),
    "call.graph": ("Graph",),
    "call.recording.recorder": ("record",),
    "call.recording.step": ("Step",),
    "plan": (
        "Cost",
        "Feasibility",
        "LaunchConfig",
        "Op",
        "Operand",
        "Plan",
        "check",
        "compare",
        "find",
        "get_op",
        "list_ops",
    ),
    "emulator.options": ("emulation",),
    "call.cache": ("plan_cache",),
    "packed": ("Int4Layout", "PackedGguf", "PackedInt4", "PackedNf4"),
    "paged": ("CacheStatistics", "KVCacheSpec", "PagedKVCache", "PagedSequence", "SharedPrefix"),
    "runtime.gpu.device": ("Device", "device", "set_device"),
    "runtime.gpu.streams": ("fence",),
    "runtime.scope": ("preference",),
    "tensor": ("GpuBuffer",),
}


# The type of an op's public function, and the decorator that makes a function of it.
FUNCTION_TYPE = """
_Args = ParamSpec("_Args")
_Desc = TypeVar("_Desc")
_Made = TypeVar("_Made")

class _Function(Generic[_Args, _Desc, _Made]):
    __name__: str
    def __call__(self, *args: _Args.args, **kwargs: _Args.kwargs) -> Any: ...
    def of(self, *args: _Args.args, **kwargs: _Args.kwargs) -> _Desc: ...
    def plan(self, *args: _Args.args, **kwargs: _Args.kwargs) -> _Made: ...
    def bind(self, *args: _Args.args, **kwargs: _Args.kwargs) -> BoundPlan: ...

def _op(desc: type[_Desc], plan: type[_Made]) -> Callable[[Callable[_Args, Any]], _Function[_Args, _Desc, _Made]]: ...
"""

# Names that were public by accident. They resolve with a DeprecationWarning for one release.
RETIRED = {
    "ops.position.angles": ("ANGLES", "Angled", "OF_ANGLE", "OF_ENTRY", "STYLES", "check_factor", "dense", "terms_of"),
    "ops.attention.decode": ("Decoding",),
    "types": ("ulp_of",),
}


def names() -> dict[str, str]:
    """Every public name and its location, as ``module:attribute``."""
    found = {name: f"types:{name}" for name in types.__all__ if name not in RETIRED["types"]}
    found |= _placed(FIXED)
    for op in all_ops().values():
        for public in (op.function, op.plan, op.plan.descriptor):
            found[public.__name__] = f"{public.__module__.removeprefix('baracuda_py.')}:{public.__name__}"
    return dict(sorted(found.items()))


def _placed(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: f"{module}:{name}" for module, group in groups.items() for name in group}


def index_text(found: dict[str, str]) -> str:
    lines = ['"""Generated by `python -m baracuda_py.cli.generate`: where each public name lives."""', "", "NAMES = {"]
    lines += [f'    "{name}": "{place}",' for name, place in found.items()]
    lines += ["}", "", "RETIRED = {", *(f'    "{n}": "{at}",' for n, at in sorted(_placed(RETIRED).items()))]
    kinds = textwrap.wrap(", ".join(f'"{k.name}"' for k in ElementKind), COLUMNS - 4, break_long_words=False)
    lines += ["}", "", "KINDS = (", *(f"    {part}" for part in kinds), ")", ""]
    return "\n".join(lines)


# The accepted type of a field, by its stored type; an enumeration also accepts its members' values.
TAKEN = {"ElementKind": "ElementLike", "tuple[int, ...]": "Sequence[int]", "Ranges": "Sequence[Any]"}
# What the stub calls the accepted types that most fields have.
SHORT = {"Sequence[int] | None": "_Ints", "ElementLike | None": "_Kind"}


def stub_text(found: dict[str, str]) -> str:
    operations = all_ops()
    lines = [
        '"""Generated by `python -m baracuda_py.cli.generate`: the public names with their signatures."""',
        "",
        "from collections.abc import Callable, Sequence",
        "from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar",
        "",
    ]
    classes: list[Any] = []
    functions: dict[str, Any] = {}
    imported: dict[str, dict[str, None]] = {"plan.descriptor": {"Layout as _Layout": None}}
    for name, place in found.items():
        module, _, attribute = place.partition(":")
        public = getattr(importlib.import_module(f"baracuda_py.{module}"), attribute)
        if name in operations:
            continue
        if hasattr(public, "__signature__"):  # made of a row: its module declares no such name
            functions[name] = public
            continue
        if _converts(public) or _plans(public):
            attribute = _declared(public)
            name = f"_{attribute}"
            classes.append(public)
        imported.setdefault(module, {})[f"{attribute} as {name}"] = None
    for module, parts in imported.items():
        lines += _filled(f"from .{module} import (", tuple(parts), ")")
    lines += ["", "__version__: str", *(f"{k.name}: ElementKind" for k in ElementKind)]
    lines += [*(f"{name}: TypeAlias = {kind}" for kind, name in SHORT.items()), ""]
    shared = _shared([public for public in classes if issubclass(public, Descriptor)])
    for operand, name in shared.items():
        lines += [f"class {name}:", *operand.attributes]
    for public in sorted(classes, key=_plans):
        lines += _plan_lines(public) if _plans(public) else _constructor_lines(public, shared)
    lines += FUNCTION_TYPE.splitlines()[1:]
    for name, op in operations.items():
        lines += [f"@_op({op.plan.descriptor.__name__}, {op.plan.__name__})", *_function_lines(name, op.function)]
    for name, function in functions.items():
        lines += _function_lines(name, function)
    lines += [f"{alias} = {op}" for alias, op in ALIASES.items() if alias not in operations]
    return "\n".join([*lines, ""])


def _function_lines(name: str, function: Any) -> list[str]:
    parameters, result = signature_text(function)[1:].rsplit(")", 1)
    return _filled(f"def {name}(", split_parameters(parameters), f"){result}: ...")


def _declared(public: type) -> str:
    """The class that a module declares under that name; that of a class which was made of a row is its base."""
    return str(getattr(public, "declared_as", public).__name__)


def _filled(head: str, parts: Sequence[str], tail: str) -> list[str]:
    """``head``, the parts separated by commas, and ``tail``, on as few lines as hold them."""
    lines, indent = [head], " " * (4 + len(head) - len(head.lstrip()))
    for i, part in enumerate(parts):
        part += ", " if i < len(parts) - 1 else tail
        if len(lines[-1]) + len(part.rstrip()) > COLUMNS:
            lines.append(indent)
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _converts(public: Any) -> bool:
    """Whether it is a dataclass whose constructor accepts other types than it stores."""
    return isinstance(public, type) and issubclass(public, (Descriptor, PlanPreference))


def _plans(public: Any) -> bool:
    return isinstance(public, type) and issubclass(public, Plan) and public is not Plan


def _plan_lines(plan: type[Plan[Any]]) -> list[str]:
    """A plan whose `desc` is the public descriptor."""
    return [f"class {plan.__name__}(_{_declared(plan)}): desc: {plan.descriptor.__name__}"]


class _Operand(NamedTuple):
    """One operand of a descriptor: the fields that the table adds for it, with their types, and whether a problem may lack it."""

    name: str
    fields: tuple[tuple[str, str], ...]
    optional: bool

    @property
    def attributes(self) -> list[str]:
        layout = "_Layout | None" if self.optional else "_Layout"
        return [*(f"    {field}: {kind}" for field, kind in self.fields), f"    {self.name}: {layout}"]


def _operands(public: Any) -> list[_Operand]:
    """The operands of a descriptor that have a layout as attribute."""
    kinds = {f.name: str(f.type) for f in fields(public) if f.name in public.put_in}
    found = []
    for slot in public.slots:
        own = ((f"{slot.name}_{what}") for what in ("shape", "element", "strides", "align"))
        if isinstance(getattr(public, slot.name), OperandLayout):
            found.append(_Operand(slot.name, tuple((n, kinds[n]) for n in own if n in kinds), slot.optional))
    return found


def _shared(descriptors: Sequence[Any]) -> dict[_Operand, str]:
    """The operands that several descriptors have alike, and what they are called in the stub."""
    count = Counter(operand for public in descriptors for operand in _operands(public))
    titles = {operand: "_" + "".join(map(str.title, operand.name.split("_"))) for operand in count}
    shared: dict[_Operand, str] = {}
    for operand in sorted(operand for operand, n in count.items() if n > 1):
        name = titles[operand]
        others = {title for title in titles.values() if title != name}  # the second x is not the first x2
        taken = others | set(shared.values())
        numbered = (f"{name}{n}" for n in itertools.count(2))
        shared[operand] = next(one for one in itertools.chain([name], numbered) if one not in taken)
    return shared


def _constructor_lines(public: Any, shared: Mapping[_Operand, str]) -> list[str]:
    """The stub of a dataclass, whose constructor has the accepted types. Fields of the table, and those behind them, are given by
    name."""
    name, put_in = public.__name__, getattr(public, "put_in", ())
    operands = _operands(public) if hasattr(public, "slots") else []
    bases = [f"_{_declared(public)}", *(shared[operand] for operand in operands if operand in shared)]
    lines = _filled(f"class {name}(", bases, "):")
    lines += [line for operand in operands if operand not in shared for line in operand.attributes]
    known = {field for operand in operands for field, _ in operand.fields}
    of_row = _own_fields(public) if hasattr(public, "declared_as") and put_in else ()
    own = [f for f in fields(public) if (f.name in put_in or f.name in of_row) and f.name not in known]
    lines += [f"    {f.name}: {f.type}" for f in own]
    parameters = ["self"]
    for f in fields(public):
        parameters += ["*"] if f.name in put_in and "*" not in parameters else []
        default = "" if f.default is MISSING and f.default_factory is MISSING else " = ..."
        taken = _taken(str(f.type))
        parameters.append(f"{f.name}: {SHORT.get(taken, taken)}{default}")
    return [*lines, *_filled("    def __init__(", parameters, ") -> None: ...")]


def _own_fields(public: Any) -> set[str]:
    """The fields of a row that the class which its module declares lacks."""
    declared = {name for base in public.declared_as.__mro__ for name in inspect.get_annotations(base)}
    return {f.name for f in fields(public)} - declared


def _taken(stored: str) -> str:
    """The annotation of a parameter for a field of that annotation: ``ElementLike | None`` for ``ElementKind | None``."""
    kind = stored.removesuffix(" | None")
    member = getattr(types, kind, None)
    if kind not in TAKEN and isinstance(member, type) and issubclass(member, enum.Enum):
        return f"{kind} | str{stored[len(kind) :]}"
    return TAKEN.get(kind, kind) + stored[len(kind) :]


def kinds_text() -> str:
    """The enumeration of categories, which are those of the families, and those of the elementwise ops, from their tables."""
    lines = [
        '"""Generated by `python -m baracuda_py.cli.generate`: categories of ops, and kinds of elementwise ones."""',
        "",
        "from __future__ import annotations",
        "",
        "import enum",
        "",
        "from .vocabulary import Extensible, Named",
        "",
        '__all__ = ["BinaryKind", "OpCategory", "TernaryKind", "UnaryKind"]',
    ]
    categories = sorted({op.plan.category.name for op in all_ops().values()})
    lines += ["", "", "class OpCategory(Extensible):", *(f"    {name} = enum.auto()" for name in categories)]
    for family in ("Unary", "Binary", "Ternary"):
        rows = [op for op in all_ops().values() if op.plan.__name__ == f"{family}Plan"]
        rows.sort(key=lambda op: op.function.__module__ != op.plan.__module__)  # the family's own table first
        lines += ["", "", f"class {family}Kind(Named):", *(f"    {op.name.upper()} = enum.auto()" for op in rows)]
    return "\n".join([*lines, ""])


def readme_text(text: str) -> str:
    """The README's text with its row of families generated from their docstrings."""
    return re.sub(r"^\| \[ops\]\(docs/ops\.md\), .*$", lambda _: readme_row(), text, flags=re.MULTILINE)


# The family that docs/adding-an-op.md shows, as `baracuda_py.cli.new` writes it.
SHOWN = Names("scale", "scale_rows")


def adding_text(text: str) -> str:
    """The page about adding an op, with the files of a new family as the template has them."""
    for path, shown in checkout_files(SHOWN).items():
        sign = "//" if path.endswith(".cu") else "#"
        block = re.compile(rf"(?<=^{sign} {re.escape(path)}\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
        text = block.sub(lambda _, shown=shown: shown, text)  # type: ignore[misc]
    return text


def pages() -> dict[str, str]:
    """The generated pages, by their paths below ``docs/``."""
    found = {f"ops/{op.name}.md": page_text(op) for op in all_ops().values()}
    return {"ops.md": ops_text(), **found}


def write(check: bool = False) -> list[str]:
    """Writes the files, or (with `check`) returns the names of stale files."""
    found = names()
    texts = {"types/kinds.py": kinds_text(), "_index.py": index_text(found), "__init__.pyi": stub_text(found)}
    stale = _replaced(texts, check)
    if not (PACKAGE.parent / "README.md").is_file():  # not in a checkout
        return stale
    if "types/kinds.py" not in stale:
        return stale + _replaced(_documents(), check) + _removed(check)
    if not check:  # the pages need the new kinds, which this process has not imported
        subprocess.run([sys.executable, "-m", "baracuda_py.cli.generate"], cwd=PACKAGE.parent, check=True)
    return stale


def _documents() -> dict[str, str]:
    """The README and the pages, by their paths from the package."""
    edited = {"../README.md": readme_text, "../docs/adding-an-op.md": adding_text}
    texts = {file: change((PACKAGE / file).read_text(encoding="utf-8")) for file, change in edited.items()}
    return texts | {f"../docs/{page}": text for page, text in pages().items()}


def _replaced(texts: Mapping[str, str], check: bool) -> list[str]:
    """The files with another text than these; they are written unless `check` is set."""
    stale = []
    for file, text in texts.items():
        path = PACKAGE / file
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(file)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    return stale


def _removed(check: bool) -> list[str]:
    """The pages of ops that there are no more; they are removed unless `check` is set."""
    folder = PACKAGE.parent / "docs/ops"
    stale = sorted(path for path in folder.glob("*.md") if path.stem not in all_ops())
    for path in stale:
        if not check:
            path.unlink()
    return [f"../docs/ops/{path.name}" for path in stale]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a generated file is stale")
    check = parser.parse_args().check
    stale = write(check)
    print(f"stale: {', '.join(stale)}" if check and stale else f"wrote {', '.join(stale)}" if stale else "up to date")
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
