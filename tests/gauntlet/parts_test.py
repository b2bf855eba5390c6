"""How the suite is shared out: parts of a test, the extents that ``--small`` leaves, and the order in which tests are begun."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from .. import conftest, extents
from . import WHOLE, Part, cases


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_all_of_it_and_none_twice(count: int) -> None:
    items = list(range(25))
    parts = [Part(i, count).of(items) for i in range(count)]
    assert sorted(x for part in parts for x in part) == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1 and WHOLE.of(items) == items


def test_every_sample_is_run_in_every_part() -> None:
    whole, shared = cases("matmul", "cuda", 16), cases("matmul", "cuda", 16, parts=4)
    assert [(x.index, str(x.part)) for x in shared] == [(x.index, f"{i} of 4") for x in whole for i in (1, 2, 3, 4)]
    assert len({x.label for x in shared}) == len(shared) == 64
    assert shared[5].siblings == shared and whole[5].siblings == whole


def test_small_extents_end_as_large_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for small in (False, True):
        monkeypatch.setattr(extents, "_small", small)
        for size in (1, 129, 300, 1031, 4104, 8192):
            assert extents.extent(size) == (min(size, 256 + size % 128) if small else size)


def test_slow_device_tests_are_dealt_among_the_others() -> None:
    def item(name: str, *, gpu: bool = True, **params: Any) -> Any:
        mark = {"gpu": gpu or None}
        return SimpleNamespace(
            path=SimpleNamespace(name="x_test.py"),
            name=name,
            get_closest_marker=mark.get,
            callspec=SimpleNamespace(params=params),
        )

    host = [item(f"host {i}", gpu=False) for i in range(3)]
    quick, slow = [item(f"quick {i}") for i in range(40)], [item(f"slow {i}", part=Part(i, 5)) for i in range(5)]
    dealt = [x.name for x in conftest._dealt([*quick, *slow, *host])]
    places = [i for i, name in enumerate(dealt) if name.startswith("slow")]
    assert [b - a for a, b in itertools.pairwise(places)] == [7] * 4 and places[-1] < 36
    assert dealt[-3:] == [x.name for x in host] and len(dealt) == 48
    assert [name for name in dealt if name.startswith("quick")] == [x.name for x in quick]
