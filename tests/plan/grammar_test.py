"""How configurations are spelled: what is printed parses back, and every term is explained."""

from __future__ import annotations

import re

import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._wgmma.staged import StagedTile
from baracuda_py.ops.gemm._wgmma.tile import MENU, Tile
from baracuda_py.plan import glossary
from baracuda_py.plan.grammar import Config
from baracuda_py.plan.select import assess
from baracuda_py.types import DeviceSpec, PlanPreference

WORD = re.compile(r"\d+x\d+(x\d+)?|[a-z_]+(=[a-zA-Z0-9_.+]+)?")
PROBLEMS = [
    bp.MatmulDescriptor(a, b, kind, kind, **fields)  # type: ignore[arg-type]
    for a, b, kind, fields in (
        ((520, 4096), (4096, 8192), "bf16", {}), ((4, 4096), (4096, 512), "f16", {"b_strides": (1, 4096)}),
        ((3, 999), (999, 333), "f32", {}), ((333, 1001), (1001, 777), "f32", {"math": "tf32"}),
        ((64, 8192), (8192, 64), "f64", {}),
    )
]  # fmt: skip


def configs() -> list[Config]:
    found = []
    for desc in PROBLEMS:
        for device in ("h200", "sm_80"):
            candidates = bp.MatmulPlan.all_candidates()
            answers = assess(candidates, desc.canonical(), PlanPreference(), DeviceSpec.named(device))
            found += [a.config for a in answers if isinstance(a.config, Config)]
    return found


def test_matmul_configurations_are_parsed_as_printed() -> None:
    every = configs()
    assert {type(c).__module__.rpartition(".")[2] for c in every} == {"simt", "gemv", "mma", "tile", "staged"}
    for config in every:
        assert all(WORD.fullmatch(word) for word in str(config).split(" ")), str(config)
        hidden = {name: getattr(config, name) for name in hidden_of(config)}
        assert type(config).parse(str(config), **hidden) == config
    assert len({str(tile) for tile in MENU}) == len(MENU)


@pytest.mark.parametrize("name", ["gelu", "add", "contiguize", "write_slice"])
def test_configurations_of_other_families_are_read_back_too(name: str) -> None:
    op, device = bp.get_op(name), DeviceSpec.named("h200")
    descs = [op.describe(**probe).canonical() for probe in op.plan.probes]
    every = [a.config for desc in descs for a in assess(op.plan.candidates, desc, PlanPreference(), device)]
    spelled = {config for config in every if isinstance(config, Config)}
    assert spelled and all(type(config).parse(str(config)) == config for config in spelled)


def hidden_of(config: Config) -> list[str]:
    return [name for name, f in type(config).__dataclass_fields__.items() if f.metadata["hidden"]]  # type: ignore[attr-defined]


def test_a_tile_reads_as_it_is_said() -> None:
    tile = Tile(128, 256, cluster=2, split_last_wave=4, ping_pong=True, transposed=True)
    assert str(tile) == "128x256 cluster=2 split_last_wave=4 ping_pong transposed"
    assert str(StagedTile(64, 32, split_k=2, staged=("a", "b.T"))) == "64x32 split_k=2 staged=a+b.T"
    assert StagedTile.parse("64x32 split_k=2 staged=a+b.T").staged == ("a", "b.T")


@pytest.mark.parametrize(
    "text",
    ["", "128", "128x256x64", "128x256c2", "128x256 cluster", "128x256 cluster=two", "128x256 ping_pong cluster=2",
     "128x256 ping_pong=1", "128x256 cluster=1", "128x256  cluster=2", "128x256 stages=4", " 128x256", "axb"],
)  # fmt: skip
def test_what_no_tile_prints_is_refused(text: str) -> None:
    with pytest.raises(bp.InvalidProblemError, match="spells no configuration of Tile"):
        Tile.parse(text)


def test_every_term_is_explained_and_the_explanation_is_found() -> None:
    explained = dict(line.split("  ", 1) for line in glossary().splitlines())
    for config in configs():
        for word in str(config).split(" "):
            name = word.partition("=")[0]
            assert re.match(r"\d+x", name) or explained[name].strip(), word
    assert "glossary()" in (bp.PlanPreference.__doc__ or "")
    assert "glossary()" in repr(bp.MatmulPlan.select(PROBLEMS[0], device="h200").explain())
