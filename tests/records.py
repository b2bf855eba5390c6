"""What is known of each op's present kernels: kernels/records/<op>.json, one file an op.

``device`` is the op's entry of the device ledger (ledger.py), ``resources`` what its kernels take of an SM (resources.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baracuda_py.plan.about.ledger import records_dir

__all__ = ["put", "read", "records_dir", "spelled"]


def read(folder: Path, op: str) -> dict[str, Any]:
    """The op's record; empty where there is none, or what is there is none."""
    try:
        record: Any = json.loads((folder / f"{op}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = {}
    return record if isinstance(record, dict) else {}


def put(folder: Path, op: str, section: str, value: Mapping[str, Any] | None) -> None:
    """Puts a section into the op's record, or takes it out; a record that says nothing is no file."""
    record = {k: v for k, v in read(folder, op).items() if k != section} | ({section: value} if value else {})
    path = folder / f"{op}.json"
    if record:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(spelled(record) + "\n", encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def spelled(value: Any, indent: str = "") -> str:
    """JSON with sorted keys and one item a line; a row of figures is an item."""
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        items = [f"{json.dumps(key)}: {spelled(value[key], inner)}" for key in sorted(value)]
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        items = [json.dumps(item) for item in value]
    else:
        return json.dumps(value)
    opening, closing = "{}" if isinstance(value, Mapping) else "[]"
    return "\n".join([opening, ",\n".join(inner + item for item in items), indent + closing])
