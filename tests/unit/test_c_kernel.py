"""Kernels as C give the bits of the LLVM kernel and of the interpreter; and what their text must and must not hold."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_run import Ways, arrays_of, library, needs_compiler, same
from ssa_services import Recorder

from tlc.backends.c import scalar
from tlc.backends.c.unit import emit
from tlc.driver import pipeline, stage_texts
from tlc.driver.options import Options
from tlc.frontend.elementary import PROMISING
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.text import parse_module
from tlc.tensor.kernel.ir import Buffer, For, Kernel, Load, Store, Var, const, op
from tlc.tensor.kernel.text import parse_kernel, parse_kernels
from tlc.tensor.lower import Tensors

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

pytestmark = needs_compiler


# ---------------------------------------------------------------- every op on every type


def op_kernels() -> dict[str, Kernel]:
    """`y[l] = op(a[l], ..)` for every op, every type that it takes and every type that it gives."""
    out: dict[str, Kernel] = {}
    n, l = Var("n"), Var("l")
    for name, row in SCALAR_OPS.items():
        for elem in row.takes:
            if elem is Elem.STR or name in PROMISING:  # `test_words.py` and `test_elementary.py` have such
                continue
            for result in results_of(name, elem) if row.gives == "type" else [None]:
                elems = [Elem.BOOL if name == "select" and k == 0 else elem for k in range(row.arity)]
                inputs = [Buffer("abc"[k], e, (n,)) for k, e in enumerate(elems)]
                value = op(name, *(Load(b, (l,)) for b in inputs), elem=result)
                y = Buffer("y", value.elem, (n,))
                full = f"{name}_op_{elem}{f'_{result}' if result else ''}_case"
                out[full] = Kernel(full, (y,), (*inputs, n), (For(l, const(0), n, (Store(y, (l,), value),)),))
    return out


def results_of(name: str, elem: Elem) -> list[Elem]:
    match name:
        case "convert":
            return [e for e in Elem if e not in (Elem.STR, Elem.KEY)]
        case "bitcast":
            return [e for e in SCALAR_OPS["bitcast"].takes if e.width == elem.width]
        case _:
            return [{"key_make": Elem.KEY, "key_hi": Elem.U32, "key_lo": Elem.U32}[name]]


def test_every_op_on_every_type() -> None:
    kernels = op_kernels()
    ways = Ways(kernels, limit=0)  # the meaning is that of the row, on arrays
    with np.errstate(all="ignore"):
        for name, kernel in kernels.items():
            (y,), inputs = arrays_of(kernel, {"n": 400})
            ways.launch(name, [y], inputs)
            meaning = np.asarray(SCALAR_OPS[name.split("_op_")[0]].evaluate(kernel.outputs[0].elem, *inputs[:-1]))
            assert same(y, meaning), name
    assert ways.compared == len(kernels) > 350


def test_the_table_is_total() -> None:
    assert set(scalar.FORMS) == set(SCALAR_OPS)


# ---------------------------------------------------------------- programs


def tensors(path: str, text: str, **values: Any) -> tuple[str, Tensors]:
    """`main`'s name and a program's kernels, as `tlc emit c` takes them."""
    program = pipeline.front(Source(path, text))
    flags = {f.name: f.default for f in program.flags if f.default is not None} | values
    assert program.main is not None
    return program.main, stage_texts.tensors_for_c(program, Options(flags=flags))


def compare(path: str, text: str, **values: Any) -> Ways:
    """Run a program on the interpreter; every launch of a kernel is made in all ways."""
    main, made = tensors(path, text, **values)

    def apply(name: str, arguments: list[Any]) -> Any:
        return Interpreter(made.module, Recorder()).call(name, arguments)[0]

    ways = Ways(made.kernels, made.module, apply)
    with suppress(Stop):
        Interpreter(made.module, Recorder(), ways.launch).call(main, [])
    return ways


PROGRAMS: list[tuple[str, dict[str, Any]]] = [
    ("nbody", {"steps": 10}), ("sieve", {"n": 100}), ("mandelbrot", {"width": 20, "height": 8, "limit": 20}),
    ("linear_regression", {"points": 64, "steps": 30}), ("spectral_norm", {"n": 10}), ("fannkuch", {"n": 5}), ("kmeans", {"points": 60}),
    ("game_of_life", {"width": 9, "height": 6, "generations": 5}), ("levenshtein", {"n": 12, "m": 9}), ("quicksort", {"n": 40}),
    ("heat", {"size": 8, "steps": 5}), ("pca", {"examples": 40}), ("spiral", {"points": 20, "steps": 3}), ("layer", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_programs(name: str, values: dict[str, Any]) -> None:
    path = ROOT / "programs" / f"{name}.tl"
    ways = compare(path.name, path.read_text(encoding="utf-8"), **values)
    assert ways.compared >= len(ways.kernels) - 2, "nearly all kernels run"


def test_a_transformer_and_its_gradient() -> None:
    path = ROOT / "tests" / "programs" / "gpt_block.tl"
    ways = compare(path.name, path.read_text(encoding="utf-8"))
    assert ways.compared >= len(ways.kernels) > 50


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "programs" / "agreement").glob("*.tl")), ids=lambda p: p.stem)
def test_programs_on_which_ways_once_disagreed(path: Path) -> None:
    compare(path.name, path.read_text(encoding="utf-8"))


def test_the_other_programs_compile() -> None:
    for name in ("mnist_mlp",):
        path = ROOT / "programs" / f"{name}.tl"
        _, made = tensors(path.name, path.read_text(encoding="utf-8"))
        library(emit(made.kernels, made.module))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int) -> None:
    import fuzz_gradients
    import fuzz_programs

    compare("random.tl", fuzz_programs.generate(seed).tl)
    compare("random.tl", fuzz_gradients.generate_gradient(seed).tl)


FUNCTIONS = """
fn collatz(n: i64) -> i64 {
  var k = 0
  var x = n
  while x != 1 {
    if k > 1000 { break }
    x = if x % 2 == 0 { x // 2 } else { 3 * x + 1 }
    k += 1
  }
  k
}
fn newton(x: f64) -> f64 {
  var y = x
  for i in 0..100 {
    let next = 0.5 * (y + x / y)
    if abs(next - y) < 1e-12 { return next }
    for j in 0..3 {
      if j == i { continue }
      if y > 1e6 { break }
      y = y + 0.0
    }
    y = next
  }
  y
}
fn power(x: f32, n: i64) -> f32 = if n == 0 { 1.0 } else if n % 2 == 0 { power(x * x, n // 2) } else { x * power(x, n - 1) }
fn pick(x: f32[n], i: i64) -> f32 {
  var best = x[i % n]
  var at = i % n
  while at > 0 {
    at -= 1
    best = max(best, x[at])
  }
  best
}
fn main() {
  let x = for[i < 9] f32(i) * 0.5 - 1.0
  print(for[i in 1..30] collatz(i))
  print(for[i in 1..9] newton(f64(i)))
  print(for[i < 9] power(x[i], i + 3))
  print(for[i < 9] pick(x, i + 2))
  print(for[i < 4] { var s = 0.0; for j in 0..i { s += x[j] * f32(j) }; s })
}
"""


def test_functions_with_loops_branches_and_recursion() -> None:
    ways = compare("functions.tl", FUNCTIONS)
    assert ways.compared >= 5
    first = ways.text.split(" main_region_1(")[0]
    assert "while (x != 1) {" in first and "if (k > 1000) break;" in first and "goto" not in first


CONTROL = """
func @f(%n: i64, %m: i64) -> i64 {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  jump outer(%zero, %zero)
outer(%i: i64, %s: i64):
  %c = lt %i, %n : bool
  branch %c, inner(%zero, %s), done(%s)
inner(%j: i64, %t: i64):
  %d = lt %j, %m : bool
  branch %d, body, next
body:
  %e = eq %j, %i : bool
  branch %e, skip, add
skip:
  %j1 = add %j, %one : i64
  jump inner(%j1, %t)
add:
  %u = add %t, %j : i64
  %big = gt %u, %n : bool
  branch %big, done(%u), again
again:
  %j2 = add %j, %one : i64
  jump inner(%j2, %u)
next:
  %i1 = add %i, %one : i64
  jump outer(%i1, %t)
done(%r: i64):
  return %r
}
"""


def test_statements_of_a_function() -> None:
    """Two loops, one inside the other; what leaves both is a `goto`, all else is said without."""
    module = parse_module(CONTROL)
    text = emit({"k": parse_kernel('kernel k(y: out i64[9], m: i64) { for i in 0..9 { y[i] = @"f":i64(i, m) } }')}, module)
    body = text[text.index("static int64_t f(") :].split("\n\n")[0]
    assert body.strip() == """\
static int64_t f(int64_t n, int64_t m) {
  int64_t i, s, j, t, r;
  i = 0;
  s = 0;
  for (;;) {
    if (!(i < n)) {
      r = s;
      break;
    }
    j = 0;
    t = s;
    while (j < m) {
      if (j == i) {
        j = add_i64(j, 1);
      } else {
        const int64_t u = add_i64(t, j);
        if (u > n) {
          r = u;
          goto done;
        }
        j = add_i64(j, 1);
        t = u;
      }
    }
    i = add_i64(i, 1);
    s = t;
  }
done:;
  return r;
}"""
    f = library(text)
    y = (ctypes.c_int64 * 9)()
    f.k.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    f.k(y, 4)

    def meaning(n: int, m: int) -> int:
        total = 0
        for i in range(n):
            for j in range(m):
                if j != i:
                    total += j
                    if total > n:
                        return total
        return total

    assert list(y) == [meaning(n, 4) for n in range(9)]


def test_a_kernel_that_stops_says_why() -> None:
    text = "fn f(i: i64, n: i64) -> i64 { assert i != n, \"{i} is not {n}\"\n  var x = i\n  while x > 3 { x -= 1 }\n  x }\n"
    ways = compare("stop.tl", text + "fn main(n: i64 = 5) { print(for[i < 9] f(i, n)) }\n")
    assert ways.compared == 1
    message = (ways.library_text("tlc_message")).decode()
    assert message == "stop.tl:1:38: 5 is not 5"


# ---------------------------------------------------------------- kernels by hand

BY_HAND = """
kernel pick(y: out f32[m], z: out i64[q], x: f32[n], at: i64[m], n: i64, m: i64, q: i64) {
  for j in 0..q { z[j] = 0 }
  for j0 in 0..m by 8 {
    let stop = min(j0 + 8, m)
    vector<8> l in j0..stop {
      let a = at[l]
      if a < 5 { y[l] = x[a] } else { y[l] = x[a] * 2.0f32 }
      z[l * 2] = a
      z[l * 2 + 1] = select(a == 3, 1, 0) - l
    }
  }
}
kernel strides(y: out f32[n, m], x: f32[m, n], s: f32[n], n: i64, m: i64) {
  for i in 0..n {
    for j0 in 0..m by 4 {
      let c = min(m - j0, 4)
      vector<4> l in 0..c { y[i, j0 + l] = x[j0 + l, i] + s[i] * x[m - 1 - j0 - l, i] }
    }
  }
}
kernel last(y: out f32[], x: f32[n], n: i64, flag: bool, h: f16, b: bf16) {
  y[] = f32(h) + f32(b)
  for j0 in 0..n by 8 { let c = min(n - j0, 8) vector<8> l in 0..c { y[] = select(flag, y[] * 0.5f32 + x[j0 + l], exp(x[l])) } }
}
"""


def test_kernels_by_hand() -> None:
    ways = Ways(parse_kernels(BY_HAND))
    random = np.random.default_rng(1)
    x = random.standard_normal(20).astype(np.float32)
    at = random.integers(0, 20, 37)
    ways.launch("pick", [np.zeros(37, np.float32), np.zeros(74, np.int64)], [x, at, 20, 37, 74])
    s = random.standard_normal((11, 3)).astype(np.float32)
    ways.launch("strides", [np.zeros((3, 11), np.float32)], [s, x[:3].copy(), 3, 11])
    for flag in (True, False):
        ways.launch("last", [np.zeros((), np.float32)], [x, 20, flag, np.float16(1.5), np.float32(-2.0)])


def body(text: str) -> str:
    """The text of the only kernel of a file of C, from its head on."""
    return emit({(k := parse_kernel(text)).name: k}).split("\nvoid ")[1]


def test_loops_that_run_once_and_cells_are_plain() -> None:
    text = body("""
kernel dot(y: out f32[n], x: f32[n, 8], v: f32[8], n: i64) {
  for i0 in 0..n {
    local acc0: f32[1, 1]
    unroll r0 in 0..1 { acc0[r0, 0] = 0.0f32 }
    for i1 in 0..8 { unroll r1 in 0..1 { let t0 = v[i1] acc0[r1, 0] = fma(x[i0 + r1, i1], t0, acc0[r1, 0]) } }
    unroll r2 in 0..1 { y[i0 + r2] = acc0[r2, 0] }
  }
}""")
    assert text == """\
dot(float *restrict y, const float *restrict x, const float *restrict v, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    float acc = 0.0f;
    for (int64_t j = 0; j < 8; j++) {
      acc = fmaf(x[8 * i + j], v[j], acc);
    }
    y[i] = acc;
  }
}
"""


def test_positions_share_factors_and_lose_divisions() -> None:
    text = body("""
kernel move(y: out f32[n, m, 12], x: f32[n, m, 3, 4], n: i64, m: i64) {
  for i in 0..n { for j in 0..m { for k in 0..12 {
    y[i, j, k] = x[i, j, k // 4, k % 4] + x[i, j, (k + 12) // 4 - 3, (11 - k) % 4] + x[(i * m + j) // m, j, 0, 0]
  } } }
}""")
    assert "y[(i * m + j) * 12 + k] = x[(i * m + j) * 12 + k] + x[(i * m + j) * 12 + 4 * (k / 4) + (11 - k) % 4] + x[(i * m + j) * 12];" in text


def test_a_guard_is_known_inside_of_its_choice() -> None:
    text = body("""
kernel pad(y: out f32[n], x: f32[8], n: i64) {
  for i in 0..10 { y[i] = select((i >= 1) & (i < 9), x[min(max(i - 1, 0), 7)], 0.0f32) }
}""")
    assert "y[i] = i >= 1 && i < 9 ? x[i - 1] : 0.0f;" in text


def test_names_of_c_are_left_alone() -> None:
    text = body("kernel for_all(int: out f32[n], double: f32[n], n: i64, max_f32: f32) { for i in 0..n { int[i] = max(double[i], max_f32) } }")
    assert text.startswith("for_all(float *restrict int_, const float *restrict double_, int64_t n, float max_f32_)")
    assert "int_[i] = max_f32(double_[i], max_f32_);" in text
