"""What our own kernels reach: a change that reaches a kernel's PTX changes its digest, and a new function changes no other's."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import baracuda_py as bp
from baracuda_py.ops.elementwise.fused.plan import FusedPlan
from baracuda_py.plan import all_ops
from baracuda_py.plan.about import ledger
from baracuda_py.runtime.compile import definitions, sources
from baracuda_py.runtime.compile.compiler import _build_ptx
from baracuda_py.runtime.compile.sources import kernels_dir
from baracuda_py.runtime.steps import Kernel, Launch
from baracuda_py.types import CompileError
from benchmarks.shapes import SHAPES

from .. import resources
from ..ledger import unverified
from .ptx_code import code_of

ARCH = "sm_90a"
DRAWS, ALL = 32, 600  # edits that the random test compiles, and with --all


@lru_cache(maxsize=1)
def kernels() -> dict[str, list[Kernel]]:
    """What each op launches for its probes."""
    launched = {name: [steps for _, steps in ledger.lowered(op, ARCH)] for name, op in all_ops().items()}
    each = {
        name: dict.fromkeys(s.kernel for x in all_ for s in x if isinstance(s, Launch))
        for name, all_ in launched.items()
    }
    return {name: list(found) for name, found in each.items()}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch copy of the kernels, which are read from there."""
    folder = tmp_path / "kernels"
    shutil.copytree(kernels_dir(), folder)
    kernels()
    monkeypatch.setattr(sources, "kernels_dir", lambda: folder)
    forget()
    yield folder
    monkeypatch.undo()
    forget()


def forget() -> None:
    for cache in (sources._source, ledger._digest_of):
        cache.cache_clear()


def digest(kernel: Kernel) -> str:
    return sources.source_of(kernel).digest(kernel.entry)


def test_every_definition_is_in_the_digest_of_an_op() -> None:
    """What no digest counts could be changed without being tested again. Element types that no probe
    has are all that may be missing."""
    plans = {op.plan for op in all_ops().values()} | {FusedPlan}  # fused functions are no op: nothing records them
    declared = {kernel.partition(":")[::2] for plan in plans for c in plan.candidates for kernel in c.launches}
    every = [*itertools.chain(*kernels().values()), *(Kernel(file, entry) for file, entry in declared)]
    reached = {name for k in every for name in sources.source_of(k).reached(k.entry)}
    for path in kernels_dir().rglob("*.cu*"):
        for piece in definitions.read(path.read_text()).parts:
            if isinstance(piece, definitions.Piece) and piece.names and "using" not in piece.uses:
                assert piece.names & reached, f"{path.name}: {sorted(piece.names)} is in nobody's digest"


NEW = """
namespace math {
template <int digits> __device__ __forceinline__ float newcomer(float x) { return log<digits>(1.0f + exp<digits>(x)); }
template <int digits, class C> __device__ __forceinline__ C newcomer_of_two(C a, C b) { return sqrt<digits>(a * a + b * b); }
}  // namespace math
"""


@lru_cache(maxsize=1)
def swept() -> list[bp.MatmulDescriptor]:
    return [shape.product.descriptor() for shape in SHAPES[::10]]


def known() -> tuple[list[str], list[str], list[str]]:
    """The ops that are not verified, rows of resources that are not those listed, and where selected plans come from."""
    stale = [
        resources.label(k)
        for op in ("exp", "silu", "contiguize", "matmul")
        for k in resources.kernels_of(all_ops()[op], ARCH)
        if resources.listed(op)[ARCH][resources.label(k)][0] != resources.digest(k)
    ]
    return unverified(), stale, [bp.MatmulPlan.select(desc, device="h200").provenance for desc in swept()]


def test_new_functions_in_headers_leave_every_record(copy: Path) -> None:
    """Two in front and behind of every header, and a header of their own beside them."""
    before = known()
    assert not before[1] and "shipped" in before[2]
    assert len(all_ops()) - len(before[0]) > 100, "what no device has run says nothing here"
    for path in (copy / "include").rglob("*.cuh"):
        text = path.read_text().replace("#pragma once\n", f"#pragma once\n{NEW}") + NEW.replace("newcomer", "latecomer")
        path.write_text(text)
    forget()
    assert known() == before


