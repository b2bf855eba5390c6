"""Corners of the emulator: forms of instructions that the project's kernels have no use for, and what little kernels may do."""

from __future__ import annotations

import numpy as np

from .small_kernels import written_in_ptx

HALVES = """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 out) {
  .reg .pred %a, %b, %first, %low, %high; .reg .b32 %t, %x, %y, %one, %two, %both; .reg .b64 %p, %q, %r, %at;
  ld.param.u64 %p, [x]; ld.param.u64 %q, [y]; ld.param.u64 %r, [out];
  mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; add.u64 %p, %p, %at; add.u64 %q, %q, %at; add.u64 %r, %r, %at;
  ld.global.b32 %x, [%p]; ld.global.b32 %y, [%q]; setp.eq.u32 %first, %t, 0;
  setp.lt.f16x2 %low|%high, %x, %y; selp.b32 %one, 1, 0, %low; selp.b32 %two, 2, 0, %high; or.b32 %both, %one, %two;
  setp.lt.or.f16x2 %a|%b, %x, %y, %first; selp.b32 %one, 4, 0, %a; selp.b32 %two, 8, 0, %b;
  or.b32 %both, %both, %one; or.b32 %both, %both, %two; st.global.b32 [%r], %both; ret;
}
"""


def test_a_comparison_of_pairs_has_a_predicate_for_each_element() -> None:
    x = np.array([1, 2, 3, 1, np.nan, 0, 1, 1] * 8, np.float16)
    y = np.array([2, 2, 1, 2, 5, 1, 1, 0] * 8, np.float16)
    out = np.zeros(32, np.uint32)
    written_in_ptx(HALVES).run(1, 32, x=x.view("u4"), y=y.view("u4"), out=out)
    less = (x < y).reshape(32, 2)
    either = less | (np.arange(32) == 0)[:, None]
    assert (out == less @ [1, 2] + either @ [4, 8]).all()
