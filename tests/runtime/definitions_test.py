"""What a kernel reaches of its sources: the reader of definitions, alone and on a small tree of files that NVRTC compiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from baracuda_py.runtime.compile import definitions, sources
from baracuda_py.runtime.compile.compiler import _build_ptx
from baracuda_py.runtime.compile.definitions import Piece, read
from baracuda_py.runtime.steps import Kernel

from .ptx_code import code_of

# ---- the reader ----------------------------------------------------------------------------------------------------------

NAMES = {
    "constexpr int A = 1, B = 2;": "A B",
    "constexpr int A = f<1, 2>(3), B[2] = {1, 2};": "A B",
    "template <class T, int N> constexpr u32 SIZE = 64 * WIDEST<T, N> * sizeof(T);": "SIZE",
    "template <> constexpr bool present<Absent> = false;": "present",
    "extern __shared__ __align__(16) u8 pool[];": "pool",
    "static __device__ const float table[2] = {1.0f, 2.0f};": "table",
    "using i8 = signed char;": "i8",
    "template <class T> using Word = typename Of<T>::type;": "Word",
    "using deep::name, other::there;": "deep name other there",
    "using namespace deep;": "",
    "namespace short_ = deep::deeper;": "",
    "static_assert(sizeof(int) == 4);": "",
    "struct Word;": "Word",
    "template <> struct Word<1> { using type = u8; };": "Word",
    "template <class T, class... R> struct In<T, R...> : Base<T> { int at; void f() {} };": "In",
    "struct alignas(16) Map { u8 opaque[128]; } first, second;": "Map first second",
    "enum Store { DIRECT, BY_TMA = 4 };": "Store DIRECT BY_TMA",
    "enum class Kind : u32 { A };": "Kind A",
    "enum { ANONYMOUS };": "ANONYMOUS",
    "template <int N, class T = decltype(f(1))> __device__ Vec<T, N / sizeof(T)> fetch(const T (&x)[N]) { g(x); }": "fetch",
    "template <class T> __global__ void __launch_bounds__(T::N * 32, 1) run(T* x) { if (x) { x[0] = 1; } }": "run",
    "template <> __device__ float absolute<float>(float x) { return x; }": "absolute",
    "__device__ float later(float x);": "later",
    "template <class T> __device__ int Ring<T, (1 > 0)>::slot(int i) const { return i; }": "slot Ring",
    "template <class T> int Ring<T>::count = 3;": "count Ring",
    "__device__ auto deduced(int x) -> Vec<int, 2> { return {x, x}; }": "deduced",
    "__device__ Vec operator+(Vec a, Vec b) { return a; }": "",
    "__device__ int* begin(Span s) { return s.p; }": "",
    'extern "C" __global__ void plain(int* x) { x[0] = 1; }': "plain",
}  # fmt: skip


@pytest.mark.parametrize("text", NAMES)
def test_a_declaration_is_known_by_its_names(text: str) -> None:
    for around in (
        "@",
        "namespace a { @ }",
        "namespace a::b {\n@\n}",
        'extern "C" { @ }',
        "int before;\n@\nint after;",
    ):
        found = read(around.replace("@", text))
        assert not found.whole
        pieces = [p for p in found.parts if isinstance(p, Piece) and not p.names & {"before", "after"}]
        assert [sorted(p.names) for p in pieces] == [sorted(NAMES[text].split())], around


UNKNOWN = [
    "int f() { return 1;", "int f() { g(); } }", "namespace a { int b;", "template <class T struct X;", "{ int a; }", "int a",
    'const char* s = R"(})";', "#define JOIN(a, b) a##b", "int f() {\n#include \"body.cuh\"\n}", "int (*pointer)(int);",
    "u32 (&reference)[2] = other;", "struct X make() { return {}; } int g() { return 1; }", "struct A::B { int c; };",
    "struct X x;", "constexpr struct X x = {1};", "int \\\n a;", "int a{1}, b{2};",
]  # fmt: skip


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_understood_is_not_split(text: str) -> None:
    found = read(f'#include "one.cuh"\n{text}\n')
    assert found.whole and "one.cuh" in found.parts


def test_comments_and_white_space_do_not_count() -> None:
    one = read("int f(int x) { return x + 1; }\n#if A  // one\nint a;\n#endif")
    two = read("int f(int x) // words {\n{\n  return x /* } */ +\n 1;\n}\n#if   A\n  int a; // two\n#endif /* A */")
    assert one == two
    for other in ("x ++ 1", "x + 11", "x - 1", "y + 1", "x + 1.f"):
        assert read(f"int f(int x) {{ return {other}; }}") != read("int f(int x) { return x + 1; }")
    assert read("int f(int x) { return x+ ++y; }") != read("int f(int x) { return x++ +y; }")
    assert read("#define F(x) x") != read("#define F (x) x")
    assert read('const char* s = "a  b";') != read('const char* s = "a b";')


def test_every_file_of_ours_is_split() -> None:
    """Nothing in them belongs to all who include it but macros, using directives, conditions of the arch, operators that are no
    members, and what range-for may look for."""
    for path in sources.kernels_dir().rglob("*.cu*"):
        found = read(path.read_text())
        assert not found.whole, (
            f"{path.name}: definitions.py does not know a form in it; write it otherwise, or teach it"
        )
        common = [p for p in found.parts if isinstance(p, Piece) and not p.names]
        assert all(
            p.uses & {"define", "undef", "using", "operator", "__CUDA_ARCH__", "else", "endif", *definitions._IMPLICIT}
            for p in common
        ), path.name


# ---- what is reached -------------------------------------------------------------------------------------------------------

FILES = {
    "a/k.cu": """
