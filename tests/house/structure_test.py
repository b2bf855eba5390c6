"""How the package hangs together: imports and includes point one way, no module reaches into another, none is long, a call walks
straight."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.runtime.compile.sources import kernels_dir

from ..call.simulated import Gpus, simulated
from .structure import Module, circles, folders, foreign_imports, includes_of, modules_of, private_uses, upward

PACKAGE = Path(bp.__file__).resolve().parent
LINES = 400
MODULES = 14  # of a folder
# Folders that are still larger, and may not grow.
CROWDED = {"call": 16, "cli": 16, "emulator": 51, "ops.attention": 22, "runtime": 20}
# From the bottom up: a module imports none of a layer above its own. What uses a plan to run it stands above `call`.
LAYERS = (
    ("types",),
    ("numerics", "samples"),
    ("runtime",),
    ("tensor", "packed"),
    ("plan",),
    ("emulator",),
    ("call",),
    ("plan.plan", "plan.about.tune", "plan.about.verify"),
    ("functional",),
    ("ops",),
    ("interop", "cli", "__main__", ""),
)
# The shared folders of kernels/include, from the bottom up: a header includes headers of its own folder and of lower rungs. Above
# them stand the folders of one family each: a kernel includes headers of its own family and of the rungs.
LADDER = (("core",), ("ptx",), ("math",), ("rows", "random"), ("products", "position"), ("attention",))


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return modules_of(PACKAGE)


def short(name: str) -> str:
    return name.removeprefix("baracuda_py").removeprefix(".")


def layer(name: str) -> int:
    """The place of a module by the longest entry of `LAYERS` that begins its name."""
    found = [
        (len(entry), place)
        for place, entries in enumerate(LAYERS)
        for entry in entries
        if entry == short(name) or (entry and short(name).startswith(entry + "."))
    ]
    return max(found)[1] if found else len(LAYERS) - 1


def test_no_modules_import_one_another(modules: dict[str, Module]) -> None:
    assert circles(modules) == []


def test_no_modules_import_one_another_for_types(modules: dict[str, Module]) -> None:
    assert circles(modules, types=True) == []


def test_no_module_uses_what_is_private_to_another(modules: dict[str, Module]) -> None:
    assert private_uses(modules) == []


def test_imports_point_down(modules: dict[str, Module]) -> None:
    up = {f"{name} -> {to}" for name, module in modules.items() for to, _ in module.imported if layer(to) > layer(name)}
    assert up == set()


def test_no_module_is_long(modules: dict[str, Module]) -> None:
    lengths = {short(name): len(module.text.splitlines()) for name, module in modules.items()}
    del lengths["_index"]  # generated, one line per public name
    assert {name: lines for name, lines in lengths.items() if lines > LINES} == {}


def test_no_folder_holds_many_modules(modules: dict[str, Module]) -> None:
    held = {short(name): count for name, count in folders(modules).items()}
    assert {name: count for name, count in held.items() if count > MODULES} == {}


def knows(*rooms: str) -> Callable[[str], bool]:
    """Whether a module is in one of these folders of the package, or in a family's folder of that name."""
    return lambda name: short(name).partition(".")[0] in rooms or not set(rooms).isdisjoint(name.split("."))


def test_oracles_import_types_numerics_and_oracles_alone(modules: dict[str, Module]) -> None:
    assert sum("oracle" in name.split(".") for name in modules) > 20
    assert foreign_imports(modules, "oracle", knows("types", "numerics", "oracle"), ("numpy", "ml_dtypes")) == []


def test_samples_import_no_op(modules: dict[str, Module]) -> None:
    known = knows("types", "numerics", "oracle", "samples", "wanted", "_row_problems")
    for folder in ("samples", "wanted"):
        assert foreign_imports(modules, folder, known, ("numpy", "ml_dtypes")) == []


# ---- headers of kernels ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def includes() -> dict[str, list[str]]:
    return includes_of(kernels_dir())


