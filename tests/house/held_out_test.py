"""The held-out sweep where it needs no GPU: its shapes, its peers, its quantiles; and the peers of rearranged rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from benchmarks import held_out
from benchmarks.harness import OURS
from benchmarks.held_out import ELEMENTS, FIRST, OPS, drawn, quantiles, report, summary
from benchmarks.operands import dtype_of
from benchmarks.rearrange_rows import MOVES, TRIU
from benchmarks.row import Row
from benchmarks.rows import ROWS
from benchmarks.run import Session
from benchmarks.stale import HostKit, selections


class SmallKit(HostKit):
    """Random operands in host memory, and torch's functions of the CPU."""

    @property
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def normal(self, shape: tuple[int, ...], dtype: str, *, positive: bool = False) -> Any:
        x = self.rng.standard_normal(shape)
        return (np.abs(x) if positive else x).astype(dtype_of(dtype))


def results(row: Row) -> dict[str, Any]:
    """What each contender of a row computes on the CPU."""
    with bp.device("cpu"):
        calls = row.make(SmallKit())
        made = {name: call() for name, call in calls.items() if name in (OURS, "torch")}
        if "cupy" in calls:
            made["cupy"] = calls["cupy"]()
    assert set(made) >= {OURS, "torch"}
    return {name: [as_numpy(x) for x in (one if isinstance(one, tuple) else (one,))] for name, one in made.items()}


def as_numpy(x: Any) -> np.ndarray[Any, Any]:
    if not isinstance(x, np.ndarray) and str(x.dtype) == "torch.bfloat16":
        return x.float().numpy().astype(dtype_of("bfloat16"))
    return np.asarray(x)


def test_held_out_shapes_are_the_same_ones() -> None:
    rows = drawn()
    assert [row.key for row in rows] == [row.key for row in drawn()] and len(rows) == 300
    assert [row.shape for row in rows[:2]] == list(FIRST)
    assert [row.key for row in drawn(seed=1)] != [row.key for row in rows]
    counts = Counter(row.op for row in rows)
    assert set(counts) == set(OPS) and max(counts.values()) - min(counts.values()) <= 1
    assert len({row.shape for row in rows}) > 295


def test_held_out_shapes_fill_their_range() -> None:
    rows = drawn()[len(FIRST) :]
    sizes = [math.prod(row.shape) for row in rows]
    assert min(sizes) > ELEMENTS[0] / 2 and max(sizes) <= ELEMENTS[1] * 1.02
    assert min(row.shape[1] for row in rows) < 60 and max(row.shape[1] for row in rows) > 600_000
    assert max(row.shape[0] for row in rows) > 400_000
    assert {row.dtype for row in rows} == set(held_out.DTYPES)
    first = sum("axis 0" in row.key for row in rows if "axis" in row.key) / sum("axis" in row.key for row in rows)
    assert 0.2 < first < 0.5


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.endswith("norm_backward") or ("softmax" not in op and "norm" not in op)]
)
def test_held_out_rows_are_planned_on_an_h200(op: str) -> None:
    for row in [row for row in drawn() if row.op == op][:2]:
        assert selections(row, "h200"), row.key


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", OPS)
def test_held_out_peer_computes_the_same(op: str, axis: int) -> None:
    made = results(OPS[op]((5, 37), "float32", axis))
    for ours, theirs in zip(made[OURS], made["torch"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("move", [*MOVES, TRIU], ids=lambda move: f"{move.op} {move.label}")
def test_rearranged_peers_compute_the_same(move: Any) -> None:
    row = move.row((8, 24), "float32")
    made = results(row)
    for theirs in (made["torch"], made["cupy"]):
        np.testing.assert_array_equal(made[OURS][0], theirs[0])
    assert row.written == made[OURS][0].nbytes


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.op == "where" and "KiB" in row.name], ids=lambda row: row.name
)
def test_where_peers_select_the_same(row: Row) -> None:
    made = results(row)
    for name in made.keys() - {OURS}:
        np.testing.assert_array_equal(made[OURS][0].view("u1"), made[name][0].view("u1"))


def test_quantiles_are_between_neighbours() -> None:
    assert quantiles([3.0, 1.0, 2.0], (0.0, 0.25, 0.5, 1.0)) == (1.0, 1.5, 2.0, 3.0)
    assert quantiles([]) == ()
    assert quantiles([2.0], (0.0, 0.5, 1.0)) == (2.0, 2.0, 2.0)


def record(op: str, us: float, floor: float, ratio: float | None) -> dict[str, Any]:
    peers = {} if ratio is None else {"torch": {"us": us / ratio, "ratio": ratio}}
    named = {"kind": "row", "row": f"x/{op}", "op": op, "group": "x"}
    return {**named, "us": us, "floor": {"us": floor}, "peers": peers}


def test_held_out_report_holds_quantiles_and_slow_shapes(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    records = [record("sum", 10.0, 10.0, 0.5), record("sum", 30.0, 10.0, 2.0), record("cumsum", 12.0, 10.0, None)]
    failed = {"kind": "row", "row": "x/var", "group": "x", "error": "OutOfMemoryError: no"}
    made = summary(records)
    assert made.floor[0] == 1.0 and made.floor[-1] == 3.0 and made.peer[0] == 0.5 and made.below == 1
    file = tmp_path / "held.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"kind": "meta", "gpu": "x"}, *records, failed])))
    monkeypatch.setattr("sys.argv", ["held_out", "--file", str(file), "--report"])
    held_out.main()
    said = capsys.readouterr().out
    assert said.strip() == report([*records, failed])
    assert "1 of 2 below 0.95" in said and "OutOfMemoryError" in said and "0.50 × torch" in said


def test_held_out_sweep_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(held_out, "perf_counter", lambda: now[0])

    class Timed(Session):
        """A row takes 10 s; which ones have torch.compile beside them is noted."""

        def __init__(self) -> None:
            self.kit, self.compiled = HostKit(), []

        def begin(self, path: Path | None) -> dict[str, Any]:
            if path is not None:
                path.write_text("meta\n")
            return {}

        def measure(self, rows: Any, path: Any, meta: Any) -> Any:
            now[0] += 10
            self.compiled.append(self.kit.use_compile)
            yield {"row": rows[0].key, "seconds": 10.0}

    session, file = Timed(), tmp_path / "held.jsonl"
    assert len(list(held_out.measured(session, drawn(), file, 45, 20))) == 5
    assert session.compiled == [True, True, False, False, False] and file.read_text() == "meta\n"
    file.write_text("kept\n")
    assert len(list(held_out.measured(session, drawn(), file, 5, 0))) == 1 and file.read_text() == "kept\n"
