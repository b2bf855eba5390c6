"""Categories follow the families' folders, those of packages outside `ops` included."""

from __future__ import annotations

import pickle

import pytest

from baracuda_py.plan import all_ops
from baracuda_py.plan.family import folder_of
from baracuda_py.types import InvalidProblemError, OpCategory
from baracuda_py.types.vocabulary import Extensible

TODAY = (
    "attention", "binary_elementwise", "gemm", "indexing", "norm", "quantization", "reduce", "scan", "shape_layout", "softmax",
    "sort", "ternary_elementwise", "unary_elementwise",
)  # fmt: skip


class Colours(Extensible):
    RED = "red"


def test_categories_of_saved_plans_stay() -> None:
    assert set(TODAY) <= {str(category) for category in OpCategory}
    assert {op.plan.category for op in all_ops().values()} <= set(OpCategory)


@pytest.mark.parametrize(
    ("module", "folder"),
    [
        ("baracuda_py.ops.softmax.forward", "softmax"),
        ("baracuda_py.ops.quantized.int4.matmul", "quantized"),
        ("losses.cross_entropy", "losses"),
        ("company.losses.cross_entropy", "losses"),
        ("single", "single"),
    ],
)
def test_categories_follow_folders(module: str, folder: str) -> None:
    assert folder_of(module) == folder


def test_categories_take_further_members() -> None:
    with pytest.raises(InvalidProblemError, match="is not known"):
        Colours.of("dark_blue")
    blue = Colours.added("dark_blue")
    assert blue is Colours.added("dark_blue") is Colours("dark_blue") is Colours["DARK_BLUE"] is Colours.of("dark_blue")
    assert (blue.name, blue.value, str(blue)) == ("DARK_BLUE", "dark_blue", "dark_blue") and isinstance(blue, Colours)
    assert [*Colours] == [Colours.RED, blue] and {blue: 1}[blue] == 1
    assert pickle.loads(pickle.dumps(blue)) is blue