def test_headers_are_on_the_ladder_or_of_a_family() -> None:
    """No header is flat, no rung is empty, and another folder is called like that of the kernels that share it."""
    include = kernels_dir() / "include"
    folders = {path.relative_to(include).parts[0] for path in include.rglob("*.cuh")}
    families = {path.parent.relative_to(kernels_dir()).as_posix() for path in kernels_dir().rglob("*.cu")}
    shared = {folder for rung in LADDER for folder in rung}
    assert folders >= shared and folders - shared <= families


def test_includes_point_down(includes: dict[str, list[str]]) -> None:
    assert len(includes) > 100 and upward(includes, LADDER) == []


def test_no_headers_include_one_another(includes: dict[str, list[str]]) -> None:
    TopologicalSorter(includes).prepare()


PLANTED_HEADERS = {
    "include/low/one.cuh": '#include "low/two.cuh"\n#include "left/one.cuh"\n',
    "include/low/two.cuh": '// #include "left/one.cuh"\n#include <cuda_fp16.h>\n#include "flat.cuh"\n',
    "include/left/one.cuh": '#pragma once\n  # include "low/two.cuh"\n#include "right/one.cuh"\n',
    "include/right/one.cuh": '#include "right/deeper/one.cuh"\n',
    "include/right/deeper/one.cuh": '#include "right/one.cuh"\n#include "own/one.cuh"\n',
    "include/own/one.cuh": '#include "low/one.cuh"\n#include "right/one.cuh"\n#include "other/one.cuh"\n',
    "include/flat.cuh": "",
    "own/kernel.cu": '#include "low/one.cuh"\n#include "own/one.cuh"\n#include "other/one.cuh"\n',
    "left/kernel.cu": '#include "left/one.cuh"\n#include "right/one.cuh"\n#include "own/one.cuh"\n',
}


def test_includes_that_point_up_or_in_circles_are_found(tmp_path: Path) -> None:
    for name, text in PLANTED_HEADERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = includes_of(tmp_path)
    assert sorted(upward(found, (("low",), ("left", "right")))) == [
        "left/kernel.cu -> own/one.cuh", "left/one.cuh -> right/one.cuh", "low/one.cuh -> left/one.cuh",
        "low/two.cuh -> flat.cuh", "own/kernel.cu -> other/one.cuh", "own/one.cuh -> other/one.cuh",
        "right/deeper/one.cuh -> own/one.cuh",
    ]  # fmt: skip
    with pytest.raises(CycleError, match=r"right/deeper/one\.cuh"):
        TopologicalSorter(found).prepare()


# ---- generated files ---------------------------------------------------------------------------------------------------


def test_gitattributes_mark_files_that_commands_write() -> None:
    """Each pattern is of files that exist, and those of every command that writes files are marked."""
    root = PACKAGE.parent
    lines = (root / ".gitattributes").read_text().splitlines()
    patterns = [line.removesuffix(" linguist-generated") for line in lines if line.endswith(" linguist-generated")]
    marked = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    assert {path.name for path in marked} >= {"_index.py", "__init__.pyi", "add.json", "RESULTS.md", "unexecuted.txt"}
    assert [pattern for pattern in patterns if not any(root.glob(pattern))] == []


# ---- the checks themselves ---------------------------------------------------------------------------------------------

PLANTED = {
    "__init__.py": "",
    "low.py": "_hidden = 1\n\nclass Thing:\n    def __init__(self):\n        self._part = 1\n        self.whole = 2\n",
    "left.py": "def f():\n    from .right import g\n    return g\n",
    "right.py": "from . import left\n\ndef g():\n    return left.f\n",
    "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .user import use\n",
    "user.py": "from . import typed\nfrom .low import Thing, _hidden\n\ndef use(x: Thing):\n    return x._part, x.whole\n",
    "own.py": "class Own:\n    _mine = 1\n    def f(self, other):\n        return other._mine, self._mine\n",
    "folder/__init__.py": "",
    "folder/_inner.py": "x = 1\n",
    "folder/door.py": "from ._inner import x\n",
    "folder/oracle.py": "import os\nimport numpy as np\nfrom torch.nn import f\nfrom ..low import Thing\nfrom . import door\n",
    "window.py": "from .folder import _inner\n",
    "folder/_cellar/__init__.py": "",
    "folder/_cellar/wine.py": "x = 1\n",
    "folder/stairs.py": "from ._cellar.wine import x\n",
    "thief.py": "from .folder._cellar.wine import x\n",
}


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, Module]:
    for name, text in PLANTED.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return modules_of(tmp_path / "tree")


