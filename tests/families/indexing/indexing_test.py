"""take_along_axis and nonzero: every mode against NumPy, indices that name nothing, counts, trimming, refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.ops.indexing import _gather as gather_module
from baracuda_py.ops.indexing import nonzero as nonzero_module

from ...arena import Slot, host
from ...gauntlet import readable

COVERS = ("take_along_axis", "nonzero")


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def taken(x: np.ndarray, indices: np.ndarray, backend: str = "cpu", **options: Any) -> Any:
    slots = Slot(x, backend), Slot(indices, backend)
    made = bp.take_along_axis(*(slot.operand for slot in slots), **options, device=device_of(backend))
    assert all(np.array_equal(slot.image(), slot.initial) for slot in slots)
    return made


@given(st.integers(1, 3), st.sampled_from(["status", "clip", "wrap"]), st.data())
@settings(max_examples=60, deadline=None)
def test_as_numpy_along_any_axis(rank: int, mode: str, data: st.DataObject) -> None:
    shape = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    axis = data.draw(st.integers(-rank, rank - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    wanted = [data.draw(st.sampled_from([1, n])) for n in shape]
    wanted[axis] = data.draw(st.integers(0, 7))
    x, n = rng.standard_normal(shape), shape[axis]
    indices = rng.integers(-n, n, wanted)
    right = np.take_along_axis(x, np.clip(indices, 0, n - 1) if mode == "clip" else indices, axis)
    got = taken(x, indices, axis=axis, mode=mode)
    if mode == "status":
        assert int(host(got.status)) == 0
        got = got.out
    assert np.array_equal(got, right)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_index_out_of_range_is_reported_and_gives_zeros(backend: str, dtype: Any) -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(2, 6)
    for bad in (6, -7, np.iinfo(dtype).max, np.iinfo(dtype).min):
        made = taken(x, np.array([[5, bad, -6], [0, 1, 2]], dtype), backend)
        assert host(made.out).tolist() == [[6, 0, 1], [7, 8, 9]]
        assert int(host(made.status)) == 1
    assert int(host(taken(x, np.array([[5, -6]], dtype), backend).status)) == 0


def test_status_that_was_set_is_cleared(backend: str) -> None:
    slots = [Slot(x, backend) for x in (np.ones((2, 3)), np.zeros((2, 1), np.int64), np.array(7, np.int32))]
    x, indices, status = (slot.operand for slot in slots)
    made = bp.take_along_axis(x, indices, status=status, device=device_of(backend))
    assert made.status is status
    assert int(slots[2].view(slots[2].image())) == 0


def test_ends_of_clip_and_wrap(backend: str) -> None:
    x = np.arange(5, dtype=np.int16)
    ends = np.array([-(2**63), -6, -1, 0, 4, 5, 2**63 - 1])
    assert host(taken(x, ends, backend, mode="clip")).tolist() == [0, 0, 0, 0, 4, 4, 4]
    assert host(taken(x, ends, backend, mode="wrap")).tolist() == [int(i) % 5 for i in ends.tolist()]


I = np.zeros((2, 1), int)
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], str]] = [
    ("axis", (np.zeros((2, 3)), I), {"axis": 2}, bp.InvalidProblemError, "axis 2 is out of range for 2 axes"),
    ("axis", (np.zeros((2, 3)), I), {"axis": -3}, bp.InvalidProblemError, "give -2 to 1"),
    ("none", (np.zeros((2, 3)), I), {"axis": None}, bp.InvalidProblemError, "axis=None is not"),
    ("rank", (np.zeros((2, 3)), np.zeros(2, int)), {}, bp.InvalidProblemError, "pass indices of rank 2"),
    ("scalar", (np.zeros(()), np.zeros((), int)), {}, bp.InvalidProblemError, "x has no axis"),
    ("shapes", (np.zeros((2, 3)), np.zeros((4, 1), int)), {}, bp.InvalidProblemError, "do not broadcast"),
    ("floats", (np.zeros(3), np.zeros(2)), {}, bp.OperandTypeError, "indices must hold i32 or i64"),
    ("mode", (np.zeros(3), np.zeros(2, int)), {"mode": "nearest"}, bp.InvalidProblemError, "status, clip, wrap, raise"),
    (
        "empty",
        (np.zeros((2, 0)), np.zeros((2, 1), int)),
        {"mode": "wrap"},
        bp.InvalidProblemError,
        "nothing along axis",
    ),
]


@pytest.mark.parametrize(("label", "arrays", "options", "error", "says"), REFUSED, ids=[r[4] for r in REFUSED])
def test_refusals(label: str, arrays: Any, options: Any, error: Any, says: str, backend: str) -> None:
    del label
    slots = [Slot(x, backend) for x in arrays]
    with pytest.raises(error) as caught:
        bp.take_along_axis(*(slot.operand for slot in slots), **options, device=device_of(backend))
    readable(caught.value, "take_along_axis", says)
    assert all(np.array_equal(slot.image(), slot.initial) for slot in slots)


def test_counts_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts beyond 31 bits, on problems that are small."""
    for module in (gather_module, nonzero_module):
        monkeypatch.setattr(module, "index_type", lambda _count: "u64")
    x = np.random.default_rng(2).integers(0, 3, (13, 5, 70)).astype(np.float32)
    indices = np.argsort(x, 1)[:, ::-1]
    plan = bp.TakeAlongAxisPlan.select(bp.TakeAlongAxisDescriptor.of(x, indices, axis=1), device="ptx")
    assert "u64" in plan.kernels[0].name
    assert np.array_equal(plan.run(x=x, indices=indices).out, np.take_along_axis(x, indices, 1))
    for view in (x, x[::-1, :, ::2]):
        finds = bp.NonzeroPlan.select(bp.NonzeroDescriptor.of(view), device="ptx")
        out, count = finds.run(x=view)
        assert np.array_equal(out[: int(count[0])], np.argwhere(view))


