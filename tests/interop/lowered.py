"""Runs what JAX would hand to XLA for a GPU: the module's custom calls, their PTX in the emulator, buffers in their order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from baracuda_py.emulator.launch import Program, translator
from baracuda_py.interop.jax.ways import PTX
from baracuda_py.runtime.steps import Kernel, Launch, Ptr
from baracuda_py.tensor import intake

__all__ = ["custom_calls", "lowered_for_cuda", "run_lowered"]


def lowered_for_cuda(function: Callable[..., Any], *arrays: Any) -> Any:
    """The module that a GPU's XLA would compile. The function is traced again at each call, for the device in effect."""
    return (
        jax.jit(lambda *own: function(*own)).trace(*arrays).lower(lowering_platforms=("cuda",)).compiler_ir("stablehlo")
    )


def custom_calls(module: Any) -> list[tuple[str, dict[str, Any]]]:
    """The target and the attributes of each custom call."""
    return [
        (_target(op), _attributes(op)) for op in _operations(module) if op.operation.name == "stablehlo.custom_call"
    ]


def run_lowered(module: Any, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The results of a module that has nothing but kernels and constants."""
    entry = next(iter(module.body.operations))
    block = entry.regions[0].blocks[0]
    held = dict(zip(block.arguments, map(np.asarray, arrays), strict=True))
    for op in block.operations:
        kind = op.operation.name
        if kind == "stablehlo.constant":
            held[op.results[0]] = _constant(op)
        elif kind == "stablehlo.custom_call":
            assert _target(op) == PTX
            made = _launched(op, [held[x] for x in op.operands])
            held.update(zip(op.results, made, strict=True))
        else:
            assert kind == "func.return", kind
            return [held[x] for x in op.operands]
    raise AssertionError("the module returns nothing")


def _operations(module: Any) -> Any:
    for function in module.body.operations:
        for block in function.regions[0].blocks:
            yield from block.operations


def _target(op: Any) -> str:
    return str(op.attributes["call_target_name"].value)


def _attributes(op: Any) -> dict[str, Any]:
    held = op.attributes["mhlo.backend_config"]
    return {named.name: _plain(named.attr) for named in held}


def _plain(value: Any) -> Any:
    return value.value if hasattr(value, "value") else list(value)


def _constant(op: Any) -> np.ndarray[Any, Any]:
    kind = op.results[0].type
    return np.broadcast_to(np.asarray(op.attributes["value"]), tuple(kind.shape)).copy()


_ALIAS = re.compile(r"output_tuple_indices = \[(\d*)\], operand_index = (\d+)")
_DTYPES = {"bf16": "bfloat16", "i1": "bool", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}
_PREFIXES = {"ui": "uint", "i": "int", "f": "float"}


def _dtype(kind: Any) -> Any:
    text = str(kind)
    prefix = text.rstrip("0123456789")
    return jax.numpy.dtype(_DTYPES.get(text) or _PREFIXES[prefix] + text.removeprefix(prefix))


@lru_cache(maxsize=64)
def _translated(text: str) -> Any:
    return translator(text)


def _launched(op: Any, given: list[Any]) -> list[Any]:
    """The results of one kernel: it takes the addresses of the arguments and of the results, where `output_indices` says."""
    said = _attributes(op)
    types = [result.type for result in op.results]
    made = [np.full(tuple(t.shape), 0, _dtype(t.element_type)) for t in types]
    for x in made:
        x.reshape(-1).view(np.uint8)[...] = 0xA5  # memory that nothing has written
    for result, operand in _ALIAS.findall(str(op.attributes.get("output_operand_aliases", ""))):
        made[int(result or 0)] = given[int(operand)].copy()
    count = len(given) + len(made)
    places = [int(i) for i in said["output_indices"]]
    inputs = iter([x.copy() for x in given])
    buffers = [made[places.index(i)] if i in places else next(inputs) for i in range(count)]
    names = tuple(f"buffer_{i}" for i in range(count))
    grid, block = (tuple(int(said[f"{what}_{axis}"]) for axis in "xyz") for what in ("grid", "block"))
    launch = Launch(
        Kernel("handed.cu", said["name"]), grid, block, tuple(map(Ptr, names)), int(said["shared_mem_bytes"])
    )
    assert said["kernel_type"] == "ptx"
    program = Program("handed over", [launch], names, "sm_90a", lambda *_: _translated(said["kernel_data"]))
    tensors = {name: intake(x, what=name) for name, x in zip(names, buffers)}
    program.run(tensors, {names[i] for i in places}, {}, 0)
    return made
