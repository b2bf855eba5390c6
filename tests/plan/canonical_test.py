"""Canonical descriptors: what is carried over from the problem as it was given is what would be worked out afresh."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.registry import all_ops
from baracuda_py.types import BaracudaError, DeviceSpec


def described(name: str) -> list[Any]:
    """The op's probes that it takes."""
    op, found = all_ops()[name], []
    for probe in op.plan.probes:
        try:
            desc = op.describe(**probe)
            desc.validate()
        except BaracudaError:
            continue
        found.append(desc)
    return found


@pytest.mark.parametrize("op", list(all_ops()))
def test_a_canonical_descriptor_is_the_one_that_its_fields_make(op: str) -> None:
    for desc in described(op):
        canonical = desc.canonical()
        made: Any = type(desc)
        fresh = made(**{field.name: getattr(canonical, field.name) for field in fields(canonical)})
        assert fresh == canonical and hash(fresh) == hash(canonical) and repr(fresh) == repr(canonical)
        assert fresh.operands == canonical.operands
        assert [fresh.layout(o.name) for o in fresh.operands] == [canonical.layout(o.name) for o in fresh.operands]
        assert fresh.canonical() == canonical


def test_a_hash_is_kept_by_its_instance_alone() -> None:
    """Texts hash otherwise in another process, and a changed copy is another problem."""
    for value in (bp.MatmulDescriptor((2, 3), (3, 4), "f32", "f32"), DeviceSpec.named("h200")):
        before = hash(value)
        assert "_hash" in vars(value) and "_hash" not in vars(pickle.loads(pickle.dumps(value)))
        assert pickle.loads(pickle.dumps(value)) == value and hash(value) == before
        other: Any = replace(value, **({"a_align": 4} if isinstance(value, bp.MatmulDescriptor) else {"sms": 7}))
        assert hash(other) != before
