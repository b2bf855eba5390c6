"""The emulator: real kernels on the host, with every access checked. It needs neither a GPU nor a toolkit.

    python examples/emulate.py

`device="ptx"` compiles a kernel with NVRTC, by default for an H100 ("ptx:sm_80" for an A100), and executes its PTX in NumPy.
"""

from __future__ import annotations

import numpy as np

import baracuda_py as bp


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 100)).astype("float16")

    # 1. A function, on NumPy arrays: the kernel and the NumPy reference agree within the plan's bound.
    y, reference = bp.softmax(x, device="ptx"), bp.softmax(x, device="cpu")
    print("softmax, largest difference:", np.abs(y.astype("f4") - reference.astype("f4")).max())

    # 2. A plan: which kernel, how exact, what it launches. The bits are the same at every call.
    plan = bp.SoftmaxPlan.select(bp.SoftmaxDescriptor.of(x), device="ptx")
    print(plan.explain())
    print("bound:", plan.precision_guarantee.bound)
    out = np.empty_like(x)
    plan.run(x=x, out=out)
    assert out.tobytes() == y.tobytes()

    # 3. Bad input is refused before anything is written: the message names the operand and the fix.
    try:
        bp.softmax(x, out=np.empty((4, 101), "float16"), device="ptx")
    except bp.BaracudaError as error:
        print(f"{type(error).__name__}: {error}")

    # 4. What a call on a GPU can only report by a status raises here.
    cache = np.zeros((1, 8, 1, 64), "float16")
    token = np.ones((1, 1, 1, 64), "float16")
    try:
        bp.kv_append(cache, cache.copy(), token, token, np.array([8], "int32"), layout="BSHD", device="ptx")
    except bp.InvalidProblemError as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
