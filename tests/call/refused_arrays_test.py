"""Objects that intake refuses, each with a typed error that names the operand and says what is wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.tensor import dlpack, intake

from ..gauntlet import readable
from .producers import Exporter, Interface

X = np.arange(12, dtype=np.float32).reshape(3, 4)
TYPE, DEVICE = bp.OperandTypeError, bp.DeviceMismatchError


def _set(**fields: Any) -> Callable[[Any], Any]:
    def change(tensor: Any) -> None:
        for name, value in fields.items():
            setattr(tensor, name, value)

    return change


def _strideless(tensor: Any) -> None:
    tensor.strides = type(tensor.strides)()


def _consumed(x: np.ndarray[Any, Any], version: tuple[int, int] | None) -> Any:
    capsule = x.__dlpack__(max_version=version)
    np.from_dlpack(SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (1, 0)))
    return capsule


def _renamed(_tensor: Any) -> Any:
    new = ctypes.pythonapi["PyCapsule_New"]
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(1, b"arrow_array", None)


def _of_version(major: int) -> Callable[[np.ndarray[Any, Any]], Any]:
    def make(x: np.ndarray[Any, Any]) -> Any:
        capsule = x.__dlpack__(max_version=(1, 1))
        dlpack._Versioned.from_address(dlpack._pointer_of(capsule, b"dltensor_versioned")).major = major
        return capsule

    return make


def _negative(tensor: Any) -> None:
    tensor.shape[1] = -4


class Other:
    """An array on a device that is neither CUDA nor the host."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 8, 0  # kDLMetal

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("must not be asked")


class Broken(Other):
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise RuntimeError("Can't export tensors that require gradient, use tensor.detach()")


class Failing:
    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("the context is gone")


class _Stumbles:
    """Raises at whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} today")


class _Forgetful:
    """Has an interface when asked whether, and none when asked for it."""

    asked = 0

    @property
    def __cuda_array_interface__(self) -> Any:
        self.asked += 1
        if self.asked > 1:
            raise RuntimeError("gone")
        return {}


# An object, the error, and what it says.
REFUSED: list[tuple[Any, type[bp.BaracudaError], str]] = [
    # of no kind that is known, and of kinds that no kernel takes
    ("text", TYPE, "expected an array"),
    ([1.0], TYPE, "got list"),
    (3, TYPE, "numpy.asarray(3, dtype)"),
    (np.array(["a"]), TYPE, "is not an element kind"),
    (np.zeros(3, ml_dtypes.int4), TYPE, "GpuBuffer.view"),
    (np.zeros(3, "f4,i4"), TYPE, "op: x"),
    (np.ndarray((2,), np.float32, bytearray(16), 0, (6,)), TYPE, "not whole elements"),
    (Other(), DEVICE, "device type 8"),
    (Broken(), TYPE, "x.detach()"),
    (Interface(typestr="<M8[s]"), TYPE, "is not an element kind"),
    (Interface(strides=(6,)), TYPE, "not whole elements"),
    (_Stumbles(), TYPE, "no __baracuda_tensor__ today"),
    (_Forgetful(), TYPE, "gone"),
    (SimpleNamespace(__baracuda_tensor__=5), TYPE, "'int' object is not callable"),
    (SimpleNamespace(__baracuda_tensor__=lambda: "a tensor"), TYPE, "gave 'a tensor'"),
    (SimpleNamespace(__cuda_array_interface__=7), TYPE, "malformed"),
    (
        SimpleNamespace(__cuda_array_interface__={"shape": (1,), "typestr": "<f4", "data": (64, False), "stream": "s"}),
        TYPE,
        "malformed",
    ),
    (type("Homeless", (), {"__module__": None})(), TYPE, "expected an array"),
    # over DLPack
    (Exporter(X, change=lambda _: _consumed(X, None)), TYPE, "consumed before: give a fresh capsule"),
    (Exporter(X, change=lambda _: _consumed(X, (1, 1))), TYPE, "consumed before"),
    (Exporter(X, change=lambda _: "capsule"), TYPE, "gave str, not a DLPack capsule"),
    (Exporter(X, change=_renamed), TYPE, "gave PyCapsule, not a DLPack capsule"),
    (Exporter(X, change=lambda _: _of_version(2)(X)), TYPE, "version 2."),
    (Exporter(X, change=lambda _: _of_version(99)(X)), TYPE, "only 1.x is known"),
    (Exporter(X, change=lambda t: _set(shape=type(t.shape)())(t)), TYPE, "rank 2 and no shape"),
    (Exporter(X, change=_set(ndim=-1)), TYPE, "rank -1"),
    (Exporter(X, change=lambda t: _set(lanes=4)(t.dtype)), TYPE, "has no element kind here"),
    (Exporter(X, change=_set(data=None)), TYPE, "null pointer: pass an array that has memory"),
    (Exporter(X, device=(2, 0)), DEVICE, "says (2, 0), and the capsule is of (1, 0)"),
    (Exporter(X, change=lambda t: _set(type=2)(t.device)), DEVICE, "says (1, 0), and the capsule"),
    (Exporter(X, device=RuntimeError("deleted")), TYPE, "failed (RuntimeError: deleted)"),
    (Exporter(X, device=None), TYPE, "__dlpack_device__ of the tests array failed (TypeError"),
    (Exporter(X, device=(1,)), TYPE, "failed (ValueError"),
    (Exporter(X, change=_negative), TYPE, "the shape (3, -4)"),
    (
        Exporter(X, change=lambda t: _set(type=2, id=1)(t.device), device=(2, 0)),
        DEVICE,
        "says (2, 0), and the capsule is of (2, 1)",
    ),
    # over __cuda_array_interface__, and masks
    (Interface(mask=Interface()), TYPE, "has a mask, which no kernel looks at"),
    (np.ma.masked_array(np.ones(4, np.float32), [0, 1, 0, 0]), TYPE, "has a mask, which no kernel looks at"),
    (Interface(data=(0, False)), TYPE, "the shape (4,), the strides None and the address 0"),
    (Interface(shape=(-4,)), TYPE, "the shape (-4,)"),
    (Interface(strides=(4, 4)), TYPE, "the strides (4, 4)"),
    (Interface(shape=4), TYPE, "malformed __cuda_array_interface__ (TypeError"),
    (Interface(typestr=7), TYPE, "malformed __cuda_array_interface__"),
    (Interface(data=None), TYPE, "malformed __cuda_array_interface__ (TypeError"),
    (Failing(), TYPE, "__cuda_array_interface__ of Failing failed (RuntimeError: the context is gone)"),
    (SimpleNamespace(__cuda_array_interface__={}), TYPE, "malformed __cuda_array_interface__ (KeyError: 'typestr')"),
]


@pytest.mark.parametrize(("x", "error", "says"), REFUSED, ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_intake_refusals(x: Any, error: type[bp.BaracudaError], says: str) -> None:
    host = not isinstance(x, Exporter)  # a plan for the host refuses another device's capsule unread
    with pytest.raises(error) as caught:
        intake(x, what="op: x", host=host)
    readable(caught.value, "op: x", says)
    assert type(caught.value) is error
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (4,), "f32"), device="cpu")
    assert isinstance(x, _Forgetful) or not plan.can_implement(x=x)
