"""Operands of emulated launches: where they are, how much of them is copied, what of them comes back, and when nothing does."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options
from baracuda_py.runtime.steps import Copy, Fill, Ptr

from .small_kernels import run_steps, small, written_in_ptx

F32 = np.float32
MOVE = """
extern "C" __global__ void move(const float* x, float* out, int n, int of, int to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i + to] = x[i + of];  // move
}
extern "C" __global__ void generic(const float* x, float* out) {
  float v;
  asm volatile("ld.f32 %0, [%1];" : "=f"(v) : "l"(x + threadIdx.x));
  asm volatile("st.f32 [%0], %1;" ::"l"(out + threadIdx.x), "f"(v));
}
"""
move, generic = small(MOVE, "move"), small(MOVE, "generic")


def shift(x: Any, out: Any, n: int, of: int = 0, to: int = 0, **given: Any) -> None:
    move.run(-(-n // 64), 64, x=x, out=out, n=np.int32(n), of=np.int32(of), to=np.int32(to), **given)


def test_generic_addresses_of_operands_are_no_windows() -> None:
    """Large arrays of the host are at addresses such as 0x7f3512345010."""
    x, out = np.ones(1 << 20, F32), np.zeros(1 << 20, F32)
    generic.run(1, 32, x=x, out=out)
    assert (out[:32] == 1).all() and not out[32:].any()


@pytest.mark.parametrize(("of", "to", "operand", "byte"), [
    (-1, 0, "x", -4), (1, 0, "x", 256), (1 << 20, 0, "x", 1 << 22), (0, -1, "out", -4), (0, 1, "out", 256),
])  # fmt: skip
def test_adjacent_operands_are_kept_separate(of: int, to: int, operand: str, byte: int) -> None:
    held = np.zeros(192, F32)
    x, out = held[:64], held[64:128]
    with pytest.raises(bp.OutOfBoundsFault) as caught:
        shift(x, out, 64, of, to)
    fault = caught.value
    assert (fault.operand, fault.byte, fault.extent, fault.space) == (operand, byte, 256, "global")
    assert fault.source == move.line("move") and not held.any()


@pytest.mark.parametrize("of", [-(1 << 50), -(1 << 61), 1 << 55, 1 << 61])
def test_far_addresses_belong_to_no_operand(of: int) -> None:
    kernel = small("""extern "C" __global__ void f(const float* x, float* out, long long of) { out[0] = x[of]; }""")
    with pytest.raises(bp.OutOfBoundsFault, match="where nothing is") as caught:
        kernel.run(1, 1, x=np.zeros(4, F32), out=np.zeros(4, F32), of=np.int64(of))
    assert (caught.value.operand, caught.value.byte) == ("", None)


def test_null_pointer_belongs_to_no_operand() -> None:
    out = np.ones(64, F32)
    with pytest.raises(bp.OutOfBoundsFault, match=r"load of 4 bytes at 0x10, where nothing is"):
        move.run(1, 64, x=np.uint64(0), out=out, n=np.int32(64), of=np.int32(4), to=np.int32(0))
    assert out.all()


def test_empty_operands_hold_nothing() -> None:
    out = np.zeros(64, F32)
    with pytest.raises(bp.OutOfBoundsFault, match=r"at x\+0, which has 0"):
        shift(np.empty(0, F32), out, 1)


@pytest.mark.parametrize(("grid", "block", "what"), [
    (0, 64, "a grid of"), ((1, 65536), 64, "a grid of"), (1, 0, "blocks of 0"), (1, 1025, "blocks of 1025"),
    (1, (1, 1, 65), "blocks of"),
])  # fmt: skip
def test_launches_that_no_gpu_takes_are_refused(grid: Any, block: Any, what: str) -> None:
    with pytest.raises(bp.KernelFault, match=f"no GPU takes a launch with {what}"):
        move.run(grid, block, x=np.zeros(4, F32), out=np.zeros(4, F32), n=np.int32(0), of=np.int32(0), to=np.int32(0))


def test_launches_keep_to_what_a_kernel_was_compiled_for() -> None:
    kernel = small(
        """
extern "C" __global__ void __launch_bounds__(64) narrow(int* out) { out[threadIdx.x] = 1; }
extern "C" __global__ void __cluster_dims__(2, 1, 1) pairs(int* out) { out[threadIdx.x] = 1; }
extern "C" __global__ void __cluster_dims__(1, 2, 1) square(int* out) { out[threadIdx.x] = 1; }
""",
        "narrow",
    )
    out = np.zeros(128, np.int32)
    with pytest.raises(bp.KernelFault, match="blocks of 96 threads, of 64 at most"):
        kernel.run(1, 96, out=out)
    with pytest.raises(bp.KernelFault, match=r"a grid of \(3, 1, 1\) in clusters of 2"):
        small(kernel.text, "pairs").run(3, 32, out=out)
    with pytest.raises(bp.UnsupportedError, match=r"clusters of \(1, 2, 1\)"):
        small(kernel.text, "square")


def test_a_block_that_is_required_is_the_only_one() -> None:
    """.reqntid; what it leaves away is 1."""
    kernel = written_in_ptx("""
