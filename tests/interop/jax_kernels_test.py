"""What JAX hands to XLA for a GPU, looked at and run without one: the module is lowered for CUDA, its kernels are emulated with
the buffers in XLA's order, and the results are compared with the oracle's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

jax = pytest.importorskip("jax")
jnp = jax.numpy

from baracuda_py.interop.jax.call import Call, problem_of, shape_of, signature_of  # noqa: E402
from baracuda_py.interop.jax.handler import TARGET, selection_of  # noqa: E402
from baracuda_py.interop.jax.ptx import SCRATCH, baked, copying, filling  # noqa: E402
from baracuda_py.interop.jax.ways import PTX, way_of  # noqa: E402
from baracuda_py.plan.registry import all_ops, get_op  # noqa: E402
from baracuda_py.runtime.steps import Packed, Ptr, Run, Scratch, Struct, TensorMap  # noqa: E402
from baracuda_py.types import DeviceSpec  # noqa: E402

from .arrays import calls_of  # noqa: E402
from .lowered import custom_calls, lowered_for_cuda, run_lowered  # noqa: E402

ARCH = "sm_90a"
RNG = np.random.default_rng(0)


def array(*shape: int, dtype: str = "float32") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


# A function, its arrays, and the number of its kernels.
RUN: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "elementwise": (lambda x: bp.gelu(x), (array(3, 37),), 1),
    "rows": (lambda x: bp.softmax(x), (array(4, 33),), 1),
    "scalars": (lambda x, w: bp.matmul(x, w, alpha=0.5), (array(5, 33), array(33, 17)), 1),
    "scratch": (lambda x: bp.sum(x, axis=0), (array(200, 33),), 2),
    "two results": (lambda x, w: tuple(bp.rms_norm(x, w, stats=True)), (array(4, 64), array(64)), 1),
    "constants": (lambda x: bp.rope(x, base=100.0), (array(1, 2, 3, 8),), 1),
    "copy": (lambda d, s: bp.write_slice(d, s, [(1, 2), (0, 33)]), (array(4, 33), array(1, 33)), 1),
    "copy of rows": (lambda d, s: bp.write_slice(d, s, [(0, 4), (3, 9)]), (array(4, 33), array(4, 6)), 1),
    "in place": (
        lambda c, x, p: tuple(bp.kv_append(c, c, x, x, p))[:1],
        (np.zeros((1, 2, 8, 16), np.float32), array(1, 2, 1, 16), np.array([3], np.int32)),
        1,
    ),
    "indexed struct": (
        lambda o, lse: tuple(bp.merge_attention(o, lse)),
        (array(2, 1, 2, 3, 16), array(2, 1, 2, 3)),
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RUN)
def test_jax_kernels_give_the_answer(case: str) -> None:
    function, arrays, count = RUN[case]
    with bp.device(ARCH):
        module = lowered_for_cuda(function, *arrays)
    assert [target for target, _ in custom_calls(module)] == [PTX] * count
    made = run_lowered(module, arrays)
    wanted = jax.jit(function)(*arrays)
    for got, want in zip(made, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_jax_kernels_keep_the_bound_of_the_plan() -> None:
    x = array(16, 257)
    with bp.device(ARCH):
        (made,) = run_lowered(lowered_for_cuda(lambda x: bp.softmax(x), x), (x,))
    plan = bp.SoftmaxPlan.select(bp.SoftmaxDescriptor(shape=x.shape, element="f32"), device=ARCH).selection
    wanted = bp.softmax(x.astype(np.float64), device="cpu")
    plan.guarantee.check(made, wanted, {"x": x}, output=bp.F32, measures=plan.measured())
    with pytest.raises(AssertionError):
        plan.guarantee.check(made * np.float32(1.001), wanted, {"x": x}, output=bp.F32, measures=plan.measured())


def test_jax_ways_of_all_ops() -> None:
    handled = {}
    with jax.enable_x64(True):
        for name in all_ops():
            for given, _ in calls_of(name, 1):
                call, arrays = Call.of(signature_of(name), given)
                problem = problem_of(call, tuple(map(shape_of, arrays)))
                if not problem.desc.empty:
                    way = way_of(problem, selection_of(problem, call, DeviceSpec.named(ARCH)))
                    assert str(way).startswith(f"{name}: {way.way}, because ")
                    if not way.kernels:
                        handled[name] = way.why
    assert handled and all("tensor map" in why for why in handled.values()), handled
    for name in handled:
        assert any("wgmma" in kernel for each in get_op(name).plan.candidates for kernel in each.launches), name


def test_jax_tensor_maps_go_through_the_handler() -> None:
    a, b = array(64, 128, dtype="float16"), array(128, 64, dtype="float16")
    with bp.device(ARCH):
        ((target, said),) = custom_calls(lowered_for_cuda(lambda a, b: bp.matmul(a, b), a, b))
    assert target == TARGET
    assert Call.of_text(said["call"]).op == "matmul"


def test_jax_attributes_are_those_that_xla_reads() -> None:
    x = array(4, 33)
    with bp.device(ARCH):
        ((_, said),) = custom_calls(lowered_for_cuda(lambda x: bp.softmax(x), x))
    assert set(said) == {
        "name", "kernel_type", "kernel_data", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
        "shared_mem_bytes", "output_indices",
    }  # fmt: skip
    assert said["output_indices"] == [1]
    text = said["kernel_data"]
    assert f".entry {said['name']}(" in text
    assert ".target sm_90\n" in text
    assert text.count(".param .u64 buffer_") == 2


def test_jax_computation_is_exported_whole() -> None:
    x = array(4, 33)
    with bp.device(ARCH):
        exported = jax.export.export(
            jax.jit(lambda x: bp.softmax(x)),
            platforms=("cuda",),
            disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(PTX)],
        )(x)
    assert PTX in exported.mlir_module()
    pytest.importorskip("flatbuffers")
    assert jax.export.deserialize(exported.serialize()).mlir_module() == exported.mlir_module()


# ---- the text --------------------------------------------------------------------------------------------------------------

TEXT = """.version 8.0
.target sm_90
.address_size 64

