"""Wanted problems: each is in the folder of its op's family, has a name of its own, and is made only where it is asked for."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from baracuda_py.plan import all_wanted, get_op

LOADED = (
    "[name for name in sys.modules if name.startswith('baracuda_py.ops.') and hasattr(sys.modules[name], 'problems')]"
)


def test_names_are_unique() -> None:
    names = Counter(wanted.name for wanted in all_wanted())
    assert len(names) > 150 and [name for name, count in names.items() if count > 1] == []


def test_problems_are_in_the_folder_of_their_family() -> None:
    placed = {
        id(wanted): name
        for name, module in sys.modules.items()
        if name.startswith("baracuda_py.ops.") and "wanted" in name.split(".")
        for wanted in getattr(module, "problems", ())
    }
    elsewhere = [
        wanted.name
        for wanted in all_wanted()
        if family(placed[id(wanted)]) != family(get_op(wanted.op).function.__module__)
    ]
    assert elsewhere == []


def family(module: str) -> str:
    """The folder below `ops`."""
    return module.split(".")[2]


def test_a_look_up_of_an_op_makes_no_problems() -> None:
    made = f"import sys; from baracuda_py.plan import all_wanted, get_op; get_op('matmul'); print(len({LOADED}))"
    asked = f"{made}; all_wanted(); print(len({LOADED}) > 8)"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["0", "True"]
