"""Elements picked and found by other means: line by line, by NumPy's own modes and indices. No oracle code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...arena import as_bytes
from ...gauntlet import Problem

__all__ = ["CHECKS"]


def _take_along_axis(problem: Problem) -> None:
    """Line by line, by `np.take`, whose modes are NumPy's own."""
    x, indices = problem.slots["x"].host(), problem.slots["indices"].host()
    mode, axis = problem.sample.options["mode"], problem.sample.options.get("axis", -1)
    got = np.moveaxis(as_bytes(np.ascontiguousarray(problem.wide["out"])), axis, -1)
    x, indices = np.moveaxis(as_bytes(x), axis, -1), np.moveaxis(indices, axis, -1)
    bad = 0
    for line in np.ndindex(*got.shape[:-1]):
        at = tuple(0 if n == 1 else i for n, i in zip(x.shape, line))
        places = indices[tuple(0 if n == 1 else i for n, i in zip(indices.shape, line))]
        for j, place in enumerate(places.tolist()):
            if mode != "status":
                assert got[(*line, j)].tobytes() == np.take(x[at], [place], mode=mode).tobytes()
                continue
            try:
                assert got[(*line, j)].tobytes() == list(x[at])[place].tobytes()
            except IndexError:
                bad += 1
                assert got[(*line, j)].tobytes() == bytes(x.itemsize)
    if mode == "status":
        assert int(problem.wide["status"]) == (bad > 0)


def _nonzero(problem: Problem) -> None:
    x = problem.slots["x"].host()
    wanted = [list(at) for at in np.ndindex(*x.shape) if bool(x[at])]
    assert problem.wide["out"].tolist() == wanted
    assert problem.wide["count"].tolist() == [len(wanted)]


CHECKS: dict[str, Callable[[Problem], None]] = {"take_along_axis": _take_along_axis, "nonzero": _nonzero}
