"""``device="ptx"`` with the real engine behind it: what a user calls gives what the kernels compute, or nothing at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.cli.main import main
from baracuda_py.runtime.compile import sources

F32 = np.float32
pytestmark = pytest.mark.filterwarnings("error")


def integers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """Small whole numbers, whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("device", ["ptx", "ptx:sm_80", "ptx:h200"])
def test_functions_give_what_kernels_compute(device: str) -> None:
    x, y = integers((37, 129), F32), integers((129,), F32, 1)
    with bp.device(device):
        out = bp.add(x, y)
        assert type(out) is np.ndarray and (out == x + y).all()
        assert bp.multiply(x.T, x.T, out=(held := np.empty((129, 37), F32))) is held and (held == (x * x).T).all()
        assert (bp.contiguize(x.T[::-1]) == x.T[::-1]).all()
        assert (bp.relu(x[1:, ::3]) == np.maximum(x[1:, ::3], 0)).all()


@pytest.mark.parametrize("variant", ["tc", "tc_async", "wgmma", "simt", "gemv"])
def test_products_take_their_scalars_at_every_call(variant: str) -> None:
    rows = 1 if variant == "gemv" else 64
    a, b, c = integers((rows, 64), "f2"), integers((64, 64), "f2", 1), integers((rows, 64), "f2", 2)
    desc = bp.MatmulDescriptor.of(a, b, c=c, beta=1.0)
    plan = bp.MatmulPlan.select(desc, bp.PlanPreference(variant=variant), device="ptx")
    exact = a.astype(F32) @ b.astype(F32)
    for alpha, beta in ((1.0, 1.0), (2.0, -1.0), (0.5, 0.0)):
        assert (plan.run(a=a, b=b, c=c, alpha=alpha, beta=beta) == (alpha * exact + beta * c).astype("f2")).all()


def test_windows_move_and_caches_are_written_in_place() -> None:
    dest, source = np.zeros((9, 40), "f2"), integers((2, 33), "f2")
    plan = bp.WriteSlicePlan.select(
        bp.WriteSliceDescriptor.of(dest=dest, source=source, ranges=[(0, 2), (3, 36)]), device="ptx"
    )
    for row in (0, 7, 3):
        expected = dest.copy()
        expected[row : row + 2, 3:36] = source
        assert plan.run(dest=dest, source=source, start=(row, 3)) is dest and (dest == expected).all()
    bound = plan.bind(dest=dest, source=source)
    source[:] = 1
    bound()
    assert (dest[:2, 3:36] == 1).all()


def test_memcpys_and_packed_kinds() -> None:
    whole, part = np.zeros((16, 64), F32), integers((4, 64), F32)
    assert bp.write_slice(whole, part, [(8, 12), (0, 64)], device="ptx") is whole
    assert (whole[8:12] == part).all() and not whole[:8].any() and not whole[12:].any()
    x = bp.GpuBuffer.view(np.arange(40, dtype=np.uint8), bp.S4).strided((4, 7), (9, 1), 1)
    out = bp.contiguize(x, device="ptx")
    assert isinstance(out, bp.GpuBuffer) and (out.to_host() == x.to_host()).all()


def test_torch_tensors_in_and_out() -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.arange(70.0), torch.zeros(70)
    assert bp.neg(x, out=out, device="ptx") is out and torch.equal(out, -x)
    half = torch.ones(64, dtype=torch.bfloat16)
    made = bp.add(half, half, device="ptx")
    assert made.dtype is torch.bfloat16 and (made == 2).all()


def test_empty_problems_write_nothing() -> None:
    assert bp.neg(np.empty((0, 5), F32), device="ptx").shape == (0, 5)
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (0,), "f32"), device="ptx")
    assert not plan.profile(x=np.empty(0, F32)).launches


