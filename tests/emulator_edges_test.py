"""Corners of the emulator: forms of instructions that the project's kernels have no use for, and what little kernels may do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options
from baracuda_py.runtime.steps import Copy, Ptr, Scratch

from .small_kernels import run_steps, small, written_in_ptx

ORDERS = [Options(), *(Options("random", seed) for seed in range(4))]

HALVES = """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 out) {
  .reg .pred %a, %b, %first, %low, %high; .reg .b32 %t, %x, %y, %one, %two, %both; .reg .b64 %p, %q, %r, %at;
  ld.param.u64 %p, [x]; ld.param.u64 %q, [y]; ld.param.u64 %r, [out];
  mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; add.u64 %p, %p, %at; add.u64 %q, %q, %at; add.u64 %r, %r, %at;
  ld.global.b32 %x, [%p]; ld.global.b32 %y, [%q]; setp.eq.u32 %first, %t, 0;
  setp.lt.f16x2 %low|%high, %x, %y; selp.b32 %one, 1, 0, %low; selp.b32 %two, 2, 0, %high; or.b32 %both, %one, %two;
  setp.lt.or.f16x2 %a|%b, %x, %y, %first; selp.b32 %one, 4, 0, %a; selp.b32 %two, 8, 0, %b;
  or.b32 %both, %both, %one; or.b32 %both, %both, %two; st.global.b32 [%r], %both; ret;
}
"""


def test_a_comparison_of_pairs_has_a_predicate_for_each_element() -> None:
    x = np.array([1, 2, 3, 1, np.nan, 0, 1, 1] * 8, np.float16)
    y = np.array([2, 2, 1, 2, 5, 1, 1, 0] * 8, np.float16)
    out = np.zeros(32, np.uint32)
    written_in_ptx(HALVES).run(1, 32, x=x.view("u4"), y=y.view("u4"), out=out)
    less = (x < y).reshape(32, 2)
    either = less | (np.arange(32) == 0)[:, None]
    assert (out == less @ [1, 2] + either @ [4, 8]).all()


# ---- what nothing wrote ----------------------------------------------------------------------------------------------

LOCAL = """
extern "C" __global__ void local(const int* at, float* out) {
  float held[8];
  for (int i = 0; i < at[2]; ++i) held[at[0] + i] = i + 1;
  const float v = held[at[1]];  // read
  out[threadIdx.x] = at[3] ? v : 2.0f;
}
"""


@pytest.mark.parametrize("options", ORDERS[:2])
def test_local_memory_that_nothing_wrote_is_told_where_it_matters(options: Options) -> None:
    out = np.zeros(32, np.float32)

    def run(*at: int) -> None:
        small(LOCAL).run(1, 32, at=np.array(at, np.int32), out=out, options=options)

    run(1, 3, 4, 1)
    assert (out == 3).all()
    run(1, 7, 4, 0)  # dropped
    assert (out == 2).all()
    with pytest.raises(bp.UninitialisedFault, match=r"at local memory\+28, which has 32: CTA 0, thread 0") as fault:
        run(1, 7, 4, 1)
    assert fault.value.source == small(LOCAL).line("read") and (out == 2).all()


MOVE = """extern "C" __global__ void f(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }"""


def test_a_copy_carries_that_nothing_wrote_its_source() -> None:
    out = np.zeros(8, np.float32)
    first, second, kernel = Scratch(0, 32), Scratch(64, 32), small(MOVE)
    read = kernel, kernel.step(1, 8, {"x": second, "out": out})
    with pytest.raises(bp.UninitialisedFault, match=r"a copy's read of 32 bytes, of which.*32 at workspace\+0"):
        run_steps([(None, Copy(Ptr("out"), first, 32))], {"out": out}, workspace=128)
    with pytest.raises(bp.UninitialisedFault, match=r"nothing had written.*at workspace\+64"):
        run_steps([(None, Copy(second, first, 32)), read], {"out": out}, workspace=128)
    x = np.arange(8, dtype=np.float32)
    steps: Any = [(None, Copy(first, Ptr("x"), 32)), (None, Copy(second, first, 32)), read]
    run_steps(steps, {"x": x, "out": out}, workspace=128)
    assert (out == x).all()


# ---- races in global memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ORDERS)
@pytest.mark.parametrize("storing", [3, 40, 70, 127])
@pytest.mark.parametrize("use", ["out[0]", "atomicAdd(out, 1.0f)"])
def test_a_store_is_ordered_with_each_of_several_warps_that_came_before(
    use: str, storing: int, options: Options
) -> None:
    """That of the warp that stores may have been the last of them."""
    text = f"""
extern "C" __global__ void f(float* out, float* out_each, bool waits) {{
  const float v = {use};
  out_each[threadIdx.x] = v;
  if (waits) __syncthreads();
  if (threadIdx.x == {storing}) out[0] = v + 5;
}}"""
    arrays = {"out": np.ones(1, np.float32), "out_each": np.zeros(128, np.float32)}
    small(text).run(1, 128, **arrays, waits=np.bool_(True), options=options)
    with pytest.raises(bp.RaceFault, match="nothing orders"):
        small(text).run(1, 128, **arrays, waits=np.bool_(False), options=options)


# ---- atomic operations -----------------------------------------------------------------------------------------------


def test_only_sums_in_global_memory_flush_subnormal_numbers() -> None:
    """PTX ISA, atom: that of f32 on global memory flushes subnormal inputs and results, that on shared memory does not."""
    text = """
extern "C" __global__ void f(const float* x, float* out) {
  __shared__ float held;
  if (!threadIdx.x) {
    held = x[0];
    atomicAdd(&held, x[1]);
    out[0] = held;
    atomicAdd(out + 1, x[0]);
  }
}"""
    tiny = np.array([1e-40, 2e-40], np.float32)
    for start, other in ((0.0, 0.0), (1e-40, 0.0), (1.0, 1.0), (2.0**-126, 2.0**-126)):
        out = np.array([0, start], np.float32)
        small(text).run(1, 32, x=tiny, out=out)
        assert out[0] == tiny[0] + tiny[1] > 0 and out[1] == np.float32(other)