#include "one.cuh"
constexpr int THREADS = 32;
template <class T> __device__ T twice(T x) { return x * T(2); }
template <class Policy, class T> __global__ void __launch_bounds__(THREADS) kernel(T* p) {
  const Pair sum = Pair{p[0], p[1]} + Pair{p[2], p[3]};
  T x = twice(near(sum.first));
  x += Policy::apply(sum.scaled()) + measure(sum);
  x += Traits<T>::value * p[4] + wide<T> * p[5] + T(SECOND) * p[6];
  x += chosen(p[7]) + MACRO(p[8]) + aliased(p[9]) + brought(p[10]) + renamed::inner(p[11]);
  for (float each : Span{p}) x += each;
  Box<T> box{p[12]};
  p[0] = Op::apply(x) + box.opened();
}
__global__ void other(float* p) { p[0] = lonely(p[1]); }
""",
    "include/one.cuh": """
#pragma once
#include "two.cuh"
#define SCALE 3.0f
#define MACRO(x) ((x) * SCALE + helper(x))
__device__ float helper(float x) { return x - 1.5f; }
__device__ float near(float x) { return far_away(x) * FACTOR; }
struct First { static __device__ float apply(float x) { return x + 11.0f; } };
struct Second { static __device__ float apply(float x) { return x + 12.0f; } };
namespace shapes {
struct Pair { float first, second; __device__ float scaled() const; };
__device__ float Pair::scaled() const { return second * 5.0f; }
__device__ Pair operator+(Pair a, Pair b) { return {a.first + b.first * 13.0f, a.second - b.second}; }
__device__ float measure(Pair p) { return p.first * 7.0f; }
struct Span { float* p; };
__device__ float* begin(Span s) { return s.p + 20; }
__device__ float* end(Span s) { return s.p + 24; }
}
using shapes::Pair;
using shapes::Span;
template <class T> struct Traits { static constexpr T value = 21; };
template <> struct Traits<float> { static constexpr float value = 22.0f; };
template <class T> constexpr T wide = 23;
enum Order { FIRST_, SECOND = 24 };
__device__ float chosen(double x) { return 25.0f + float(x); }
__device__ float chosen(float x) { return 26.0f * x; }
namespace deep { __device__ float aliased(float x) { return x * 27.0f; } }
namespace spread { __device__ float brought(float x) { return x * 28.0f; } }
namespace long_name { __device__ float inner(float x) { return x * 29.0f; } }
using deep::aliased;
using namespace spread;
namespace renamed = long_name;
__device__ float lonely(float x) { return x * 30.0f; }
""",
    "include/two.cuh": """
