"""No argument of a public function is ignored: where it has no meaning it is refused, and nothing is written."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op

from ..families import NoMeaning, declared, family_of, joined

IDLE = joined(lambda family: family.no_meaning)
ALWAYS = {"out", "stream", "pref", "device"}  # of every function


@pytest.mark.parametrize(
    ("op", "idle"), [(row.op, row) for row in IDLE], ids=[f"{i} {row.op}" for i, row in enumerate(IDLE)]
)
def test_what_has_no_meaning_is_refused(op: str, idle: NoMeaning) -> None:
    arguments, options = idle.call
    arrays = [x for x in (*arguments, *options.values()) if isinstance(x, np.ndarray)]
    before = [x.copy() for x in arrays]
    with pytest.raises(idle.error, match=idle.says):
        getattr(bp, op)(*arguments, **options, device="cpu")
    assert all(np.array_equal(x, y) for x, y in zip(arrays, before))


@pytest.mark.parametrize("op", list(all_ops()))
def test_every_argument_that_may_have_no_meaning_is_tried(op: str) -> None:
    """Those with a default: each always means something, or is refused in a call that its family declares."""
    name = family_of(op)
    family = declared().get(name)
    tried = {argument for row in family.no_meaning for argument in row.call[1]} if family else set()
    known = ALWAYS | tried | set(family.always if family else ()) | get_op(op).arguments.keys()
    optional = {n for n, p in parameters(op).items() if p.default is not inspect.Parameter.empty}
    assert optional <= known, (
        f"{op}: for each of {sorted(optional - known)}, give tests/families/{name} a call in which it is refused "
        f"(`no_meaning`), or name it in `always`"
    )


def parameters(op: str) -> Any:
    return inspect.signature(getattr(bp, op)).parameters


@pytest.mark.parametrize("name", list(declared()))
def test_what_families_say_of_arguments_is_needed(name: str) -> None:
    family, ops = declared()[name], [op for op in all_ops() if family_of(op) == name]
    assert set(family.always) <= {argument for op in ops for argument in parameters(op)}
    assert {row.op for row in family.no_meaning} <= set(ops)


def test_a_descriptor_refuses_what_it_would_drop() -> None:
    for more in ({"start": np.array(0)}, {"status": np.array(0, np.int32)}):
        with pytest.raises(bp.InvalidProblemError, match="no dynamic_axis"):
            bp.WriteSliceDescriptor.of(np.zeros(4), np.zeros(1), [(0, 1)], **more)