.visible .entry f(.param .u64 o) .reqntid 32, 2
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [o]; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1; ret;
}
""")
    out = np.zeros(1, np.int32)
    kernel.run(1, (32, 2), out=out)
    assert out[0] == 1
    for block in (64, 32, (2, 32), (32, 2, 2)):
        with pytest.raises(bp.KernelFault, match=r"blocks of .* threads, of \(32, 2, 1\) alone"):
            kernel.run(1, block, out=out)


def test_gaps_and_odd_addresses() -> None:
    whole = np.arange(64, dtype=F32)
    x, out = whole[::2], np.zeros(80, np.uint8)[3:67].view(np.uint8)
    with pytest.raises(bp.UninitialisedFault, match=r"a value that is no element's reached a result at x\+4, which"):
        shift(x, np.zeros(64, F32), 32)
    with pytest.raises(
        bp.OutOfBoundsFault, match=r"store of 4 bytes that are no element's.* at out\+4, which has 252"
    ) as caught:
        shift(whole[:32].copy(), whole[::2], 32)
    assert caught.value.thread == 1 and (whole == np.arange(64)).all()
    with pytest.raises(bp.MisalignedFault, match="odd address"):
        shift(whole, out, 8)
    assert not out.any()


def test_views_that_interleave_keep_their_own() -> None:
    """A store into the elements of the one that is only read is a fault, though both are in one interval."""
    held = np.arange(64, dtype=F32)
    kernel = small("""
extern "C" __global__ void f(const float* x, float* out, int at) { out[2 * int(threadIdx.x) + at] = x[2 * threadIdx.x] + 100; }
""")
    expected = held.copy()
    expected[1::2] = held[::2] + 100
    kernel.run(1, 32, x=held[::2], out=held[1::2], at=np.int32(0))
    assert (held == expected).all()
    with pytest.raises(bp.ReadOnlyFault):
        kernel.run(1, 32, x=held[::2], out=held[1::2], at=np.int32(-1))
    assert (held == expected).all()


def test_negative_strides_and_in_place() -> None:
    kernel = small(
        """extern "C" __global__ void f(const float* x, float* out) { out[-int(threadIdx.x)] = x[threadIdx.x]; }"""
    )
    held = np.zeros(96, F32)
    kernel.run(1, 32, x=np.arange(32, dtype=F32), out=held[63:31:-1])
    assert (held[32:64] == np.arange(32)[::-1]).all() and not held[:32].any() and not held[64:].any()
    same = np.arange(64, dtype=F32)
    kernel = small(
        """extern "C" __global__ void f(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x] + 1; }"""
    )
    kernel.run(1, 64, x=same, out=same)
    assert (same == np.arange(64) + 1).all()


def test_distant_elements_are_refused_before_the_copy() -> None:
    """Eight elements across 2 GiB, of which only their pages are held."""
    x = np.zeros(1 << 29, F32)[:: 1 << 26]
    tracemalloc.start()
    try:
        with pytest.raises(bp.UnsupportedError, match=r"1792 MiB.*force=True"):
            shift(x, np.zeros(8, F32), 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_copies_and_fills_keep_to_elements() -> None:
    x, out = np.arange(64, dtype=F32), np.zeros(64, F32)
    run_steps(
        [(None, Fill(Ptr("out"), 0xFF, 256)), (None, Copy(Ptr("out", 16), Ptr("x", 32), 64))], {"x": x, "out": out}
    )
    assert (out[4:20] == x[8:24]).all() and np.isnan(out[:4]).all() and np.isnan(out[20:]).all()
    out[:] = 1
    for step, kind in (
        (Copy(Ptr("out", 4), Ptr("x"), 256), bp.OutOfBoundsFault), (Copy(Ptr("x"), Ptr("out"), 4), bp.ReadOnlyFault),
        (Copy(Ptr("out"), Ptr("x", 256), 4), bp.OutOfBoundsFault), (Fill(Ptr("x", 4), 0, 1), bp.ReadOnlyFault),
    ):  # fmt: skip
        with pytest.raises(kind):
            run_steps([(None, Fill(Ptr("out"), 0, 256)), (None, step)], {"x": x, "out": out})
        assert (out == 1).all() and (x == np.arange(64)).all()


def test_a_launch_that_faults_takes_back_those_before_it() -> None:
    out = np.zeros(64, F32)
    x = np.ones(64, F32)
    args: dict[str, Any] = {"x": x, "out": out, "n": np.int32(64), "of": np.int32(0), "to": np.int32(0)}
    good, bad = (move.step(1, 64, args | {"to": np.int32(to)}) for to in (0, 1))
    with pytest.raises(bp.OutOfBoundsFault):
        run_steps([(move, good), (move, bad)], {"x": x, "out": out})
    assert not out.any()
    run_steps([(move, good)], {"x": x, "out": out})
    assert out.all()


def test_an_interrupt_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda_py.emulator import machine

    x, out = np.ones(64, F32), np.zeros(64, F32)
    with monkeypatch.context() as context:
        context.setattr(machine.Copies, "finish", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            shift(x, out, 64)
    assert not out.any()
    shift(x, out, 64)
    assert out.all()


def test_threads_share_a_kernel() -> None:
    kernel = small("""
extern "C" __global__ void f(const float* x, float* out, float by) {
  __shared__ float t[64];
  t[threadIdx.x] = x[threadIdx.x] * by;
  __syncthreads();
  out[threadIdx.x] = t[63 - threadIdx.x];
}
""")
    x = np.arange(64, dtype=F32)

    def once(by: int) -> bool:
        out = np.zeros(64, F32)
        kernel.run(1, 64, x=x, out=out, by=F32(by), options=Options("random", by))
        return bool((out == (x * by)[::-1]).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(once, range(24)))
