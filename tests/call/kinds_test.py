"""An array of kind X, called in way Y: where each call launches, what it waits for, what comes back, what a capture refuses.

Two simulated H200. CuPy's current streams are 7 and 107, torch's 57 and 157; an interface names its own, 4711.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.tensor import arrays

from .short_path_test import Lazy
from .simulated import Gpus, simulated

SHAPE = 4, 8
AFTER_INTERFACE = "record on 4711", "7 waits", "launch on 0:7"
TWICE = ("record on 57", "99 waits") * 2 + ("launch on 0:99",)
AFTER_TORCH = "record on 57", "7 waits", "launch on 0:7"


class Row(NamedTuple):
    """A call of neg on an array of kind `x`, into one of kind `out` or a fresh one, and what happens at each call, in order."""

    x: str
    out: str
    events: tuple[str, ...]
    stream: int | None = None
    ordinal: int = 0  # of the arrays
    current: int = 0  # the device that is current
    refused_in_capture: bool = False
    long_path: bool = False  # at every call: two frameworks' streams, or another device's


ROWS = {
    "cupy": Row("cupy", "cupy", ("launch on 0:7",)),
    "cupy, fresh": Row("cupy", "", ("launch on 0:7",)),
    "cupy in columns, fresh": Row("cupy in columns", "", ("launch on 0:7",)),
    "cupy, on a stream": Row("cupy", "cupy", ("launch on 0:99",), stream=99),
    "cupy, on device 1": Row("cupy", "cupy", ("launch on 1:107",), ordinal=1),
    "cupy, while device 1 is current": Row("cupy", "cupy", ("launch on 0:7",), current=1),
    "buffer": Row("buffer", "buffer", ("launch on 0:7",)),
    "torch": Row("torch", "torch", ("launch on 0:57",)),
    "torch, fresh": Row("torch", "", ("launch on 0:57",)),
    "torch in columns, fresh": Row("torch in columns", "", ("launch on 0:57",)),
    "torch, on device 1": Row("torch", "torch", ("launch on 1:157",), ordinal=1),
    "torch, on a stream": Row("torch", "torch", TWICE, stream=99, refused_in_capture=True, long_path=True),
    "torch, fresh, on a stream": Row(
        "torch", "", ("record on 57", "99 waits", "torch takes 99", "launch on 0:99"), stream=99, long_path=True),
    "torch to cupy": Row("torch", "cupy", AFTER_TORCH, refused_in_capture=True, long_path=True),
    "cupy to torch": Row("cupy", "torch", ("record on 7", "57 waits", "launch on 0:57"), long_path=True),
    "export to cupy": Row("export", "cupy", ("launch on 0:7",), refused_in_capture=True),
    "export to cupy, while device 1 is current": Row(
        "export", "cupy", ("launch on 0:7",), current=1, refused_in_capture=True, long_path=True),
    "export to torch": Row("export", "torch", ("launch on 0:57",), refused_in_capture=True),
    "export, on a stream": Row("export", "cupy", ("launch on 0:99",), stream=99, refused_in_capture=True),
    "cupy to export": Row("cupy", "export", ("launch on 0:7",), refused_in_capture=True),
    "interface to cupy": Row("interface", "cupy", AFTER_INTERFACE, refused_in_capture=True),
}  # fmt: skip


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Gpus]:
    """Two H200; where the row has a tensor, with a torch that has its tensors on them."""
    row = ROWS[request.getfixturevalue("name")]
    monkeypatch.setattr(arrays, "_ordinal_at", lambda _pointer, _what: row.ordinal)  # the driver, of an interface
    for simulated_gpus in simulated(monkeypatch, "h200", "h200"):
        if any("torch" in kind for kind in (row.x, row.out)):
            from .torch_on_gpu import simulated_torch

            with simulated_torch(monkeypatch, simulated_gpus):
                yield simulated_gpus
        else:
            yield simulated_gpus


def array(gpus: Gpus, kind: str, ordinal: int) -> Any:
    """An array of that kind, of f32."""
    ones = np.ones(SHAPE, np.float32)
    if kind.startswith("torch"):
        from .torch_on_gpu import on, torch

        return on(torch.ones(SHAPE[::-1]).t() if "columns" in kind else torch.ones(SHAPE), f"cuda:{ordinal}")
    if kind == "export":
        return Lazy(gpus, ones)
    held = gpus.array(ones, ordinal)
    if kind == "interface":
        interface = {"version": 3, "shape": SHAPE, "typestr": "<f4", "data": (held.data.ptr, False), "stream": 4711}
        return SimpleNamespace(__cuda_array_interface__=interface, held=held)
    if kind == "buffer":
        return bp.GpuBuffer.view(held, bp.F32)
    return gpus.over(held.data, SHAPE, np.float32, (4, 16)) if "columns" in kind else held


@pytest.mark.parametrize("way", ["function", "run"])
@pytest.mark.parametrize("name", ROWS)
def test_calls_by_kind_of_array(gpus: Gpus, long_way: list[Any], name: str, way: str) -> None:
    row = ROWS[name]
    x, out = (array(gpus, kind, row.ordinal) if kind else None for kind in (row.x, row.out))
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", x, out), device=row.ordinal)
    gpus.current = row.current

    def call() -> Any:
        if way == "function":
            return bp.neg(x, out=out, stream=row.stream, device=row.ordinal if row.current != row.ordinal else None)
        return plan.run(x=x, **({} if out is None else {"out": out}), stream=row.stream)

    made = []
    for turn in range(3):
        gpus.events.clear()
        made.append(call())
        assert tuple(event for event in gpus.events if event != "freed") == row.events, f"call {turn + 1}"
        assert gpus.current == row.current
    assert len(long_way) == (0 if way == "run" else 3 if row.long_path else 1), "later calls take another path"
    for export in (each for each in (x, out) if isinstance(each, Lazy)):
        assert f":{export.streams[-1]}" in row.events[-1], "the handshake is on another stream than the launch"
    if out is not None:
        assert all(result is out for result in made)
        captured(gpus, row, call)
        return
    assert all(type(result) is type(x) and result.shape == SHAPE for result in made)
    assert len({result.data.ptr if row.x.startswith("cupy") else result.data_ptr() for result in made}) == 3
    steps = (result.strides if row.x.startswith("cupy") else result.stride() for result in made)
    assert set(steps) == {x.strides if row.x.startswith("cupy") else x.stride()}


def captured(gpus: Gpus, row: Row, call: Any) -> None:
    """The same call while the stream that it launches on is being captured."""
    done, gpus.capturing = len(gpus.work), {int(row.events[-1].partition(":")[2])}
    if row.refused_in_capture:
        with pytest.raises(bp.UnsupportedError, match="is being captured"):
            call()
    else:
        call()
    gpus.capturing = False
    assert len(gpus.work) == done + (not row.refused_in_capture)