# ---- nonzero -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (9001,), (0,), (3, 0), (70, 130), (2, 3, 4, 5)])
def test_trimmed_and_whole(backend: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).random(shape) < 0.3
    slot, right = Slot(x, backend), np.argwhere(x)
    device = device_of(backend)
    trimmed = bp.nonzero(slot.operand, device=device)
    assert trimmed.shape == right.shape
    assert trimmed.dtype == np.int64
    assert np.array_equal(host(trimmed), right)
    whole = bp.nonzero(slot.operand, trim=False, device=device)
    assert whole.out.shape == (x.size, x.ndim)
    assert host(whole.count).tolist() == [len(right)]
    assert np.array_equal(host(whole.out)[: len(right)], right)


def test_more_tiles_than_the_scan_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonzero_module, "SCAN_THREADS", 32)
    x = np.zeros(70 * 4096 + 5, bool)
    x[[0, 4095, 4096, 31 * 4096, 32 * 4096, 69 * 4096 + 7, -1]] = True
    plan = bp.NonzeroPlan.select(bp.NonzeroDescriptor.of(x), device="ptx")
    out, count = plan.run(x=x)
    assert count.tolist() == [7]
    assert np.array_equal(out[:7], np.argwhere(x))


@pytest.mark.parametrize(
    "dtype", ["complex64", "complex128", "float16", "float32", "float64", bp.BF16.dtype, bp.FP8_E4M3.dtype]
)
def test_what_is_not_zero(dtype: Any) -> None:
    """Either part of a complex number, NaN and subnormals; neither zero of a float."""
    parts = 2 if np.dtype(dtype).kind == "c" else 1
    part = np.dtype(f"u{np.dtype(dtype).itemsize // parts}")
    sign = 1 << (part.itemsize * 8 - 1)
    codes = np.array([0, sign, 1, sign | 1, sign >> 1, sign - 1], part)
    pairs = np.array([[a, b][:parts] for a in codes for b in codes], part)
    x = pairs.reshape(-1).view(dtype)
    wanted = np.argwhere((pairs & part.type(sign - 1)).any(-1))
    assert np.array_equal(bp.nonzero(x, device="ptx"), wanted)
    assert np.array_equal(bp.nonzero(x, device="cpu"), wanted)


def test_rows_behind_the_count_stay(backend: str) -> None:
    slots = [Slot(x, backend) for x in (np.array([0, 3, 0, 4]), np.full((4, 1), -7), np.array([-7]))]
    x, out, count = (slot.operand for slot in slots)
    device = device_of(backend)
    made = bp.nonzero(x, trim=False, out=out, count=count, device=device)
    assert made.out is out
    assert slots[1].view(slots[1].image()).tolist() == [[1], [3], [-7], [-7]]
    assert slots[2].view(slots[2].image()).tolist() == [2]