.visible .entry k(
	.param .u32 k_param_0,
	.param .align 8 .b8 k_param_1[24],
	.param .u64 k_param_2
)
{
	.reg .b16 	%rs<3>;
	.reg .f32 	%f<3>;
	.reg .b32 	%r<5>;
	.reg .b64 	%rd<9>;

	ld.param.u32 	%r1, [k_param_0];
	mov.b64 	%rd1, k_param_1;
	ld.param.u64 	%rd2, [%rd1];
	ld.param.v2.u32 	{%r2, %r3}, [k_param_1+8];
	ld.param.f32 	%f1, [%rd1+16];
	ld.param.s8 	%rs1, [k_param_1+20];
	ld.param.u64 	%rd3, [k_param_2];
	st.global.u64 	[%rd3], %rd2;
	ret;
}
"""
ARGS = (
    np.uint32(7),
    Struct((Ptr("x", 4), np.int32(-2), np.int32(3), Run("alpha", "float32"), Packed(b"\xff", 1))),
    Scratch(256, 8),
)


def test_ptx_constants_replace_parameters() -> None:
    text = baked(TEXT, ARGS, {"alpha": 1.5}, {"x": 8, SCRATCH: 0})
    lines = [line.strip().replace(" \t", " ") for line in text.splitlines()]
    assert "mov.b32 %r1, 0x00000007;" in lines
    assert [x for x in lines if "%r2," in x or "%r3," in x] == ["mov.b32 %r2, 0xFFFFFFFE;", "mov.b32 %r3, 0x00000003;"]
    assert "mov.f32 %f1, 0f3FC00000;" in lines
    assert "mov.b16 %rs1, 0xFFFF;" in lines
    assert lines[lines.index("ld.param.u64 %rd2, [buffer_0];") + 1] == "add.s64 %rd2, %rd2, 12;"
    assert lines[lines.index("ld.param.u64 %rd3, [buffer_1];") + 1] == "add.s64 %rd3, %rd3, 256;"
    assert "k_param" not in text


def test_ptx_absent_operands_are_null() -> None:
    assert "mov.b64 \t%rd2, 0;" in baked(TEXT, ARGS, {"alpha": 1.5}, {SCRATCH: 0})


def test_ptx_arguments_that_are_no_constants_are_refused() -> None:
    tensor_map = TensorMap(Ptr("x"), "f32", (4,), (), (4,))
    with pytest.raises(bp.UnsupportedError, match="tensor map"):
        baked(TEXT, (tensor_map, *ARGS[1:]), {"alpha": 1.5}, {"x": 0})
    with pytest.raises(bp.UnsupportedError, match="address of a parameter"):
        baked(TEXT.replace("ret;", "cvta.param.u64 %rd4, %rd1;\n\tret;"), ARGS, {"alpha": 1.5}, {"x": 0, SCRATCH: 0})
    with pytest.raises(bp.UnsupportedError, match="part of a pointer"):
        baked(TEXT.replace("[k_param_1+8]", "[k_param_1+4]"), ARGS, {"alpha": 1.5}, {"x": 0, SCRATCH: 0})


@pytest.mark.parametrize(("nbytes", "shift", "width"), [(24, 8, 64), (12, 4, 32), (6, 2, 16), (5, 0, 8), (8, 1, 8)])
def test_ptx_transfers_use_the_widest_access(nbytes: int, shift: int, width: int) -> None:
    text, blocks = copying("sm_80", Ptr("y"), Ptr("x"), 0, 0, nbytes, 1, {"x": shift, "y": 0})
    assert f"ld.global.b{width} " in text
    assert f"st.global.b{width} " in text
    assert blocks == 1
    assert f"st.global.b{width} " in filling("sm_80", Ptr("x"), 1, nbytes, {"x": shift})[0]


@pytest.mark.parametrize("nbytes", [1, 6, 4096])
def test_ptx_fill_sets_every_byte(nbytes: int) -> None:
    from baracuda_py.emulator.launch import Program, translator
    from baracuda_py.runtime.steps import Kernel, Launch
    from baracuda_py.tensor import intake

    text, blocks = filling("sm_80", Ptr("x", 2), 0xA7, nbytes, {"x": 0})
    x = np.zeros(nbytes + 4, np.uint8)
    launch = Launch(Kernel("fill.cu", "fill"), (blocks, 1, 1), (256, 1, 1), (Ptr("x"),))
    Program("fill", [launch], ("x",), "sm_80", lambda *_: translator(text)).run(
        {"x": intake(x, what="x")}, {"x"}, {}, 0
    )
    assert (x[2:-2] == 0xA7).all()
    assert not x[:2].any() and not x[-2:].any()


def ptxas() -> str | None:
    """The toolkit's, or that of the package nvidia-cuda-nvcc."""
    wheel = next(iter(Path(np.__file__).parents[1].glob("nvidia/cuda_nvcc/bin/ptxas")), None)
    return shutil.which("ptxas") or (wheel and str(wheel))


