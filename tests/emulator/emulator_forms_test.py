"""What the emulator does not know: an instruction, a modifier, an operand or a name is refused by its name, and never guessed."""

from __future__ import annotations

import re

import pytest

import baracuda_py as bp
from baracuda_py.emulator.ptx.grammar import _FORMS, _SETS, known
from baracuda_py.emulator.ptx.parse import parse
from baracuda_py.emulator.translation.emit_memory import EMITTERS

from .small_kernels import HEAD, written_in_ptx

ROWS = [line.split() for line in _FORMS.strip().splitlines()]
SIMPLE = {
    "int": "s32", "integer": "s8", "word": "s16", "long": "s32", "bits": "b32", "item": "b8", "value": "b32", "real": "f32",
    "half": "f16", "float": "f32", "single": "f16", "signed": "s32", "unsigned": "u32", "shared": "shared",
    "mnk": "m16n8k16", "level1": "L1::evict_first", "level2": "L2::evict_last", "line": "L2::64B", "element": "f64",
}  # fmt: skip


def example(form: str, *, full: bool) -> str:
    """An opcode of a form, with all that may be left out or with none of it."""
    while "{" in form:
        form = re.sub(r"\{([^{}]*)\}", r"\1" if full else "", form)
    return re.sub(
        r"<([^>]*)>", lambda m: SIMPLE.get(one := m[1].split("|")[0], _SETS.get(one, one).split("|")[0]), form
    )


@pytest.mark.parametrize("full", [False, True], ids=["bare", "full"])
def test_only_the_forms_of_the_table_are_known(full: bool) -> None:
    for form, count in ROWS:
        opcode, least = example(form, full=full), int(count.partition("-")[0])
        assert known(opcode, least), opcode
        parts = opcode.split(".")
        for i in range(1, len(parts) + 1):
            assert not known(".".join([*parts[:i], "frob", *parts[i:]]), least), f"{opcode} with .frob"
        assert not known(f"{opcode}x", least) and not known(opcode, 9)
        if least:
            assert not known(opcode, least - 1) or "cp.async.bulk" in opcode


def test_every_opcode_has_an_emitter_or_ends_a_block() -> None:
    heads = (form.replace("<bool>", "<and|or|xor>").split(".")[0].split("{")[0].strip("<>") for form, _ in ROWS)
    opcodes = {name for head in heads for name in head.split("|")}
    assert opcodes - EMITTERS.keys() == {"bra", "brx", "ret", "exit", "trap"} and EMITTERS.keys() <= opcodes


def entry(statement: str, before: str = "") -> str:
    return f"""{before}
.visible .entry f(.param .u64 o)
{{
    .reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>; .reg .f64 %fd<8>;
    {statement}
    ret;
}}"""


