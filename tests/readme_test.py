"""The README's session: what of it needs no GPU is run, and what it prints is what stands there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import baracuda_py as bp

README = Path(__file__).parents[1] / "README.md"
SESSION = re.search(r"```(?:python|pycon)\n(>>> .*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
ON_THE_HOST = re.compile(r'Descriptor\(|device="(h200|sm_\d+a?)"|\.precision_guarantee\.bound\)')


def entries() -> list[tuple[str, list[str]]]:
    """Statements without their comments, and the lines that each prints."""
    assert SESSION is not None, "the README has no session"
    found: list[tuple[str, list[str]]] = []
    for line in SESSION[1].splitlines():
        if line.startswith(">>> "):
            found.append((re.sub(r"\s+#.*$", "", line[4:]), []))
        elif line.strip():
            found[-1][1].append(line)
    return [e for e in found if ON_THE_HOST.search(e[0])]


def words(row: str) -> list[str]:
    """A table's row as text: its mark, variant and back end; the rest may be left out, or say `...`."""
    mark, variant, backend = row.split()[:3]
    return [mark, variant.partition("[")[0], backend]


@pytest.mark.filterwarnings("error")
def test_the_session_s_plans_are_selected_and_say_what_stands_there() -> None:
    names: dict[str, object] = {"bp": bp}
    assert len(entries()) >= 6
    for statement, wanted in entries():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = statement if re.match(r"\w+ = |print\(", statement) else f"print({statement})"
            exec(code, names)
        got = printed.getvalue().splitlines()
        if statement.startswith("print("):
            assert got == wanted, statement
        elif wanted:
            rows = [words(row) for row in got[2:]]
            assert got[0] == wanted[0], statement
            assert all(words(row) in rows for row in wanted[2:]), f"{statement}: {rows}"