def assembled(ptx: str, target: str, folder: Path) -> None:
    if (tool := ptxas()) is None:
        pytest.skip("needs ptxas, of the CUDA toolkit or the package nvidia-cuda-nvcc-cu12")
    path = folder / "kernel.ptx"
    path.write_text(ptx)
    made = subprocess.run([tool, f"-arch={target}", path, "-o", folder / "out"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("name", tuple(all_ops()))
def test_kernels_of_all_ops_are_assembled(name: str, tmp_path: Path) -> None:
    """The emulator reads more than ptxas takes: names that are declared in an inner block, for one."""
    with jax.enable_x64(True):
        for given, _ in calls_of(name, 2):
            call, arrays = Call.of(signature_of(name), given)
            problem = problem_of(call, tuple(map(shape_of, arrays)))
            if not problem.desc.empty:
                for kernel in way_of(problem, selection_of(problem, call, DeviceSpec.named(ARCH))).kernels:
                    assembled(kernel.ptx, "sm_90", tmp_path)


@pytest.mark.parametrize(
    "target", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103", "sm_120", "sm_121"]
)
def test_copies_are_assembled_for_every_target(target: str, tmp_path: Path) -> None:
    """A driver refuses PTX whose version is older than its target."""
    buffers = {"d": 0, "s": 0}
    texts = copying(target, Ptr("d"), Ptr("s"), 48, 24, 24, 4, buffers), filling(target, Ptr("d"), 1, 24, buffers)
    for text, blocks in texts:
        assert blocks == 1
        assembled(text, target, tmp_path)
