"""Calls of torch tensors in a process that cannot import CuPy: on a GPU (``cuda``), or emulated on the host (``ptx``).

``python -m tests.runtime.torch_alone cuda`` prints a line of JSON for each case: its name, and "" or what was wrong.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["BLOCKED", "CALLS", "OPS"]

BLOCKED = ("cupy", "cupyx", "cupy_backends")


class _Blocker:
    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"No module named {name!r}: it is blocked here")


if __name__ == "__main__":
    sys.meta_path.insert(0, _Blocker())  # type: ignore[arg-type]

import pytest  # noqa: E402
import torch  # noqa: E402

import baracuda_py as bp  # noqa: E402
from baracuda_py.runtime.gpu.driver import cupy_or_none, gpu  # noqa: E402
from baracuda_py.runtime.gpu.with_torch import TorchGpu  # noqa: E402

PLACE: dict[str, Any] = {"device": "ptx:sm_90a"}  # of the calls
WHERE = torch.device("cpu")  # of the tensors


def made(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))).sub(0.5).to(dtype)


def compare(function: Callable[..., Any], *operands: Any, **options: Any) -> None:
    """A function of torch tensors against the reference back end, three times: the first call and repeated ones."""
    want = function(*operands, **options, device="cpu")
    here = [x.to(WHERE) if isinstance(x, torch.Tensor) else x for x in operands]
    options = {name: x.to(WHERE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    for _ in range(3):
        got = function(*here, **options, **PLACE)
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want))):
            assert isinstance(one, torch.Tensor) and one.device.type == WHERE.type, type(one)
            near = {"rtol": 2e-2, "atol": 2e-2} if one.dtype.itemsize < 4 else {"rtol": 1e-4, "atol": 1e-4}
            torch.testing.assert_close(one.cpu(), other, **near)


def kv_append() -> None:
    positions = torch.tensor([3, 0], dtype=torch.int32)
    new = made(2, 4, 1, 64), made(2, 4, 1, 64).neg()
    caches = [[torch.zeros(2, 4, 8, 64).to(place) for _ in range(2)] for place in (WHERE, "cpu")]
    bp.kv_append(*caches[0], *(x.to(WHERE) for x in new), positions.to(WHERE), **PLACE)
    bp.kv_append(*caches[1], *new, positions, device="cpu")
    for one, other in zip(*caches):
        assert torch.equal(one.cpu(), other) and one.any()


def write_slice() -> None:
    for ranges, part in (([(1, 3), (2, 6)], made(2, 4)), ([(1, 3), (0, 8)], made(2, 8))):
        dest = torch.zeros(4, 8).to(WHERE)
        bp.write_slice(dest, part.to(WHERE), ranges, **PLACE)
        (r0, r1), (c0, c1) = ranges
        assert torch.equal(dest[r0:r1, c0:c1].cpu(), part) and dest.count_nonzero() == part.count_nonzero()


BF16, F16 = torch.bfloat16, torch.float16
OPS: dict[str, Callable[[], None]] = {
    "rms_norm": lambda: compare(bp.rms_norm, made(5, 192, dtype=F16), made(192, dtype=F16)),
    "matmul": lambda: compare(bp.matmul, made(96, 128, dtype=BF16), made(128, 80, dtype=BF16)),
    "matmul of many k": lambda: compare(bp.matmul, made(16, 1024), made(1024, 16)),
    "softmax": lambda: compare(bp.softmax, made(7, 130)),
    "gelu": lambda: compare(bp.gelu, made(3, 65, dtype=BF16)),
    "add": lambda: compare(bp.add, made(4, 1, 33), made(5, 33)),
    "sum": lambda: compare(bp.sum, made(6, 130), axis=1),
    "attention": lambda: compare(bp.attention, *(made(1, 2, 64, 64, dtype=BF16) for _ in range(3)), causal=True),
    "rope": lambda: compare(bp.rope, made(1, 2, 5, 64)),
    "topk": lambda: compare(bp.topk, made(3, 100), 5),
    "nonzero": lambda: compare(bp.nonzero, made(9, 11).relu()),
    "cumsum": lambda: compare(bp.cumsum, made(3, 70)),
    "quantize_int8": lambda: compare(bp.quantize_int8, made(4, 128)),
    "kv_append": kv_append,
    "write_slice": write_slice,
}


# ---- calls on a GPU only -------------------------------------------------------------------------------------------------


def other_stream() -> None:
    """A call follows torch's current stream, and its result is there when that stream has ended."""
    x = made(1 << 16).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.mul_(3)
        y = bp.square(x)
    stream.synchronize()
    torch.testing.assert_close(y, x * x)


