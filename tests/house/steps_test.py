"""Time against tokens: jumps and inversions are found where they are planted, and the plot is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import steps
from benchmarks.operands import Kit
from benchmarks.steps import SERIES, by_series, drawn, inversions, jumps


def line(*times: float) -> list[dict[str, object]]:
    return [{"series": "W4A16 8×8", "m": m, "us": us, "variant": "gemv"} for m, us in enumerate(times, 1)]


def test_greatest_jump_is_between_its_neighbours() -> None:
    records = by_series(line(10, 11, 20, 21, 22)[::-1])["W4A16 8×8"]
    times, before, after = jumps(records)[0]
    assert times == pytest.approx(20 / 11) and (before["m"], after["m"]) == (2, 3)


def test_more_tokens_in_less_time_are_reported_beyond_noise() -> None:
    (times, slower, faster), *rest = inversions(line(10, 30, 12, 11.8, 40))
    assert times == pytest.approx(30 / 11.8) and (slower["m"], faster["m"]) == (2, 4) and not rest


def test_a_finished_file_is_drawn_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "steps.jsonl"
    head = {"gpu": "NVIDIA H200", "driver": "580", "date": "2026-11-23"}
    file.write_text("\n".join(map(json.dumps, [head, *line(10, 11, 20)])))
    monkeypatch.setattr("sys.argv", ["steps", str(file), "--plot"])
    steps.main()
    assert file.with_suffix(".png").stat().st_size > 10_000
    drawn(line(10, 11), tmp_path / "one.png", "somewhere")


@pytest.mark.parametrize("kind", dict.fromkeys(series.kind for series in SERIES))
def test_its_products_are_planned(kind: str) -> None:
    import numpy as np

    class Shapes(Kit):
        """Operands without data."""

        def __init__(self) -> None: ...

        def normal(self, shape, dtype, positive=False):  # type: ignore[no-untyped-def]
            import ml_dtypes

            return np.broadcast_to(np.zeros((), ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype), shape).copy()

        empty = normal

    small = steps.Series(kind, 32, 256)
    kit = Shapes()
    given = {"x": kit.normal((3, 256), "bfloat16"), "out": kit.normal((3, 32), "bfloat16")}
    weights = small.weights(kit)
    assert small.nbytes == sum(w.nbytes for w in weights.values())
    assert small.plan({**weights, **given}, "h200").desc.op in ("matmul_int4", "matmul_gguf")