def test_a_stream_is_waited_for(backend: str) -> None:
    if backend == "cpu":
        assert bp.nonzero(np.eye(3), stream=0, device="cpu").shape == (3, 2)
        return
    import cupy

    x = cupy.zeros(1 << 22, np.uint8)
    x[::3] = 1
    cupy.cuda.runtime.deviceSynchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    assert len(bp.nonzero(x, stream=stream)) == -(-(1 << 22) // 3)


def test_explain_speaks_of_the_count() -> None:
    plan = bp.NonzeroPlan.select(bp.NonzeroDescriptor((4, 5), "f32"), device="h200")
    assert "counted on the device, in count: a call waits for it once" in repr(plan.explain())


def test_an_array_without_axes_has_no_indices(backend: str) -> None:
    with pytest.raises(bp.InvalidProblemError, match=r"pass x\.reshape\(1\)"):
        bp.nonzero(Slot(np.array(3.0), backend).operand, device=device_of(backend))


@pytest.mark.gpu
def test_a_capture_is_asked_not_to_trim() -> None:
    import cupy

    x, stream = cupy.ones(8), cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(bp.UnsupportedError, match="trim=False"):
            bp.nonzero(x)
        stream.end_capture()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_take_along_axis_raises_on_the_host_where_asked(device: str) -> None:
    x, indices = np.arange(12, dtype="f4").reshape(3, 4), np.array([[0], [-4], [3]])
    np.testing.assert_array_equal(bp.take_along_axis(x, indices, 1, mode="raise", device=device).ravel(), [0, 4, 11])
    for wrong in (4, -5, 9):
        indices[1] = wrong
        out = np.full((3, 1), 7, "f4")
        with pytest.raises(bp.InvalidProblemError, match=rf"indices\[1, 0\] = {wrong} is out of range: x has extent 4"):
            bp.take_along_axis(x, indices, 1, mode="raise", out=out, device=device)
        assert (out == 7).all()
        got = bp.take_along_axis(x, indices, 1, device=device)
        assert got.status == 1 and got.out.ravel().tolist() == [0, 0, 11]


@pytest.mark.parametrize("mode", ["clip", "wrap", "raise"])
@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_take_along_axis_of_an_empty_axis(device: str, mode: str) -> None:
    x, indices = np.zeros((3, 0), "f4"), np.zeros((3, 1), "i8")
    with pytest.raises(bp.InvalidProblemError, match="nothing along axis 1 to index: pass no indices"):
        bp.take_along_axis(x, indices, 1, mode=mode, device=device)
    assert bp.take_along_axis(x, indices[:, :0], 1, mode=mode, device=device).shape == (3, 0)


@pytest.mark.parametrize("name", ["take_along_axis", "index_select", "embedding", "index_add", "index_copy", "scatter"])
@pytest.mark.parametrize("backward", [False, True])
def test_raising_is_refused_on_a_gpu(name: str, backward: bool) -> None:
    op = bp.get_op(name)
    if backward and op.gradient is None:
        return
    op = bp.get_op(op.gradient.op) if backward and op.gradient else op
    fields = {**op.plan.probes[0], **op.fixed, "mode": "raise"}
    desc = op.plan.descriptor(**fields)
    with pytest.raises(bp.UnsupportedError, match="mode='status'"):
        op.plan.select(desc, device="h200")
    for device in ("cpu", "ptx"):
        assert op.plan.select(desc, device=device)
    assert op.plan.select(dataclasses.replace(desc, mode="status"), device="h200").deterministic


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("name", ["index_select", "embedding"])
def test_status_of_picked_lines_without_elements(name: str, device: str) -> None:
    """Indices are checked though no line has an element; where there is no index, none is out of range."""
    every = np.array([[0, 9, 2], [9, 1, 9]])
    for shape, index, status in (
        ((3, 0), [0, 2], 0),
        ((3, 0), [0, 3], 1),
        ((3, 0), [-1], 1),
        ((3, 0), [], 0),
        ((0, 0), [0], 1),
        ((0, 0), [], 0),
        ((3, 0), every[:, ::2], 1),
        ((3, 0), every[::-1, 2:0:-1][1:, 1:].T, 1),
        ((3, 0), every[:1, ::2], 0),
        ((3, 0), 2, 0),
    ):
        for kind in (np.int32, np.int64):
            given = np.asarray(index).astype(kind, order="K")
            made = getattr(bp, name)(np.zeros(shape, np.float32), given, mode="status", device=device)
            assert (int(made.status), made.out.shape) == (status, (*given.shape, 0)), (shape, index)
    before = bp.index_select(np.zeros((2, 3, 0), np.float32), np.array([3]), 1, mode="status", device=device)
    behind = bp.index_select(np.zeros((0, 3), np.float32), np.array([1, 3]), -1, mode="status", device=device)
    assert int(before.status) == int(behind.status) == 1
