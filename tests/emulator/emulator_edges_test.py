"""Corners of the emulator: forms of instructions that the project's kernels have no use for, and what little kernels may do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator import launch
from baracuda_py.emulator.options import Options
from baracuda_py.runtime.steps import Copy, Ptr, Scratch, TensorMap

from .small_kernels import HEAD, run_steps, small, written_in_ptx

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


# ---- atomic operations -----------------------------------------------------------------------------------------------


MODELS: dict[str, Any] = {
    "atomicAdd(at, y)": lambda old, y: old + y,
    "atomicMin(at, y)": min,
    "atomicMax(at, y)": max,
    "atomicAnd(at, y)": lambda old, y: old & y,
    "atomicOr(at, y)": lambda old, y: old | y,
    "atomicXor(at, y)": lambda old, y: old ^ y,
    "atomicExch(at, y)": lambda _old, y: y,
    "atomicCAS(at, y, y + 1)": lambda old, y: y + 1 if old == y else old,
    "atomicInc(at, y)": lambda old, y: 0 if old >= y else old + 1,
    "atomicDec(at, y)": lambda old, y: y if old == 0 or old > y else old - 1,
}


@pytest.mark.parametrize("call", MODELS)
def test_lanes_at_one_place_act_one_after_the_other(call: str) -> None:
    """Some places have one lane, some several, between others' lanes: each gets what the one before it left."""
    text = f"""
extern "C" __global__ void f(const unsigned* place, const unsigned* x, unsigned* out, unsigned* out_two) {{
  unsigned y = x[threadIdx.x], *at = out + place[threadIdx.x];
  out_two[threadIdx.x] = {call};
}}"""
    rng = np.random.default_rng(3)
    place, x = rng.integers(0, 20, 64).astype(np.uint32), rng.integers(0, 6, 64).astype(np.uint32)
    held, old = rng.integers(0, 6, 20).astype(np.uint32), np.zeros(64, np.uint32)
    wanted, left = [], held.tolist()
    for p, y in zip(place.tolist(), x.tolist()):
        wanted.append(left[p])
        left[p] = MODELS[call](left[p], y)
    small(text).run(1, 64, place=place, x=x, out=held, out_two=old)
    assert held.tolist() == left and old.tolist() == wanted


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


# ---- tensor maps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"box": (6, 8)}, "rows of a box that are no multiple of 16 bytes"),
        ({"box": (16, 8), "swizzle": 32}, "rows of a box that are longer than the swizzle"),
        ({"box": (8, 257)}, "a box beyond 1 to 256"),
        ({"box": (8, 0)}, "a box beyond 1 to 256"),
        ({"strides": (72,)}, "a stride that is no multiple of 16"),
        ({"strides": ()}, "axes"),
        ({"of": Ptr("x", 8)}, "an address that is no multiple of 16"),
    ],
)
def test_a_tensor_map_that_the_driver_takes_for_none_is_refused(changed: dict[str, Any], says: str) -> None:
    """cuTensorMapEncodeTiled is not there to ask."""
    text = 'struct alignas(64) Map { char b[128]; }; extern "C" __global__ void f(const __grid_constant__ Map, float* out) {}'
    given = {"of": Ptr("x"), "dtype": "float32", "shape": (16, 8), "strides": (64,), "box": (8, 8), "swizzle": 32}
    operands = {"x": np.zeros((8, 16), np.float32)}
    out = np.zeros(1, np.float32)
    small(text).run(1, 32, map=TensorMap(**given), out=out, operands=operands)
    with pytest.raises(bp.DriverError, match=f"CUDA_ERROR_INVALID_VALUE, {says}"):
        small(text).run(1, 32, map=TensorMap(**given | changed), out=out, operands=operands)


# ---- what is not known -----------------------------------------------------------------------------------------------


def test_unreadable_ptx_is_reported_with_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (33,), "f32"), device="ptx:sm_87")
    text = HEAD + ".visible .entry k() { .reg .b32 %r<3>; sad.s32 %r1, %r2, %r2, %r1; ret; }"
    monkeypatch.setattr(launch, "compile_ptx", lambda *_, **__: text)
    launch.translated.cache_clear()
    says = r"'sad.s32 .*line 4 of the PTX\), of elementwise/map.cu:.* for sm_87: choose another variant"
    with pytest.raises(bp.UnsupportedError, match=says):
        plan.run(x=np.zeros(33, np.float32))
    launch.translated.cache_clear()


# ---- arrivals, and what a profile counts -----------------------------------------------------------------------------

ARRIVALS = """
__device__ unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void f(float* out) {
  __shared__ unsigned long long bell;
  __shared__ float held[32];
  if (!threadIdx.x) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(place(&bell)) : "memory");
  __syncthreads();
  if (threadIdx.x < 32) {
    held[threadIdx.x] = threadIdx.x;
    asm volatile("FENCE mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" ::"r"(place(&bell)) : "memory");
  } else {
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parityORDER.shared::cta.b64 p, [%0], 0; @!p bra again;}"
                 ::"r"(place(&bell)) : "memory");
    out[threadIdx.x - 32] = held[63 - threadIdx.x];
  }
}
"""


@pytest.mark.parametrize("options", ORDERS[:3])
def test_a_fence_of_the_cta_is_enough_for_an_arrival_in_it(options: Options) -> None:
    out = np.zeros(32, np.float32)
    text = ARRIVALS.replace("ORDER", "")
    small(text.replace("FENCE", "fence.acq_rel.cta;")).run(1, 64, out=out, options=options)
    assert (out == np.arange(32)[::-1]).all()
    with pytest.raises(bp.RaceFault, match="nothing orders"):
        small(text.replace("FENCE", "")).run(1, 64, out=out, options=options)


def test_relaxed_wait_does_not_count_as_acquire() -> None:
    with pytest.raises(bp.UnsupportedError, match=r"mbarrier\.try_wait\.parity\.relaxed"):
        small(ARRIVALS.replace("FENCE", "").replace("ORDER", ".relaxed.cta"))


def test_a_profile_counts_what_a_gpu_would_move() -> None:
    """An output of the emulator's begins as a GPU's does, so that rows of whole sectors are that."""
    x = np.zeros((64, 64), np.float16)
    for _ in range(8):
        plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(x, x), bp.PlanPreference(variant="simt"), device="ptx")
        report = plan.profile(a=x, b=x)
        (launch,) = report.launches
        count, sectors, ideal = launch.accesses["store out"]
        assert 0 < count < sectors == ideal == x.nbytes // 32
        assert plan.run(a=x, b=x).ctypes.data % 512 == 0
        assert launch.barriers and f"barriers: {launch.barriers:,} by warps" in str(report)


def test_what_a_kernel_leaves_as_it_is_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that the emulator allocates holds no zeros, which might be right."""
    x = np.zeros(33, np.float32)
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", x), device="ptx")
    monkeypatch.setattr(launch.Program, "run", lambda *_, **__: None)
    assert (plan.run(x=x) == np.full(33, 0x7F7F7F7F, np.uint32).view(np.float32)).all()