def test_a_function_that_is_edited_voids_what_it_reaches_alone(copy: Path) -> None:
    before = digests()
    path = copy / "include/math/erf.cuh"
    path.write_text(path.read_text().replace("6.76f", "6.77f"))
    forget()
    assert {op for op, digest in digests().items() if digest != before[op]} == {"erf"}
    path = copy / "include/products/epilogue.cuh"
    path.write_text(path.read_text().replace("1.5957691216057308", "1.5957691216057309"))
    forget()
    products = {op for op in all_ops() if op.startswith(("matmul", "qkv_project", "linear_cross_entropy", "muon"))}
    assert {op for op, digest in digests().items() if digest != before[op]} == {"erf", *products}


def digests() -> dict[str, str]:
    return {name: ledger.op_digest(op) for name, op in all_ops().items()}


# ---- edits at random -----------------------------------------------------------------------------------------------------

_SWAPS = {" + ": " - ", " < ": " > ", " * ": " + ", "row": "col", "&&": "||", " == ": " != ", "true": "false"}
_PLACE = re.compile(r"(?<![\w.])\d+|" + "|".join(map(re.escape, _SWAPS)))
_TEXT = re.compile(r'//[^\n]*|^\s*#[^\n]*|\b0x\w+|"(?:\\.|[^"\\\n])*"', re.MULTILINE)


def edited(text: str, rng: random.Random) -> str:
    """`text` with one number, operator or word changed, outside comments, directives and strings; unchanged if it has none."""
    places = list(_PLACE.finditer(_TEXT.sub(lambda found: " " * len(found[0]), text)))
    if not places:
        return text
    place = rng.choice(places)
    instead = str(int(place[0]) + 1) if place[0].isdigit() else _SWAPS[place[0]]
    return text[: place.start()] + instead + text[place.end() :]


def one_of_each_file() -> list[Kernel]:
    """A few kernels of every file and entry, of different ops."""
    chosen: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in itertools.chain(*kernels().values()):
        chosen.setdefault((kernel.file, kernel.entry.partition("<")[0]), []).append(kernel)
    rng = random.Random(1)
    return [k for each in chosen.values() for k in rng.sample(each, min(len(each), 6))]


def part_of_ptx(kernel: Kernel) -> str:
    """Empty where the file does not compile."""
    try:
        text = _build_ptx(kernel, ARCH)
    except CompileError:
        return ""
    return re.sub(
        r"_INTERNAL_\w+?_cu_[0-9a-f]{8}", "", code_of(text, f"{len(name := kernel.entry.partition('<')[0])}{name}")
    )


@pytest.mark.timeout(3600)
def test_edit_that_keeps_a_digest_keeps_the_ptx(copy: Path, everything: bool) -> None:
    """Of what is edited at random, what the kernel is said not to reach."""
    rng, choice = random.Random(14), one_of_each_file()
    before: dict[Kernel, str] = {}
    reaching = compiled = 0
    while compiled < (ALL if everything else DRAWS):
        kernel = rng.choice(choice)
        name = rng.choice([kernel.file, *(f"include/{header}" for header in sources.source_of(kernel).headers)])
        known, text = digest(kernel), (copy / name).read_text()
        changed = edited(text, rng)
        (copy / name).write_text(changed)
        forget()
        reaching += digest(kernel) != known
        if digest(kernel) == known and changed != text:
            after = part_of_ptx(kernel)
            (copy / name).write_text(text)
            forget()
            code = before[kernel] if kernel in before else before.setdefault(kernel, part_of_ptx(kernel))
            compiled += 1
            assert after in (code, ""), f"{kernel}: {name} was edited, and its digest is as it was"
        (copy / name).write_text(text)
        forget()
    assert reaching >= compiled // 2, "hardly anything is reached"
