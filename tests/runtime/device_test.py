"""Which device `device=` means, and that a plan runs on its own arch only; GPUs are faked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import Plan
from baracuda_py.runtime.gpu import device as devices
from baracuda_py.tensor import Tensor
from baracuda_py.types import DeviceSpec

CAPABILITIES = ((9, 0), (8, 9), (7, 5), (13, 1))


class Runtime:
    """Four GPUs: an H200, an RTX 4090, one that is too old, and one that is too new."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def deviceGetAttribute(self, attribute: int, ordinal: int) -> int:
        self.asked.append((attribute, ordinal))
        return CAPABILITIES[ordinal][{75: 0, 76: 1}[attribute]]

    def getDevice(self) -> int:
        return 1


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    runtime = Runtime()
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(devices, "require_gpu", lambda _what: cupy)
    monkeypatch.setattr(devices, "device_count", lambda: len(CAPABILITIES))
    monkeypatch.setattr("baracuda_py.plan.plan.require_gpu", lambda _what: cupy)
    specs = {i: DeviceSpec.named(n) for i, n in enumerate(("h200", "sm_89", "sm_80", "sm_120"))}
    monkeypatch.setattr(devices, "_present", specs.__getitem__)
    devices._arch_of.cache_clear()
    yield runtime
    devices._arch_of.cache_clear()


class On:
    """An f32 vector on a device."""

    def __init__(self, ordinal: int, address: int = 4096) -> None:
        self.described = Tensor(address, (64,), (1,), bp.F32, ordinal, "cupy")

    def __baracuda_tensor__(self) -> Tensor:
        return self.described


def plan(device: Any) -> Plan[Any]:
    return bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (64,), "f32"), device=device)  # type: ignore[arg-type]


# ---- the arch of the operands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selected", ["sm_80", "sm_86", "sm_89", "sm_90a", "h200", "sm_100a", "sm_103", "sm_120"])
@pytest.mark.parametrize(("ordinal", "arch"), [(0, "sm_90a"), (1, "sm_89"), (2, "sm_75"), (3, "sm_131")])
@pytest.mark.usefixtures("gpus")
def test_a_plan_takes_operands_on_its_own_arch_only(selected: str, ordinal: int, arch: str) -> None:
    made = plan(selected)
    feasible = made.can_implement(x=On(ordinal), out=On(ordinal, 8192))
    if made.device.arch == arch:
        assert feasible
        return
    assert isinstance(feasible.error, bp.DeviceMismatchError)
    for word in (str(made.device), f"device {ordinal}", arch, "exp"):
        assert word in str(feasible.error)


def test_neither_run_nor_load_nor_bind_takes_another_arch(gpus: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the steps: a copy would run on any GPU, and is refused alike."""
    from contextlib import nullcontext

    from baracuda_py.call import bound
    from baracuda_py.call.paths import resolve

    runtime = SimpleNamespace(
        getDevice=gpus.getDevice, streamIsCapturing=lambda _s: False, CUDARuntimeError=RuntimeError
    )
    driver = SimpleNamespace(CUDADriverError=RuntimeError)
    fake = SimpleNamespace(
        cuda=SimpleNamespace(runtime=runtime, driver=driver, Device=nullcontext, get_current_stream=None)
    )
    for module in (resolve, bound):
        monkeypatch.setattr(module, "require_gpu", lambda _what, **_: fake)
    monkeypatch.setattr(resolve, "is_capturing", lambda _stream: False)
    desc = bp.WriteSliceDescriptor((64,), [(0, 64)], "f32")  # type: ignore[arg-type]
    copied = bp.WriteSlicePlan.select(desc, device="sm_80")
    assert copied.kernels == ()
    given = {"dest": On(0), "source": On(0, 8192)}
    with pytest.raises(bp.DeviceMismatchError, match=r"sm_80.*device 0, which is sm_90a"):
        copied.run(**given, stream=7)
    monkeypatch.setattr(fake.cuda, "get_current_stream", lambda: SimpleNamespace(ptr=7))
    with pytest.raises(bp.DeviceMismatchError, match=r"sm_80.*device 0, which is sm_90a"):
        copied.bind(**given)
    with pytest.raises(bp.DeviceMismatchError, match=r"sm_80.*device 1, which is sm_89"):
        copied.load()


def test_the_driver_is_asked_once_a_device(gpus: Runtime) -> None:
    for _ in range(5):
        assert plan("h200").can_implement(x=On(0), out=On(0, 8192))
    assert gpus.asked == [(75, 0), (76, 0)]


# ---- what device= takes ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gpus")
def test_a_device_is_named_as_torch_and_cupy_name_it() -> None:
    torch = pytest.importorskip("torch")
    current = DeviceSpec.named("sm_89")
    for which in (None, "cuda", "cuda:1", 1, np.int64(1), bp.Device(1), SimpleNamespace(id=1), torch.device("cuda:1")):
        assert devices.spec_of(which) == current, which
    assert devices.spec_of(torch.device("cuda")) == current
    assert devices.spec_of(torch.device("cpu")) == devices.spec_of("cpu") == DeviceSpec.named("cpu")
    assert devices.spec_of("cuda:0") == DeviceSpec.named("h200")
    with bp.device("cuda:0"):
        assert devices.spec_of() == DeviceSpec.named("h200")


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    "which", ["cuda:4", "cuda:-1", "cuda:x", "cuda:", 4, -1, True, 1.0, [0], {"id": 0}, object(), b"cpu", "x" * 5000]
)
def test_what_names_no_device_is_refused(which: Any) -> None:
    with pytest.raises(bp.UnsupportedError) as caught:
        plan(which)
    assert len(str(caught.value)) < 300


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("ordinal", ["0", 0.0, None, True, [0]])
def test_an_ordinal_is_an_integer(ordinal: Any) -> None:
    with pytest.raises(bp.UnsupportedError, match="an ordinal is an int"):
        bp.Device(ordinal)
    assert bp.Device(np.int32(1)) == bp.Device(1)


@pytest.mark.gpu
def test_a_plan_of_another_arch_is_refused_on_the_device() -> None:
    import cupy

    x = cupy.ones(64, np.float32)
    here = plan(None).device.arch
    other = plan("sm_80" if here != "sm_80" else "sm_90a")
    assert plan(here).can_implement(x=x)
    for call in (other.run, other.bind):
        with pytest.raises(bp.DeviceMismatchError, match=here):
            call(x=x)
    with pytest.raises(bp.DeviceMismatchError, match=here):
        other.load()
