"""Instructions of a whole warp, or of those that a mask names, where not all of them come, each beside one that is right:
barriers in divergent code, shuffles, votes, reductions, matrices; and ``trap``.
"""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.emulator.options import Options

from .small_device import beside, body_of, every_order, fault_of, run
from .small_kernels import SmallKernel, written_in_ptx

SHUFFLE = "__shfl_xor_sync({}, i, {})"
MASKED = {
    "half of a full mask": (
        "if (lane < 16) out[i] = " + SHUFFLE.format("~0u", 1) + ";",
        "if (lane < 16) out[i] = " + SHUFFLE.format("0xffffu", 1) + ";", "shfl.sync"),
    "halves that name each other": (
        "if (lane < 16) out[i] = " + SHUFFLE.format("~0u", 1) + "; else out[i] = 2 + " + SHUFFLE.format("~0u", 2) + ";",
        "if (lane < 16) out[i] = " + SHUFFLE.format("0xffffu", 1) + "; else out[i] = 2 + "
        + SHUFFLE.format("0xffff0000u", 2) + ";", "shfl.sync"),
    "not oneself": (
        "out[i] = " + SHUFFLE.format("0xffffu", 1) + ";",
        "out[i] = " + SHUFFLE.format("lane < 16 ? 0xffffu : 0xffff0000u", 1) + ";", "shfl.sync"),
    "from one that is not named": (
        "if (lane < 16) out[i] = " + SHUFFLE.format("0xffffu", 16) + ";",
        "if (lane < 16) out[i] = " + SHUFFLE.format("0xffffu", 8) + ";", "reads from a thread that is not there"),
    "from one that has ended": (
        "if (lane >= 16) return; out[i] = " + SHUFFLE.format("~0u", 16) + ";",
        "if (lane >= 16) return; out[i] = " + SHUFFLE.format("~0u", 8) + ";", "reads from a thread that is not there"),
    "a ballot": ("if (lane < 16) out[i] = __ballot_sync(~0u, lane & 1);", "out[i] = __ballot_sync(~0u, lane & 1);", "vote.sync"),
    "a vote": ("if (lane > 3) out[i] = __all_sync(~0u, i > n);",
               "if (lane > 3) out[i] = __all_sync(~0xfu, i > n);", "(vote|bar).sync"),
    "a reduction": ("if (lane < 16) out[i] = __reduce_add_sync(~0u, i);",
                    "if (lane < 16) out[i] = __reduce_add_sync(0xffffu, i);", "redux.sync"),
    "a barrier of the warp": ("if (lane < 16) __syncwarp(); out[i] = 1;", "if (lane < 16) __syncwarp(0xffff); out[i] = 1;",
                              "bar.warp"),
    "barriers of other masks": (
        "__syncwarp(lane < 16 ? 0x1ffffu : 0xffff0000u); out[i] = 1;",
        "__syncwarp(lane < 16 ? 0xffffu : 0xffff0000u); out[i] = 1;", "bar.warp"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_names_who_comes(name: str, options: Options) -> None:
    wrong, right, says = MASKED[name]
    end = "\n__syncthreads();"  # threads that had ended need not come
    fault, out = beside(bp.DivergenceFault, says, wrong + end, right + end, options)
    assert out.any() and fault.cta == 0 and "sync" in fault.instruction and fault.kernel == "small.cu:f"


@every_order
def test_the_thread_and_line_are_named(options: Options) -> None:
    wrong = body_of("if (lane >= 24) return;\nout[i] = __shfl_down_sync(~0u, i, 1);  // here")
    fault = fault_of(bp.DivergenceFault, "reads from a thread that is not there", wrong, options, block=32)
    assert (fault.thread, fault.source) == (23, wrong.line("here"))
    right = "if (lane >= 24) return;\nout[i] = __shfl_down_sync(~0u, i, 1, 8);"
    assert (run(right, options, block=32)[:24] == np.minimum(np.arange(24) + 1, np.arange(24) | 7)).all()


@every_order
def test_those_who_have_ended_need_not_come(options: Options) -> None:
    out = run("if (lane & 1) return; out[i] = __reduce_add_sync(~0u, 1) + __popc(__ballot_sync(~0u, 1));", options)
    assert (out[::2] == 32).all() and not out[1::2].any()


BARRIERS = {
    "half of a warp, the rest ahead": ("if (lane < 16) __syncthreads(); else out[i] = 1; __syncthreads();",
                                       "if (lane < 16) out[i] = 1; __syncthreads();"),
    "a warp at two of them": ("if (lane < 16) { out[i] = 1; asm volatile(\"bar.sync 0;\"); }"
                              "else { out[i] = 2; asm volatile(\"bar.sync 0;\"); }",
                              "if (i < 32) { out[i] = 1; asm volatile(\"bar.sync 0;\"); }"
                              "else { out[i] = 2; asm volatile(\"bar.sync 0;\"); }"),
    "a loop of as many turns as a lane": ("for (int k = 0; k < lane; ++k) { out[i] = k; __syncthreads(); }",
                                          "for (int k = 0; k < 3; ++k) { out[i] = k; __syncthreads(); }"),
    "an arrival": ("if (lane < 16) asm volatile(\"bar.arrive 1, 64;\"); else asm volatile(\"bar.sync 1, 64;\"); out[i] = 1;",
                   "if (i < 32) asm volatile(\"bar.arrive 1, 64;\"); else asm volatile(\"bar.sync 1, 64;\"); out[i] = 1;"),
}  # fmt: skip


@every_order
@pytest.mark.parametrize("name", BARRIERS)
def test_barriers_in_divergent_code(name: str, options: Options) -> None:
    """Of a part of a warp; a branch that whole warps take is none."""
    wrong, right = BARRIERS[name]
    says = r"^bar\.(sync|arrive) by a part of a warp, whose rest goes another way"
    _, out = beside(bp.DivergenceFault, says, wrong, right, options)
    assert out.any()


MATRIX = """
  .shared .align 128 .b8 tile[512];
  .reg .pred %p; .reg .b32 %r<12>; .reg .f32 %f<4>; .reg .b64 %o;
  mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;
  st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0}; bar.warp.sync -1;
  setp.lt.u32 %p, %r0, LANES;
  @!%p bra END;
  STATEMENT
END:
  ld.param.u64 %o, [out]; mul.wide.u32 %o, %r0, 0; ld.param.u64 %o, [out];
  st.global.u32 [%o], 7;
  ret;
"""
MATRICES = {
    "mma.sync": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r4, %r5}, {%r6}, {%f0, %f1, %f2, %f3};",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r2];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r2], {%r4, %r5};",
}


def matrix_of(opcode: str, lanes: int) -> SmallKernel:
    body = MATRIX.replace("LANES", str(lanes)).replace("STATEMENT", MATRICES[opcode])
    return written_in_ptx(f".visible .entry f(.param .u64 out)\n{{{body}}}\n")


@every_order
@pytest.mark.parametrize("opcode", MATRICES)
def test_matrix_fragments_need_a_whole_warp(opcode: str, options: Options) -> None:
    says = f"^{opcode}[.a-z]* by a part of a warp"
    wrong, right = matrix_of(opcode, 31), matrix_of(opcode, 32)
    fault, out = beside(bp.DivergenceFault, says, wrong, right, options, block=32)
    assert out[0] == 7 and fault.instruction.startswith(opcode)


def test_the_matrices_of_a_short_block_have_no_warp() -> None:
    fault_of(bp.DivergenceFault, "ldmatrix by a part of a warp", matrix_of("ldmatrix", 32), block=24)


@every_order
def test_trap_is_reported_with_its_thread(options: Options) -> None:
    text = body_of("if (i == n) __trap();  // here\nout[i] = 1;")
    assert run(text, options, n=64).all()
    fault = fault_of(bp.TrapFault, "trap", text, options, n=37)
    assert (fault.cta, fault.thread, fault.source) == (0, 37, text.line("here"))


@every_order
def test_a_choice_of_a_branch_that_there_is_not(options: Options) -> None:
    kernel = written_in_ptx("""
.visible .entry f(.param .u64 o, .param .u64 two, .param .u32 n)
{
    .reg .b32 %r<5>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [o]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 1; add.u32 %r3, %r3, %r1;
    ts: .branchtargets A, B;
    brx.idx %r3, ts;
A:  mov.u32 %r4, 7; bra C;
B:  mov.u32 %r4, 9;
C:  mul.wide.u32 %rd2, %r2, 4; add.s64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r4; ret;
}
""")
    assert run(kernel, options).tolist() == [7, 9] * 32
    fault = fault_of(bp.OutOfBoundsFault, "a choice of branch 2 of 2", kernel, options, n=1)
    assert fault.thread % 2 and "brx" in fault.instruction
