"""The forms of instructions that the emulator knows, in the notation of the PTX ISA's syntax: ``{.x}`` is optional, ``<x>``
is one of a set. A form that is missing here is refused, so that no modifier is ever ignored.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["known"]

_SETS = {
    "int": "[us](16|32|64)",
    "integer": "[us](8|16|32|64)",
    "word": "[us](16|32)",
    "long": "[us](32|64)",
    "bits": "b(16|32|64)",
    "item": "[bus](8|16|32|64)|f(32|64)",
    "value": "[bus](16|32|64)|f(32|64)",
    "real": "f(32|64)",
    "half": "f16(x2)?|bf16(x2)?",
    "float": "f(32|64)|f16(x2)?|bf16(x2)?",
    "single": "f(16|32|64)|bf16",
    "pair": "f16x2|bf16x2",
    "fp8x2": "e4m3x2|e5m2x2",
    "rnd": "rn|rz|rm|rp",
    "rint": "rni|rzi|rmi|rpi",
    "signed": "s(16|32|64)",
    "unsigned": "u(16|32|64)",
    "order": "eq|ne|lt|le|gt|ge",
    "test": "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan",
    "bool": "and|or|xor",
    "scope": "cta|cluster|gpu|sys",
    "shared": "shared(::cta|::cluster)?",
    "window": "global|shared|local|const|param",
    "vec": "v2|v4|v8",
    "loaded": "weak|volatile|relaxed|acquire",
    "stored": "weak|volatile|relaxed|release",
    "exchanged": "relaxed|acquire|release|acq_rel",
    "cache": "ca|cg|cs|lu|cv|wb|wt",
    "level1": "L1::(evict_normal|evict_unchanged|evict_first|evict_last|no_allocate)",
    "level2": "L2::(evict_normal|evict_first|evict_last)",
    "line": "L2::(64B|128B|256B)",
    "mnk": "m[0-9]+n[0-9]+k[0-9]+",
    "element": "f64|f32|f16|bf16|tf32|e4m3|e5m2|s32|[us]8|[us]4",
}

# A form, and its number of operands.
_FORMS = """
mov.<pred|value>                                                                     2
cvta{.to}.<window>.<u32|u64>                                                         2
cvt{.<rnd|rint>}{.ftz}{.sat}.<integer|single>.<integer|single>                       2
cvt.<rn|rz>{.relu}{.satfinite}.<half>.f32                                            2-3
cvt.rn.satfinite{.relu}.<fp8x2>.f32                                                  3
cvt.rn.satfinite{.relu}.<fp8x2>.<pair>                                               2
cvt.rn{.relu}.<pair>.<fp8x2>                                                         2
cvt.<rna|rn|rz>{.satfinite}{.relu}.tf32.f32                                          2
selp.<value>                                                                         4
abs{.ftz}.<float>                                                                    2
abs.<signed>                                                                         2
neg{.ftz}.<float>                                                                    2
neg.<signed>                                                                         2
add.<int>                                                                            3
add.sat.s32                                                                          3
add{.<rnd>}{.ftz}{.sat}.<float>                                                      3
sub.<int>                                                                            3
sub.sat.s32                                                                          3
sub{.<rnd>}{.ftz}{.sat}.<float>                                                      3
mul.<lo|hi>.<int>                                                                    3
mul.wide.<word>                                                                      3
mul{.<rnd>}{.ftz}{.sat}.<float>                                                      3
mad.<lo|hi>.<int>                                                                    4
mad.wide.<word>                                                                      4
mad.<rnd>{.ftz}{.sat}.<real>                                                         4
fma.<rnd>{.ftz}{.sat}{.relu}.<float>                                                 4
div.<int>                                                                            3
div.<rnd|approx|full>{.ftz}.<real>                                                   3
rem.<int>                                                                            3
min.<int>                                                                            3
min.relu.s32                                                                         3
min{.ftz}{.NaN}.<float>                                                              3
max.<int>                                                                            3
max.relu.s32                                                                         3
max{.ftz}{.NaN}.<float>                                                              3
copysign.<real>                                                                      3
rcp.<rnd|approx>{.ftz}.<real>                                                        2
sqrt.<rnd|approx>{.ftz}.<real>                                                       2
rsqrt.approx{.ftz}.<real>                                                            2
<sin|cos|lg2>.approx{.ftz}.f32                                                       2
ex2.approx{.ftz}.<f32|half>                                                          2
tanh.approx.<f32|half>                                                               2
<bool>.<pred|bits>                                                                   3
not.<pred|bits>                                                                      2
shl.<bits>                                                                           3
shr.<int|bits>                                                                       3
shf.<l|r>.<clamp|wrap>.b32                                                           4
bfe.<long>                                                                           4
bfi.<b32|b64>                                                                        5
prmt.b32{.<f4e|b4e|rc8|ecl|ecr|rc16>}                                                4
lop3.b32                                                                             5
<popc|clz|brev>.<b32|b64>                                                            2
bfind{.shiftamt}.<long>                                                              2
dp4a.<u32|s32>.<u32|s32>                                                             4
setp.<eq|ne>{.<bool>}.<bits>                                                         3-4
setp.<order>{.<bool>}.<signed>                                                       3-4
setp.<order|lo|ls|hi|hs>{.<bool>}.<unsigned>                                         3-4
setp.<test>{.<bool>}{.ftz}.<float>                                                   3-4
testp.<finite|infinite|number|notanumber|normal|subnormal>.<real>                    2
ld{.<loaded>}{.<scope>}{.<shared|window>}{.<cache>}{.nc}{.<level1>}{.<level2>}{.<line>}{.<vec>}.<item> 2
st{.<stored>}{.<scope>}{.<shared|global|local>}{.<cache>}{.<level1>}{.<level2>}{.<vec>}.<item>          2
st.param{::func}{.<vec>}.<item>                                                      2
atom{.<exchanged>}{.<scope>}{.<shared|global>}.<add|min|max|and|or|xor|exch|inc|dec>.<long|b32|b64|real>  3
atom{.<exchanged>}{.<scope>}{.<shared|global>}.cas.<b16|b32|b64|long>                                     4
red{.<exchanged>}{.<scope>}{.<shared|global>}.<add|min|max|and|or|xor|inc|dec>.<long|b32|b64|real>                        2
red{.relaxed}{.<scope>}.global.add.<v2|v4>.f32                                       2
cp.async.<ca|cg>.shared{::cta}.global{.<line>}                                      3-4
cp.async.commit_group                                                                0
cp.async.wait_group                                                                  1
cp.async.wait_all                                                                    0
cp.async.bulk.tensor.<1d|2d|3d|4d|5d>.shared::<cta|cluster>.global{.tile}.mbarrier::complete_tx::bytes      3
cp.async.bulk.tensor.<1d|2d|3d|4d|5d>.shared::cluster.global{.tile}.mbarrier::complete_tx::bytes.multicast::cluster  4
cp.async.bulk.tensor.<1d|2d|3d|4d|5d>.global.shared::cta{.tile}.bulk_group           2
cp.async.bulk.commit_group                                                           0
cp.async.bulk.wait_group{.read}                                                      1
st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.<v2|v4>}.<b32|b64|long|real>  3
prefetch{.<global|local>}.<L1|L2>                                                    1
prefetch{.<const|param>}.tensormap                                                   1
prefetchu.L1                                                                         1
applypriority.global.L2::evict_normal                                                2
setmaxnreg.<inc|dec>.sync.aligned.u32                                                1
nanosleep.u32                                                                        1
membar.<cta|gl|sys>                                                                  0
fence{.<sc|acq_rel|acquire|release>}.<scope>                                         0
fence.mbarrier_init.release.cluster                                                  0
fence.proxy.async{.<global|shared>}                                                  0
griddepcontrol.<wait|launch_dependents>                                              0
mbarrier.init{.shared{::cta}}.b64                                                    2
mbarrier.inval{.shared{::cta}}.b64                                                   1
mbarrier.arrive{.<release|relaxed>}{.<cta|cluster>}{.<shared>}.b64                   2-3
mbarrier.arrive.expect_tx{.<release|relaxed>}{.<cta|cluster>}{.<shared>}.b64         3
mbarrier.expect_tx{.relaxed}{.<cta|cluster>}{.<shared>}.b64                          2
mbarrier.try_wait.parity{.acquire}{.<cta|cluster>}{.shared{::cta}}.b64               3-4
barrier.cluster.arrive{.<release|relaxed>}{.aligned}                                 0
barrier.cluster.wait{.acquire}{.aligned}                                             0
bar.sync                                                                             1-2
bar.arrive                                                                           2
bar.warp.sync                                                                        1
barrier{.cta}.sync.aligned                                                           1-2
barrier{.cta}.arrive.aligned                                                         2
mapa{.shared::cluster}.u32                                                           3
shfl.sync.<up|down|bfly|idx>.b32                                                     5
vote.sync.<any|all|uni>.pred                                                         3
vote.sync.ballot.b32                                                                 3
redux.sync.<add|min|max>.<u32|s32>                                                   3
redux.sync.<bool>.b32                                                                3
elect.sync                                                                           2
activemask.b32                                                                       1
<ldmatrix|stmatrix>.sync.aligned.m8n8.<x1|x2|x4>{.trans}.shared{::cta}.b16           2
mma.sync.aligned.<mnk>.row.col{.satfinite}.<element>.<element>.<element>.<element>   4
wgmma.<fence|commit_group>.sync.aligned                                              0
wgmma.wait_group.sync.aligned                                                        1
wgmma.mma_async.sync.aligned.<mnk>.<f16|f32|s32>.<element>.<element>                 4-8
bra{.uni}                                                                            1
brx.idx{.uni}                                                                        2
ret{.uni}                                                                            0
<exit|trap>                                                                          0
"""


def _alternatives(names: str) -> str:
    return "|".join(_SETS.get(name, name) for name in names.split("|"))


def _pattern(form: str) -> str:
    form = form.replace(".", r"\.").replace("{", "(").replace("}", ")?")
    return re.sub(r"<([^>]*)>", lambda found: f"({_alternatives(found[1])})", form)


def _read(line: str) -> tuple[re.Pattern[str], range]:
    form, count = line.split()
    least, _, most = count.partition("-")
    return re.compile(_pattern(form)), range(int(least), int(most or least) + 1)


_KNOWN = [_read(line) for line in _FORMS.strip().splitlines()]


@lru_cache(maxsize=4096)
def known(opcode: str, operands: int) -> bool:
    """Whether the emulator knows an instruction of that opcode with that number of operands.

    >>> known("add.rn.ftz.f32", 3), known("add.rn.ftz.s32", 3), known("add.f32", 2)
    (True, False, False)
    """
    return any(operands in counts and pattern.fullmatch(opcode) for pattern, counts in _KNOWN)
