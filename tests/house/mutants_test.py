"""The list of mutants stays alive: each applies to the file as it is, reads as code, changes it, and names tests that exist."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from baracuda_py.plan import all_ops, all_wanted
from baracuda_py.runtime.compile.sources import kernels_dir

from ..mutants.catalogue import CONTROLS, KINDS, ROOT, Mutant, catalogue, survivors
from ..mutants.workshop import NEAR, arguments
from ..places import file_of

MUTANTS = catalogue()


def test_every_mutant_applies_and_reads_as_code() -> None:
    complaints = [complaint for mutant in (*MUTANTS, *CONTROLS) if (complaint := mutant.complaint())]
    assert not complaints, "\n".join(complaints)


def test_names_are_unique_and_kinds_known() -> None:
    assert all(count == 1 for count in Counter(m.name for m in MUTANTS).values())
    unknown = {m.name: m.kind for m in MUTANTS if m.kind not in KINDS}
    assert not unknown, f"{unknown} are of no kind: there are {', '.join(KINDS)} (tests/mutants/catalogue.py)"
    assert len({(m.file, m.old, m.new, m.occurrence) for m in MUTANTS}) == len(MUTANTS)


def test_there_are_enough_of_them_everywhere() -> None:
    assert len(MUTANTS) >= 200
    kernels = {path.relative_to(ROOT).as_posix() for path in kernels_dir().rglob("*.cu*")}
    missing = kernels - {m.file for m in MUTANTS if m.in_kernel}
    assert not missing, (
        f"no mutant edits {missing}: list some in tests/families/<family>.toml, or in the family's folder"
    )
    ours = Counter(m.file.split("/")[1] for m in MUTANTS if not m.in_kernel)
    assert ours.keys() >= {"ops", "plan", "runtime", "tensor", "numerics", "types", "functional.py", "call"}
    assert sum("oracle" in Path(m.file).parts or Path(m.file).stem == "oracle" for m in MUTANTS) >= 6


def test_what_is_asked_of_a_mutant_exists() -> None:
    wanted = {w.name for w in all_wanted()}
    for mutant in MUTANTS:
        assert mutant.wanted or mutant.ops or mutant.tests, f"{mutant.name} names nobody to ask"
        assert set(mutant.wanted) <= wanted, mutant.name
        assert set(mutant.ops) <= all_ops().keys(), mutant.name
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).is_file(), f"{mutant.name}: {test}"
        assert arguments(mutant, "wider"), mutant.name
    for names in NEAR.values():
        for name in names:
            assert Path(file_of(name)).name == f"{name}_test.py"


def test_only_mutants_are_explained() -> None:
    assert survivors().keys() <= {m.name for m in MUTANTS}
    assert all(len(reason) > 20 for reason in survivors().values())


@pytest.mark.parametrize(("occurrence", "wanted"), [(1, "Xbab"), (2, "abXb"), (0, ""), (3, "")])
def test_an_edit_is_of_the_occurrence_that_it_names(occurrence: int, wanted: str) -> None:
    mutant = Mutant("m", "index", "f", "a", "X", occurrence)
    if wanted:
        assert mutant.applied("abab") == wanted
    else:
        with pytest.raises(ValueError, match="2 times"):
            mutant.applied("abab")


def test_edit_without_effect_is_reported() -> None:
    file = Path(__file__).relative_to(ROOT).as_posix()
    old = "MUTANTS = " + "catalogue()"
    assert "changes nothing" in Mutant("m", "index", file, old, f"{old}  # words").complaint()
    assert "is no code" in Mutant("m", "index", file, old, f"{old})").complaint()
    assert "0 times" in Mutant("m", "index", file, "no such " + "text", "").complaint()
