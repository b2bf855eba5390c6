"""check: raises what the status outputs of results say, which a call on a GPU does not wait for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...types import InvalidProblemError, OperandTypeError
from ..registry import all_ops, get_op

__all__ = ["check"]


def check(*results: Any, **statuses: Any) -> Any:
    """Raises InvalidProblemError, with the op, the place and the cause, if a status says that something was not done.

    results: named tuples of ops with an output `status`. statuses: a status alone by the name of its op, as in
    ``bp.check(write_slice=status)``. It copies each status to the host, which waits for the work that is queued ahead of it on
    its framework's current stream. Returns the results: the one that was given, or a tuple of several.
    """
    for result in results:
        plan, status = getattr(type(result), "plan", None), getattr(result, "status", None)
        if plan is None or status is None:
            named = ", ".join(name for name, op in all_ops().items() if op.plan.statuses)
            raise OperandTypeError(
                f"check: a {type(result).__name__} has no status",
                f"pass the named tuple of one of {named}, or op=status",
            )
        _raise_on(next(name for name, op in all_ops().items() if op.plan is plan), plan.statuses, status)
    for name, status in statuses.items():
        op = get_op(name)
        if not op.plan.statuses:
            raise OperandTypeError(f"check: {name} has no output status", "leave it out")
        _raise_on(op.name, op.plan.statuses, status)
    return results[0] if len(results) == 1 else results or None


def _raise_on(op: str, known: Any, status: Any) -> None:
    values = _on_host(op, status)
    wrong = np.flatnonzero(values)
    if not wrong.size:
        return
    first = int(values.flat[wrong[0]])
    cause, fix = known.get(
        first, (f"the value {first} is none that {op} writes: the array is no status, or was overwritten", "")
    )
    place = ", ".join(str(int(i)) for i in np.unravel_index(int(wrong[0]), values.shape))
    more = f" ({wrong.size} of {values.size} are not 0)" if values.ndim else ""
    raise InvalidProblemError(f"{op}: status{f'[{place}]' if values.ndim else ''} = {first}: {cause}{more}", fix)


def _on_host(op: str, status: Any) -> np.ndarray[Any, Any]:
    """The status as a NumPy array; its framework copies it in the order of its own stream."""
    if hasattr(status, "to_host"):  # a GpuBuffer
        status = status.to_host()
    elif type(status).__module__.startswith("cupy"):
        status = status.get()
    elif type(status).__module__.startswith("torch"):
        status = status.detach().cpu().numpy()
    values = np.asarray(status)
    if values.dtype != np.int32:
        raise OperandTypeError(f"check: {op}'s status holds {values.dtype}, expected int32", "pass the output `status`")
    return values
