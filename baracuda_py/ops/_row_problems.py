"""Wanted problems that several families of row ops have."""

from __future__ import annotations

from typing import Any

from ..samples.sample import Sample
from ..samples.wanted import Problems

__all__ = ["cluster", "kept", "resident", "unaligned"]


def cluster(problems: Problems, op: str, columns: int, dt: Any, *names: str, **per_column: Any) -> None:
    """Rows that the CTAs of a cluster share: the last part is shorter, and ends within a vector."""
    n = problems.normal
    arrays = {name: n((2, columns), dt) for name in names} | {k: n((columns,), v) for k, v in per_column.items()}
    aligned = columns * dt.itemsize % 16 == 0
    of_cluster = "rows" if aligned else "unaligned"
    problems.want(f"cluster-{op}-{columns}", op, Sample(f"{dt} 2x{columns}", arrays), of_cluster, ("*ctas=*",))


def kept(problems: Problems, op: str, columns: int, dt: Any, *names: str, **per_column: Any) -> None:
    """Rows that a cluster keeps, of which none starts where another does in its 16 bytes: all inputs, or one."""
    arrays = {name: problems.padded((2, columns), dt, 7 - 2 * i) for i, name in enumerate(names)}
    arrays |= {name: problems.normal((columns + 1,), kind)[1:] for name, kind in per_column.items()}
    configs = [f"*kept={inputs}" for inputs in range(1, len(names) + 1)]
    problems.want(f"kept-{op}-{columns}", op, Sample(f"{dt} 2x{columns}", arrays), "kept", configs, arch="sm_90a")


def unaligned(problems: Problems, op: str, dt: Any, *names: str, **per_column: Any) -> None:
    """Long rows, none of which starts where another does in its 16 bytes."""
    arrays = {name: problems.padded((3, 2051), dt, 2 * i) for i, name in enumerate(names)}
    arrays |= {name: problems.normal((2052,), kind)[1:] for name, kind in per_column.items()}
    problems.want(f"unaligned-{op}-2051", op, Sample(f"{dt} 3x2051", arrays), "unaligned")


def resident(problems: Problems, op: str, columns: int, dt: Any, *names: str, **per_column: Any) -> None:
    """Rows that stay in registers, of which none starts where another does in its 16 bytes."""
    arrays = {name: problems.padded((5, columns), dt, 2 + 2 * i) for i, name in enumerate(names)}
    arrays |= {name: problems.normal((columns + 1,), kind)[1:] for name, kind in per_column.items()}
    problems.want(f"resident-{op}-{columns}", op, Sample(f"{dt} 5x{columns}, odd", arrays), "unaligned_resident")