REFUSED = [
    "frobnicate.u32 %r1, %r2;", "add.frob.u32 %r1, %r2, %r3;", "add.cc.u32 %r1, %r2, %r3;", "addc.u32 %r1, %r2, %r3;",
    "mov.u32 %r1, %smid;", "mov.u64 %rd1, %clock64;", "mov.u32 %r1, %q1;", "mov.u32 %r1, nosuch;", "mov.u32 %r1, WARP_SZ;",
    "mov.f32 %f1, 1.0;", "mov.u32 %r1, 010;", "add.u32 %r1;", "mov.u32 %r1, %r2.x;", "ld.global.u32 %r1, [%rd1-4];",
    "ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;", "ld.frob.u32 %r1, [%rd1];", "st.param.b32 [o], %r1;",
    "cp.async.ca.shared.global.L2::cache_hint [%r1], [%rd1], 16, %rd2;", "cp.async.ca.shared.global [%r1], [%rd1], 16, %p1;",
    "cp.async.ca.shared.global [%r1], [%rd1], 5;", "cp.async.cg.shared.global [%r1], [%rd1], 4;",
    "cp.async.ca.shared.global [%r1], [%rd1], %r2;", "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];",
    "cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r1, %r2}];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];",
    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;",
    ".reg .v4 .f32 v; mov.u32 %r1, 1;", "rcp.f32 %f1, %f2;", "min.f32 %f1, %f2, %f3, %f4;",
    "min.s32 %r1, %r2, %r3, %r4;", "min.xorsign.abs.f32 %f1, %f2, %f3;", "shfl.sync.idx.b32 %r1, 5, %r2, 31, -1;",
    "shfl.sync.frob.b32 %r1, %r2, %r3, 31, -1;", "vote.sync.frob.pred %p1, %p2, -1;", "match.any.sync.b32 %r1, %r2, -1;",
    "redux.sync.min.f32 %f1, %f2, -1;", "redux.sync.mul.u32 %r1, %r2, -1;", "elect.sync %r1, 0xffffffff;",
    "@%p1 bar.sync 0;", "bar.red.popc.u32 %r1, 0, %p1;", "barrier.sync 1, 64;", "bra NOWHERE;", "fence.frob;",
    "ts: .branchtargets A, B; @%p1 brx.idx %r1, ts; A: mov.u32 %r1, 1; B: mov.u32 %r1, 1;", "griddepcontrol.frob;",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%r0,%r1}, {%r4,%r5}, {%r8,%r9}, {%r0,%r1};",
    "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, {%f0,%f1,%f2,%f3};",
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0,%f1,%f2,%f3}, %rd1, %rd2, %r1, 0, 1, 1, 1;",
    "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.s8 {%r0,%r1,%r2,%r3}, %rd1, %rd2, %p1;",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r3];", "mapa.u64 %rd1, %rd2, %r1;",
    "atom.global.add.noftz.f16 %rs1, [%rd1], %rs2;", "atom.global.v2.f32.add {%f0,%f1}, [%rd1], {%f2,%f3};",
    "red.async.relaxed.cluster.global.add.u32 [%rd1], %r1, [%rd2];", "multimem.ld_reduce.global.add.u32 %r1, [%rd1];",
    "mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;",
    "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 1;", "mbarrier.arrive_drop.shared.b64 %rd1, [%r1];",
    "setp.frob.f32 %p1, %f1, %f2;", "setp.lt.and.f32 %p1, %f1, %f2;", "setp.lo.s32 %p1, %r1, %r2;", "setp.lt.b32 %p1, %r1, %r2;",
    "set.lt.u32.f32 %r1, %f1, %f2;", "cvt.rn.frob.f32.s32 %f1, %r1;", "cvt.rn.f32.e8m0 %f1, %r1;",
    "shf.x.wrap.b32 %r1, %r2, %r3, %r4;", "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x3f, %p2;", "isspacep.global %p1, %rd1;",
    "call.uni nothere;", "vadd.s32.s32.s32 %r1, %r2, %r3;", "add.u32 %r1, %rs1, %r2;", "add.f64 %fd1, %f1, %fd2;",
    "mov.u32 %r1, %p1;", "trap.frob;", "brkpt;", "mov.b128 %rd1, %rd2;",
]  # fmt: skip


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_not_known_is_refused_by_its_name(statement: str) -> None:
    with pytest.raises(bp.UnsupportedError) as caught:
        written_in_ptx(entry(statement))
    assert any(word in str(caught.value) for word in re.findall(r"[\w.:]{4,}", statement)), str(caught.value)


@pytest.mark.parametrize(("text", "says"), [
    ("", "no entries"), (entry("") + entry("").replace("f(", "g("), "2 entries"),
    (entry("", ".const .align 4 .texref t;"), "the variable"), (entry("", ".global .u64 t = frob;"), "the variable"),
])  # fmt: skip
def test_modules_that_it_cannot_read(text: str, says: str) -> None:
    with pytest.raises(bp.UnsupportedError, match=says):
        parse(HEAD + text)


def test_wide_registers_are_refused() -> None:
    with pytest.raises(bp.UnsupportedError, match="128 bits, q"):
        written_in_ptx(entry(".reg .b128 q; mov.u32 %r1, 1;"))


def test_functions_that_call_themselves_are_refused() -> None:
    text = """
.func (.param .b32 r) again (.param .b32 n)
{
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [n];
    { .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; call.uni (b), again, (a); ld.param.b32 %r2, [b]; }
    st.param.b32 [r], %r2;
    ret;
}
""" + entry("{ .param .b32 a; st.param.b32 [a], 3; .param .b32 b; call.uni (b), again, (a); ld.param.b32 %r2, [b]; }")
    with pytest.raises(bp.UnsupportedError, match="again calls itself"):
        written_in_ptx(text)


def test_a_line_of_the_ptx_is_named() -> None:
    text = HEAD + entry("add.u32 %r1, %r2, %r3;\n    frob.u32 %r1, %r2;")
    line = next(i for i, each in enumerate(text.splitlines(), 1) if "frob" in each)
    with pytest.raises(bp.UnsupportedError, match=rf"line {line} of the PTX"):
        written_in_ptx(text)


@pytest.mark.parametrize("mode", ["any", "all", "uni"])
def test_a_modifier_is_not_taken_for_the_name_of_a_set(mode: str) -> None:
    assert known(f"vote.sync.{mode}.pred", 3)