#pragma once
constexpr float FACTOR = 0.5f, UNUSED_FACTOR = 0.25f * FACTOR;
__device__ float far_away(float x) {
#ifdef SPECIAL
  return x * 31.0f;
#else
  return x * 32.0f;
#endif
}
template <class T> struct Holder { T held; __device__ T opened() const { return held * T(33); } };
template <class T> struct Box : Holder<T> {};
""",
    "include/used.cuh": """
#pragma once
__device__ float used(float x) { return x * 41.0f; }
__device__ float idle(float x) { return x * 42.0f; }
""",
}  # fmt: skip
PRELUDE = '#include "used.cuh"\nstruct Op { static __device__ float apply(float x) { return used(x) + 43.0f; } };'
KERNEL = Kernel("a/k.cu", "kernel<First, float>", PRELUDE)
SECOND = Kernel("a/k.cu", "kernel<Second, float>", PRELUDE)

Answers = tuple[str, str]  # a kernel's digest, and its part of the PTX


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    """Of a kernel, after one edit."""
    monkeypatch.setattr(sources, "kernels_dir", lambda: tmp_path)
    monkeypatch.setattr(sources, "_source", lambda file, prelude: sources.Source(file, prelude))

    def of(kernel: Kernel = KERNEL, file: str = "", old: str = "", new: str = "") -> Answers:
        for name, text in FILES.items():
            assert name != file or text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace(old, new) if name == file else text)
        return sources.source_of(kernel).digest(kernel.entry), _ptx(
            kernel, tuple(p.read_text() for p in sorted(tmp_path.glob("*/*.cu*")))
        )

    @cache
    def _ptx(kernel: Kernel, _texts: tuple[str, ...]) -> str:
        return code_of(_build_ptx(kernel, "sm_90a"), "kernel")

    return of


ONE, TWO, K = "include/one.cuh", "include/two.cuh", "a/k.cu"
IN_DIGEST = {
    "the kernel itself": (K, "T x = twice", "T x = T(3) + twice"),
    "a function of its file": (K, "x * T(2)", "x * T(3)"),
    "a constant of an attribute": (K, "THREADS = 32", "THREADS = 64"),
    "a function": (ONE, "far_away(x) * FACTOR", "far_away(x) - FACTOR"),
    "a function's function, of a header's header": (TWO, "x * 32.0f", "x * 34.0f"),
    "a constant of a header's header": (TWO, "FACTOR = 0.5f,", "FACTOR = 0.75f,"),
    "a condition within a function": (TWO, "#ifdef SPECIAL", "#ifndef SPECIAL"),
    "a macro": (ONE, "((x) * SCALE", "((x) / SCALE"),
    "a macro's macro": (ONE, "SCALE 3.0f", "SCALE 4.0f"),
    "a macro that nobody had defined": (TWO, "#pragma once\n", "#pragma once\n#define SPECIAL\n"),
    "a macro in the place of a function": (ONE, "#define SCALE", "#define far_away(x) ((x) + 1.0f)\n#define SCALE"),
    "a macro's function": (ONE, "x - 1.5f", "x - 2.5f"),
    "a type that the entry names": (ONE, "x + 11.0f", "x + 14.0f"),
    "a member that is defined outside": (ONE, "second * 5.0f", "second * 6.0f"),
    "a member's type": (ONE, "float first, second;", "double first, second;"),
    "an operator": (ONE, "b.first * 13.0f", "b.first * 14.0f"),
    "what is found by its argument": (ONE, "p.first * 7.0f", "p.first * 8.0f"),
    "what range-for looks for": (ONE, "s.p + 20", "s.p + 19"),
    "a specialisation": (ONE, "value = 22.0f", "value = 22.5f"),
    "a specialisation that was not there": (ONE, "enum Order", "template <> constexpr float wide<float> = 9;\nenum Order"),
    "a variable template": (ONE, "wide = 23", "wide = 24"),
    "an enumerator": (ONE, "SECOND = 24", "SECOND = 25"),
    "an overload": (ONE, "26.0f * x", "26.0f / x"),
    "an overload that was not there": (ONE, "enum Order", "__device__ float twice(float x) { return 0; }\nenum Order"),
    "a better overload behind": (TWO, "constexpr float FACTOR", "__device__ float measure(float x);\nconstexpr float FACTOR"),
    "what using brings": (ONE, "x * 27.0f", "x * 47.0f"),
    "what using namespace brings": (ONE, "x * 28.0f", "x * 48.0f"),
    "what lies behind another name": (ONE, "x * 29.0f", "x * 49.0f"),
    "another namespace behind that name": (ONE, "renamed = long_name;", "longer = long_name;\nnamespace renamed = longer;"),
    "a base's member": (TWO, "held * T(33)", "held * T(35)"),
    "what the prelude calls": ("include/used.cuh", "x * 41.0f", "x * 51.0f"),
}  # fmt: skip
NO_CODE = {
    "a better overload behind",
    "another namespace behind that name",
}  # counted, and without effect as it happens


@pytest.mark.parametrize("what", IN_DIGEST)
def test_what_a_kernel_reaches_counts(what: str, answers: Callable[..., Answers]) -> None:
    file, old, new = IN_DIGEST[what]
    before, after = answers(), answers(file=file, old=old, new=new)
    assert before[0] != after[0]
    assert (before[1] != after[1]) == (what not in NO_CODE), "the edit was to matter to the compiler too"


SEPARATE = {
    "two definitions in front": (ONE, "#define SCALE", "__device__ int plus() { return 1; }\nstruct Hypot {};\n#define SCALE"),
    "a function behind": (ONE, "__device__ float lonely", "__device__ int fresh() { return near(0); }\n__device__ float lonely"),
    "a namespace": (TWO, "constexpr float FACTOR", "namespace apart { constexpr int N = 1; }\nconstexpr float FACTOR"),
    "a function that others call": (ONE, "x * 30.0f", "x * 31.0f"),
    "the file's other kernel": (K, "lonely(p[1])", "lonely(p[2])"),
    "another type of that kind": (ONE, "x + 12.0f", "x + 15.0f"),
    "a neighbour in the prelude's header": ("include/used.cuh", "x * 42.0f", "x * 52.0f"),
    "a header that nobody needs": (ONE, '#include "two.cuh"', '#include "two.cuh"\n#include "used.cuh"'),
    "words": (TWO, "float far_away(float x) {", "float far_away(float x)  // how far\n{"),
}  # fmt: skip


@pytest.mark.parametrize("what", SEPARATE)
def test_what_a_kernel_does_not_reach_does_not_count(what: str, answers: Callable[..., Answers]) -> None:
    file, old, new = SEPARATE[what]
    assert answers() == answers(file=file, old=old, new=new)


def test_a_prelude_counts_and_its_words_do_not(answers: Callable[..., Answers]) -> None:
    (digest, _), file = answers(), KERNEL.file
    assert answers(Kernel(file, KERNEL.entry, PRELUDE.replace("struct Op {", "struct Op {  // words\n")))[0] == digest
    assert answers(Kernel(file, KERNEL.entry, PRELUDE.replace("43.0f", "44.0f")))[0] != digest
    assert answers(SECOND)[0] != digest


def test_a_header_that_is_not_understood_counts_whole(answers: Callable[..., Answers]) -> None:
    """And so does all that is compiled with it."""
    strange = (ONE, "__device__ float lonely", "#define JOIN(a, b) a##b\n__device__ float lonely")
    (digest, _), text = answers(file=strange[0], old=strange[1], new=strange[2]), FILES[ONE]
    FILES[ONE] = text.replace(strange[1], strange[2])
    try:
        assert answers()[0] == digest
        assert answers(file=TWO, old="UNUSED_FACTOR = 0.25f", new="UNUSED_FACTOR = 0.5f")[0] != digest
    finally:
        FILES[ONE] = text


def test_a_name_in_a_header_that_is_included_twice_counts_once(answers: Callable[..., Answers]) -> None:
    assert answers()[0] == answers(file=K, old='#include "one.cuh"', new='#include "one.cuh"\n#include "two.cuh"')[0]


def test_a_text_is_read_once() -> None:
    text = "int only_here;"
    assert read(text) is read(text) and definitions.read.cache_info().maxsize