def test_a_profile_counts_and_writes_nothing() -> None:
    x, out = np.ones(4096, F32), np.zeros(4096, F32)
    report = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", x, out), device="ptx").profile(x=x, out=out)
    assert not out.any() and len(report.launches) == 1
    assert sum(count for line, count in report.lines.items() if line.startswith("prelude:")) >= 4096
    assert report.launches[0].accesses["store out"][1] >= 4096 * 4 // 32
    assert "neg" in str(report)


def test_orders_agree() -> None:
    a, b = integers((64, 192), "f2"), integers((192, 64), "f2", 1)
    expected = bp.matmul(a, b, device="ptx")
    for seed in (1, 2):
        with bp.emulation(order="random", seed=seed, copies="random"):
            assert (bp.matmul(a, b, device="ptx") == expected).all()


# ---- a kernel that is wrong ------------------------------------------------------------------------------------------


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str, str, str], None]]:
    """Changes a kernel's text for the life of the test: the kernels are read from a copy, and cached elsewhere."""
    from baracuda_py.emulator import launch

    copy = tmp_path / "kernels"
    shutil.copytree(sources.kernels_dir(), copy)

    def edit(file: str, there: str, instead: str) -> None:
        text = (copy / file).read_text()
        assert there in text, f"{file} has no {there!r}"
        (copy / file).write_text(text.replace(there, instead))
        forget()

    def forget() -> None:
        for cache in (sources._source, launch.translated):
            cache.cache_clear()
        plan_cache.clear()

    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "kernels_dir", lambda: copy)
    yield edit
    monkeypatch.undo()
    forget()


BOUND = ("elementwise/map.cu", "    if (i + V <= count) {", "    if (i < count) {")


def test_a_faulted_run_writes_nothing_and_says_where(edited: Callable[..., None]) -> None:
    edited(*BOUND)
    out = np.full(1001, 5, F32)
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (1001,), "f32"), device="ptx")
    bound = plan.bind(x=np.ones(1001, F32), out=out)
    for call in (
        bound,
        lambda: plan.run(x=np.ones(1001, F32), out=out),
        lambda: plan.profile(x=np.ones(1001, F32), out=out),
    ):
        with pytest.raises(bp.OutOfBoundsFault) as caught:
            call()
        assert (out == 5).all()
    fault = caught.value
    assert (fault.operand, fault.byte, fault.extent, fault.cta, fault.thread) == ("out", 4000, 4004, 1, 122)
    text = (sources.kernels_dir() / "elementwise/map.cu").read_text().splitlines()
    file, _, line = fault.source.rpartition(":")
    assert file == "elementwise/map.cu" and "out + i" in text[int(line) - 1]
    assert fault.instruction.startswith("st.global") and "map_contiguous" in fault.kernel


def test_the_command_shows_the_line_at_fault(edited: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    edited(*BOUND)
    assert main(["run", "neg", "shape=1001", "element=f32", "--device", "ptx"]) == 1
    out, err = capsys.readouterr()
    assert "at out+4000, which has 4004: CTA 1, thread 122" in err
    assert re.search(r"^> elementwise/map\.cu:\d+ .*out \+ i", out, re.MULTILINE)


def test_the_command_says_where_a_result_is_wrong(
    edited: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    edited("elementwise/map.cu", "out[i] = evaluate", "out[i] = Out(3) * evaluate")
    assert main(["run", "neg", "shape=1001", "element=f32", "--device", "ptx"]) == 1
    assert "1 of 1001 elements break" in capsys.readouterr().err


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem",
    [
        "write_slice dest_shape=32,16 ranges=[(3,5),(0,16)] element=bf16",
        "kv_append cache_shape=2,3,17,8 tokens=1 element=f32",
        "pow x1_shape=100 x2_shape=100 x1_element=f32 x2_element=f32",
        "matmul a_shape=64,128 b_shape=128,64 a_element=bf16 b_element=bf16 --order 3 --copies early",
        "contiguize shape=24,40 x_strides=1,24 element=u8",
    ],
)
def test_the_command_runs_any_op(problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", *problem.split(), "--device", "ptx", "--trace"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "every element is within its bound" in out and "emulated for sm_90a" in out
