"""Fitted quantities: each table says unit, GPU, date and way of the fit, is read by one cost model, and follows the rule for
GPUs that were not measured."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baracuda_py.ops import _fitted
from baracuda_py.ops._fitted import FITTED, Fitted, measured, read_table
from baracuda_py.plan.registry import all_ops
from baracuda_py.types import DeviceSpec, known_devices

FAMILIES = sorted(path.stem for path in (FITTED / "h200").glob("*.toml"))
TIERS = {DeviceSpec.named(name).tier.value for name in known_devices()}
SAYS = {"value", "unit", "what", "date", "how", "unmeasured"}


def models() -> list[type[Fitted]]:
    all_ops()
    return [kind for kind in Fitted.__subclasses__() if kind.__module__.startswith("baracuda_py.")]


def quantities(file: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for name, table in file.items():
        if isinstance(table, dict):
            yield from ((f"{name}.{quantity}", said, table) for quantity, said in measured(file, name).items())


@pytest.mark.parametrize("family", FAMILIES)
def test_fitted_quantities_say_unit_date_and_way(family: str) -> None:
    file = read_table(family)
    assert file["gpu"] == DeviceSpec.named("h200").name
    for name, said, table in quantities(file):
        assert {"value", "unit"} <= said.keys() <= SAYS and said["unit"], name
        assert re.fullmatch(r"(before )?2026-\d\d-\d\d", said.get("date", table.get("date", ""))), name
        assert said.get("how", table.get("how")), name
        assert said.get("unmeasured", {}).keys() <= TIERS, name


def test_fitted_tables_are_each_read_by_one_model() -> None:
    tables = {
        f"{family}.{name}" for family in FAMILIES for name, x in read_table(family).items() if isinstance(x, dict)
    }
    assert Counter(kind.table for kind in models()) == Counter(tables)


def test_fitted_models_have_values_on_every_device() -> None:
    for kind in models():
        for name in known_devices():
            values = vars(kind.of(DeviceSpec.named(name)))
            assert values.keys() == kind.__annotations__.keys(), kind.table


class Two(Fitted, table="one.costs"):
    latency_s: float
    rate_ratio: float


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "h200").mkdir()
    text = "[costs]\nlatency_s = { value = 1.0 }\nrate_ratio = { value = 0.5, unmeasured = { sm80 = 0.9 } }\n"
    (tmp_path / "h200" / "one.toml").write_text(text)
    monkeypatch.setattr(_fitted, "FITTED", tmp_path)
    monkeypatch.setattr(Two, "_last", None)
    caches = (_fitted._made, _fitted._folder, _fitted.read_table)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("folder")
def test_fitted_values_of_unmeasured_gpus_are_the_h200s() -> None:
    costs = {name: Two.of(DeviceSpec.named(name)) for name in ("h200", "h100", "sm_80", "ptx:sm_80", "sm_120")}
    assert {name: x.latency_s for name, x in costs.items()} == dict.fromkeys(costs, 1.0)
    assert [x.rate_ratio for x in costs.values()] == [0.5, 0.5, 0.9, 0.9, 0.5]


def test_fitted_values_of_a_measured_gpu_are_its_own(folder: Path) -> None:
    (folder / "h100").mkdir()
    (folder / "h100" / "one.toml").write_text("[costs]\nlatency_s = { value = 2.0 }\nrate_ratio = { value = 0.6 }\n")
    h100 = DeviceSpec.named("h100")
    assert [Two.of(d).latency_s for d in (h100, h100.as_emulated(), DeviceSpec.named("h200"))] == [2.0, 2.0, 1.0]
    assert Two.of(replace(h100, sms=66)).rate_ratio == 0.6


def test_fitted_model_that_differs_from_its_table_is_refused(folder: Path) -> None:
    (folder / "h200" / "one.toml").write_text("[costs]\nlatency_s = { value = 1.0 }\n")
    with pytest.raises(KeyError, match="rate_ratio"):
        Two.of(DeviceSpec.named("h200"))
