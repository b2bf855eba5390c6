"""One call of the soak as data: it can be sent to another process, and printed as Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

__all__ = ["WAYS", "Step"]

WAYS = ("function", "run", "bind", "graph", "torch graph")


@dataclass(frozen=True)
class Step:
    """A call of `op` on its sample of that label, at new addresses.

    `way`: by the public function, `plan.run`, a bound plan, or a CUDA graph of that or of torch's. `kind`: "plain" arrays
    (NumPy's or CuPy's), "torch", "mixed". `out`: whether outputs are passed. `stream`: 0 is the current one, 1 another that is
    passed, 2 another that is made CuPy's current one. `layouts`: pairs of an operand and its layout, where that is not as the
    sample has it.
    """

    op: str
    sample: str
    device: str = "ptx"
    way: str = "function"
    kind: str = "plain"
    out: bool = False
    stream: int = 0
    layouts: tuple[tuple[str, str], ...] = ()

    @property
    def problem(self) -> tuple[Any, ...]:
        """What two calls on the same data share."""
        return self.op, self.sample, self.layouts

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_json(given: Mapping[str, Any]) -> Step:
        return Step(**{**given, "layouts": tuple((name, how) for name, how in given["layouts"])})

    def __repr__(self) -> str:
        """As Python, defaults left out."""
        arguments = [repr(self.op), repr(self.sample)]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                arguments.append(f"{field.name}={value!r}")
        return f"Step({', '.join(arguments)})"