def other_threads() -> None:
    """Threads that have used no CUDA before, which call what was called before."""
    x, w = made(64, 128, dtype=BF16).cuda(), made(128, 64, dtype=BF16).cuda()
    want, wrong = bp.matmul(x, w), []
    square = bp.square(x)

    def work() -> None:
        try:
            for _ in range(20):
                assert torch.equal(bp.matmul(x, w), want) and torch.equal(bp.square(x), square)
        except BaseException:
            wrong.append(traceback.format_exc())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def capture() -> None:
    """torch captures functions, of which one needs a workspace, and replays them with other contents."""
    a, b = made(16, 4096).cuda(), made(4096, 16).cuda()
    bp.gelu(bp.matmul(a, b))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = bp.gelu(bp.matmul(a, b))
    a.mul_(2)
    noise = [torch.full((1 << 16,), 7.0, device="cuda") for _ in range(8)]
    graph.replay()
    torch.testing.assert_close(y, bp.gelu(bp.matmul(a, b)))
    assert len(noise) == 8


def bound_graph() -> None:
    """A graph of bound plans, replayed and updated."""
    x, y, z = made(256).cuda(), torch.zeros(256).cuda(), torch.zeros(256).cuda()
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("square", (256,), "f32"))  # type: ignore[arg-type]
    bound = plan.bind(x=x, out=y)
    graph = bp.Graph(bound)
    x.mul_(2)
    graph.launch()
    torch.testing.assert_close(y, x * x)
    graph.update(bound, out=z)
    graph.launch()
    torch.testing.assert_close(z, x * x)


def workspace() -> None:
    """Scratch that the caller passes is a torch tensor."""
    a, b, out = made(16, 8192).cuda(), made(8192, 16).cuda(), torch.empty(16, 16).cuda()
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor((16, 8192), (8192, 16), "f32", "f32"))  # type: ignore[arg-type]
    own = torch.empty(max(plan.workspace_size, 16), dtype=torch.uint8, device="cuda")
    plan.run(a=a, b=b, out=out, workspace=own)
    torch.testing.assert_close(out, (a.double() @ b.double()).float(), rtol=1e-4, atol=1e-3)


def refusals() -> None:
    """What makes CuPy arrays names CuPy."""
    for what in (lambda: bp.GpuBuffer.zeros(4, "f32"), lambda: bp.Graph(lambda: bp.square(made(4).cuda()))):
        with pytest.raises(bp.UnsupportedError, match="CuPy"):
            what()


CALLS: dict[str, Callable[[], None]] = {
    "other stream": other_stream,
    "other threads": other_threads,
    "capture": capture,
    "bound graph": bound_graph,
    "workspace": workspace,
    "refusals": refusals,
}


def main(where: str) -> None:
    global WHERE, PLACE
    if where == "cuda":
        WHERE, PLACE = torch.device("cuda"), {}
        assert isinstance(gpu(), TorchGpu)
    assert cupy_or_none() is None
    for name, case in (OPS | (CALLS if where == "cuda" else {})).items():
        try:
            case()
            if where == "cuda":
                torch.cuda.synchronize()
            wrong = ""
        except Exception:
            wrong = traceback.format_exc()
        print(json.dumps([name, wrong]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
