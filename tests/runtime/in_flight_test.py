"""Loads that a thread has in flight, read from the machine code: a row kernel that waits for each vector before it loads the
next leaves DRAM idle, gives the right result, and shows nowhere else. Needs nvdisasm or cuobjdump (``[dev]``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from baracuda_py.plan import get_op
from baracuda_py.runtime.compile.inspect import KernelView
from baracuda_py.runtime.system.toolchain import disassembler

pytestmark = pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed")

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\d+\s+)?(\S+)\s*(.*?)\s*;")
REGISTER = re.compile(r"\bR(\d+)\b")
BYTES = {"128": 16, "64": 8, "U8": 1, "S8": 1, "U16": 2, "S16": 2}


def waits(sass: str) -> Iterator[int]:
    """The bytes that a thread has asked for at each of its waits, in the order of the code: where a register is read that a load
    writes."""
    asked: dict[str, int] = {}
    for opcode, operands in INSTRUCTION.findall(sass):
        loads = opcode.startswith("LDG.")
        target, _, source = operands.partition(",")
        if any(register in asked for register in REGISTER.findall(source if loads else operands)):
            yield sum(asked.values())
            asked = {}
        if loads and (found := REGISTER.findall(target)):
            width = next((BYTES[part] for part in opcode.split(".") if part in BYTES), 4)
            registers = range(int(found[0]), int(found[0]) + max(width // 4, 1))
            asked |= {str(register): width // len(registers) for register in registers}


def kernels(op: str, **fields: Any) -> tuple[Any, list[KernelView]]:
    plan = get_op(op).plan.select(get_op(op).describe(**fields), device="h200")
    return plan, list(plan.kernels)


WEIGHT, BIAS = {"weight_element": "bf16"}, {"bias_element": "bf16"}
# Ops of resident rows: how many arrays of the row's length a thread reads before it waits at first.
ROWS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("softmax", 1, {}),
    ("softmax_backward", 2, {}),
    ("log_softmax_backward", 2, {}),
    ("masked_softmax", 1, {}),
    ("masked_softmax_backward", 2, {}),
    ("rms_norm", 2, WEIGHT),
    ("layer_norm", 3, WEIGHT | BIAS),
    ("rms_norm_int8", 2, WEIGHT),
    ("layer_norm_fp8", 3, WEIGHT | BIAS),
    ("silu_mul_int8", 2, {}),
)


@pytest.mark.parametrize("columns", [1024, 4096])
@pytest.mark.parametrize(("op", "arrays", "fields"), ROWS, ids=[row[0] for row in ROWS])
def test_rows_are_loaded_before_anything_waits(op: str, arrays: int, fields: dict[str, Any], columns: int) -> None:
    plan, (kernel,) = kernels(op, shape=(16384, columns), element="bf16", **fields)
    config = plan.selection.config
    assert config.resident
    assert next(waits(kernel.sass)) >= arrays * config.items * config.vector * 2, kernel.name


# The same of rows that start anywhere; weights, which all rows share, come behind.
UNALIGNED: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("softmax", 1, {}),
    ("softmax_backward", 2, {}),
    ("log_softmax_backward", 2, {}),
    ("rms_norm", 1, WEIGHT),
    ("layer_norm", 2, WEIGHT | BIAS | {"residual_element": "bf16"}),
)


@pytest.mark.parametrize("columns", [1001, 4097])
@pytest.mark.parametrize(("op", "arrays", "fields"), UNALIGNED, ids=[row[0] for row in UNALIGNED])
def test_unaligned_rows_are_loaded_before_anything_waits(
    op: str, arrays: int, fields: dict[str, Any], columns: int
) -> None:
    plan, (kernel,) = kernels(op, shape=(16384, columns), element="bf16", **fields)
    config = plan.selection.config
    assert plan.sku.variant == "unaligned_resident"
    assert next(waits(kernel.sass)) >= arrays * config.items * config.vector * 2, kernel.name


def test_channels_are_loaded_before_anything_waits() -> None:
    fields = {"num_groups": 32, **WEIGHT, **BIAS}
    plan, (kernel,) = kernels("group_norm", shape=(32, 320, 32, 32), element="bf16", **fields)
    config = plan.selection.config
    assert config.resident
    assert next(waits(kernel.sass)) >= config.items * config.vector * 2


@pytest.mark.parametrize(("op", "fields"), [("sum", {"axes": (0,)}), ("argmax", {"axes": (0,)})])
def test_chunks_are_joined_with_loads_in_flight(op: str, fields: dict[str, Any]) -> None:
    _, (_, join) = kernels(op, shape=(8192, 8192), element="bf16", **fields)
    assert "join_chunks" in join.name
    assert next(waits(join.sass)) >= 8 * 4


def test_stripes_are_added_with_loads_in_flight() -> None:
    _, (_, stripes) = kernels("rms_norm_backward", shape=(131072, 128), element="bf16", **WEIGHT)
    assert "sum_stripes" in stripes.name
    assert next(waits(stripes.sass)) >= 12 * 4


def test_wgmma_epilogue_reads_with_loads_in_flight() -> None:
    """32 columns a store box: eight pairs a thread, of which the branch on beta parts one."""
    _, (kernel, *_) = kernels(
        "matmul", a_shape=(16384, 1664), b_shape=(1664, 4096), a_element="bf16", b_element="bf16", out_element="f32",
        c_shape=(16384, 4096), c_element="f32",
    )  # fmt: skip
    assert "TMA_ROW" in kernel.name
    assert sum(asked >= 7 * 8 for asked in waits(kernel.sass)) >= 4


def test_waits_are_counted_in_order() -> None:
    """On code of our own: two loads before the first wait, one before the second."""
    text = "\n".join(
        f"        /*{16 * i:04x}*/                   {line} ;"
        for i, line in enumerate((
            "LDG.E.64 R4, desc[UR6][R2.64]",
            "@!P0 LDG.E.128 R8, desc[UR6][R2.64+0x10]",
            "FADD R5, R9, R6",
            "LDG.E R4, desc[UR6][R2.64]",
            "FADD R0, R0, R4",
        ))
    )  # fmt: skip
    assert list(waits(text)) == [24, 4]