def test_circles_are_found_inside_functions_and_among_types(planted: dict[str, Module]) -> None:
    assert circles(planted) == [["tree.left", "tree.right"]]
    assert circles(planted, types=True) == [["tree.left", "tree.right"], ["tree.typed", "tree.user"]]


def test_private_uses_are_found(planted: dict[str, Module]) -> None:
    assert sorted(private_uses(planted)) == [
        "tree.thief: the module tree.folder._cellar.wine", "tree.user: _hidden of tree.low", "tree.user:5 x._part",
        "tree.window: the module tree.folder._inner",
    ]  # fmt: skip


def test_folders_are_counted_without_their_own_file(planted: dict[str, Module]) -> None:
    assert folders(planted) == {"tree": 8, "tree.folder": 4, "tree.folder._cellar": 1}


def test_foreign_imports_of_an_oracle_are_found(planted: dict[str, Module]) -> None:
    found = foreign_imports(planted, "oracle", lambda name: name == "tree.low", ("numpy",))
    assert found == ["tree.folder.oracle -> torch", "tree.folder.oracle -> tree.folder.door"]


# ---- the walk of a call ------------------------------------------------------------------------------------------------


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    yield from simulated(monkeypatch, "h200")


class OperandStrides:
    """Which modules of the package a call goes through. `stays` are they in turn; `entered` says how often each module of the
    rooms that carry a call is called from another of them, what it asks of operands, descriptors and devices left out."""

    CARRY = ("baracuda_py.call.", "baracuda_py.functional", "baracuda_py.plan.plan")

    def __init__(self) -> None:
        self.stays: list[str] = []
        self.entered: Counter[str] = Counter()

    def _step(self, frame: Any, event: str, _arg: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("baracuda_py."):
            return
        if not self.stays or self.stays[-1] != name:
            self.stays.append(name)
        if name.startswith(self.CARRY):
            before = frame.f_back
            while before is not None and not before.f_globals.get("__name__", "").startswith(self.CARRY):
                before = before.f_back
            self.entered[short(name)] += before is None or before.f_globals["__name__"] != name

    def __enter__(self) -> OperandStrides:
        sys.setprofile(self._step)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)


def walks(gpus: Gpus) -> dict[str, OperandStrides]:
    a, b, out = (gpus.array(np.ones((64, 64), np.float32)) for _ in range(3))
    desc = bp.MatmulDescriptor.of(a, b, out=out)
    plan = bp.MatmulPlan.select(desc)
    calls = {"function": lambda: bp.matmul(a, b, out=out), "run": lambda: plan.run(a=a, b=b, out=out)}
    found = {}
    for name, call in calls.items():
        for way in ("checked", "hit"):
            with OperandStrides() as found[f"{name}, {way}"]:
                call()
    return found


def test_a_call_that_was_made_before_goes_straight_to_the_launch(gpus: Gpus) -> None:
    for name, walk in walks(gpus).items():
        if "hit" in name:
            assert max(Counter(walk.stays).values()) <= 2 and len(walk.stays) <= 9, walk.stays
            assert walk.stays[-1] == "baracuda_py.runtime.launch"
    assert gpus.work


def test_a_new_call_does_not_wander(gpus: Gpus) -> None:
    """Each module is entered for what it does first and for what it does last. All ask `key` for an array's layout."""
    for name, walk in walks(gpus).items():
        if "checked" in name:
            del walk.entered["call.operands.key"]
            assert "call.paths.resolve" in walk.entered and max(walk.entered.values()) <= 2, walk.entered


def test_cuda_lines_have_120_columns_at_most() -> None:
    """A macro's lines are one token stream with their line ends, by which records are kept: they stay unwrapped."""
    root = kernels_dir()
    lines = (
        (f"{path.relative_to(root)}:{number}", line)
        for path in sorted((*root.rglob("*.cu"), *root.rglob("*.cuh")))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    )
    assert [place for place, line in lines if len(line) > 120 and not line.endswith("\\")] == []
