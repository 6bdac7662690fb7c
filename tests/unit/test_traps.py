"""`--trap-nan`: where a program stops, what it says, and what it does not stop at; interpreted and native alike."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ssa_services import Recorder
from whole_program import options

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.frontend import pickled
from tlc.frontend.source import Source
from tlc.ssa.interp import Interpreter
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.world import Stop

# fmt: off
STOPS: dict[str, tuple[str, str, str]] = {  # `main`'s body, or definitions with one -> what is marked, what is said
    "a scalar":                   ("print(log(x))", "log(x)", "`log` of 0.0 gives -inf"),
    "a division":                 ("print(1.0 + 2.0 / x)", "2.0 / x", "`/` of 2.0 and 0.0 gives inf"),
    "a NaN":                      ("print(x / x)", "x / x", "`/` of 0.0 and 0.0 gives nan"),
    "an element":                 ("print(sqrt([1.0, 4.0, x - 1.0]))", "sqrt([1.0, 4.0, x - 1.0])", "`sqrt` of -1.0 gives nan at [2]"),
    "an element of a matrix":     ("print(for[i < 2, j < 3] 1.0 / f32(2 * i - j))", "1.0 / f32(2 * i - j)", "`/` of 1.0 and 0.0 gives inf at [0, 0]"),
    "inside of a sum":            ("print(sum[k < 3] log(f32(2 - k) + x))", "log(f32(2 - k) + x)", "`log` of 0.0 gives -inf at [2]"),
    "a sum":                      ("print(sum([3e38, 3e38 + x]))", "sum([3e38, 3e38 + x])", "`sum` of finite numbers gives inf"),
    "a sum of products":          ("let a = [[1e20, 1.0], [x, 1.0]]\nprint(a @ a)", "a @ a", "`sum` of finite numbers gives inf at [0, 0]"),
    "a conversion":               ("print(f16(7e4 + x))", "f16(7e4 + x)", "`f16` of 70000.0 gives inf"),
    "what `where` drops":         ("print(where(x > 0.0, 1.0 / x, 7.0))", "1.0 / x", "`/` of 1.0 and 0.0 gives inf"),
    "in a loop":                  ("var y = 2.0\nwhile y > 0.0 { y = y * y + x }\nprint(y)", "y * y", "`*` of 1.8446744e+19 and 1.8446744e+19 gives inf"),
    "in a loop of an element":    ("print(for[i < 3] grow(f32(i)))", "y * y", "`*` of 1.8446744e+19 and 1.8446744e+19 gives inf at [2]"),
    "a row that is masked":       ("print(softmax(for[i < 2, j < 2] if j < i { 1.0 } else { -inf }))", "softmax(for[i < 2, j < 2] if j < i { 1.0 } else { -inf })", "`-` of -inf and -inf gives nan at [0, 0]"),
    "a sum of two infinities":    ("print(sum([inf, 1.0 + x, -inf]))", "sum([inf, 1.0 + x, -inf])", "`sum` of infinities gives nan"),
    "nothing times infinity":     ("print([[inf, x]] @ [[x], [1.0]])", "[[inf, x]] @ [[x], [1.0]]", "`sum` of infinities gives nan at [0, 0]"),
    "the second of an element":   ("print(for[i < 3] exp(f32(i)) * (3e38 + x) / 1e9)", "exp(f32(i)) * (3e38 + x)", "`*` of 2.7182817 and 3e+38 gives inf at [1]"),
    "the least element":          ("print(for[i < 4] exp(1.0 / f32(i - 2)) * log(f32(i - 1)))", "log(f32(i - 1))", "`log` of -1.0 gives nan at [0]"),
    "lifted":                     ("print(softmax(for[i < 3, j < 2] f32(i + j) * 1e38 * if i == 2 { 2.0 } else { 1.0 + x }))", "f32(i + j) * 1e38 * if i == 2 { 2.0 } else { 1.0 + x }", "`*` of 2e+38 and 2.0 gives inf at [2, 0]"),
    "in a comprehension of sums": ("print(for[i < 3] sum(for[j < 2] 1.0 / f32(i - j + 1) + x))", "1.0 / f32(i - j + 1)", "`/` of 1.0 and 0.0 gives inf at [0, 1]"),
    "on the way back":            ("print(grad(fn(v) => sqrt(v) * 2.0)(x))", "sqrt(v)", "in the derivative of this, `/` of 1.0 and 0.0 gives inf"),
    "an element on the way back": ("print(grad(fn(v) => sum(sqrt(v) * v))([1.0, x]))", "sqrt(v)", "in the derivative of this, `/` of 0.0 and 0.0 gives nan at [1]"),
}
GROW = """
fn grow(v: f32) -> f32 {
  var y = v
  for k in 0..9 { if y > 1.0 { y = y * y } }
  y
}
"""
GOES_ON: dict[str, tuple[str, str]] = {  # what is printed
    "a mask":                        ("print(softmax(for[i < 2, j < 2] if j <= i { 1.0 } else { -inf }))", "[[1.  0. ]\n [0.5 0.5]]"),
    "infinities that are given":     ("let a = [inf, 1.0 + x]\nprint(a + 1.0, sum(a), a * 2.0)", "[inf  2.] inf [inf  2.]"),
    "NaNs that are given":           ("let a = [nan, 1.0 + x, inf]\nprint(a + 1.0, sum(a), exp(a[..2]))", "[nan  2. inf] nan [      nan 2.7182817]"),
    "a mask, and its derivative":    ("print(grad(fn(v: f32[2, 2]) => sum(softmax(for[i, j] if j <= i { v[i, j] } else { -inf }) @ [1.0, 2.0 + x]))([[1.0, 2.0], [3.0, 3.0]]))", "[[ 0.    0.  ]\n [-0.25  0.25]]"),
    "what an `if` does not choose":  ("print(if x > 0.0 { 1.0 / x } else { 7.0 }, for[i < 2] if i > 0 { log(f32(i)) } else { 3.0 })", "7.0 [3. 0.]"),
    "what a derivative drops":       ("print(grad(fn(v) => if v > 0.0 { v * log(v) } else { 2.0 * v })(x), grad(fn(v: f32[n]) => norm(v))([x, x]))", "2.0 [0. 0.]"),
    "a sum with an infinity":        ("print([[inf, 1.0 + x]] @ [[1.0], [1.0]])", "[[inf]]"),
}
# fmt: on


def runs(body: str) -> list[tuple[list[str], tuple[str, str, str]]]:
    """What is printed, and the kind, the message and the marked text of a stop: by the interpreter, then natively, by one of the hosts."""
    text = body if "fn main" in body else f"{GROW}fn main(x: f32 = 0.0) {{\n{body}\n}}\n"
    program = pipeline.front(Source("test.tl", text))
    out = []
    for host in (None, pipeline.hosts()[len(body) % len(pipeline.hosts())]):
        services, why = Recorder(), ("", "", "")
        asked = replace(options(program, None, host=host or "llvm"), traps=True)
        try:
            if host is None:
                pipeline.interpret(program, asked, services)
            else:
                Native(pipeline.build(program, asked, {}), services).run()
        except Stop as e:
            why = (e.kind, e.message, e.span.source.text[e.span.start : e.span.end])
        out.append((list(services.lines), why))
    return out


@pytest.mark.parametrize("case", STOPS, ids=str)
def test_stops(case: str) -> None:
    body, marked, message = STOPS[case]
    for _, why in runs(body):
        assert why == ("finite", message, marked)


@pytest.mark.parametrize("case", GOES_ON, ids=str)
def test_goes_on(case: str) -> None:
    body, printed = GOES_ON[case]
    for lines, why in runs(body):
        assert ("\n".join(lines), why) == (printed, ("", "", ""))


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("let a = for[i < 9] log(f32(i) + x)\nlet b = a * a - x\nprint(sqrt(b + 1.0) * b)", 1),  # the last shows the others
        ("let a = for[i < 9] log(f32(i) + x)\nprint(a)\nprint(for[i < 5] a[i] * x)", 1),  # all that is watched goes through one kernel
        ("print(for[i < 9] exp(log(f32(i) + x) / sqrt(x)) * tanh(x / f32(i + 1)))", 2),  # one of its own for what `exp` and `tanh` hide
        ("print(for[i < 9] if i < 5 { log(f32(i) + x) } else { -inf })", 1),  # the element, but where it is what is written
    ],
)
def test_kernels_that_tests_cost(body: str, more: int) -> None:
    """However much is checked: what is to be said is found out by the interpreter, so it is not compiled."""
    program = pipeline.front(Source("test.tl", f"fn main(x: f32 = 2.0) {{\n{body}\n}}\n"))
    kernels = []
    for traps in (False, True):
        stages = pipeline.middle(program, replace(options(program, None), traps=traps))
        kernels.append(next(len(tensors.kernels) for name, _, tensors in stages if name == "kernels"))
    assert kernels[1] - kernels[0] == more


def test_recipes_are_kept_and_printed() -> None:
    """A cached program says the same, at the same place; a text of SSA says the same."""
    text = "fn main(x: f32 = 0.0) { print(1.0 / (for[i < 3] f32(2 - i) + x)) }"
    program = pipeline.front(Source("test.tl", text))
    asked = replace(options(program, None), traps=True)
    executable = pipeline.build(program, asked, {})
    kept = pickled.unpack(pickled.pack(executable), type(executable))
    assert kept is not None
    module = next(module for name, _, module in pipeline.middle(program, asked) if name == "opt")
    said = "`/` of 1.0 and 0.0 gives inf at [2]"
    for native in (executable, kept):
        with pytest.raises(Stop, match=re.escape(said)) as stop:
            Native(native, Recorder()).run()
        assert stop.value.span.start == text.index("1.0 / (")
    with pytest.raises(Stop, match=re.escape(said)):
        Interpreter(parse_module(print_module(module)), Recorder()).call("main", [])


def test_values_keep_their_bits() -> None:
    """Checks stand beside what is computed: sums are as they were, in the gradient too."""
    text = """
fn loss(w: f32[m, n], x: f32[b, m]) -> f32 = mean(tanh(x @ w) * exp(x @ w))
fn main() {
  let w = for[i < 5, j < 4] sin(f32(4 * i + j))
  let x = for[i < 3, j < 5] cos(f32(5 * i + j))
  print(value_and_grad(loss)(w, x))
}
"""
    program = pipeline.front(Source("test.tl", text))
    printed = []
    for traps in (False, True):
        services = Recorder()
        Native(pipeline.build(program, replace(options(program, None), traps=traps), {}), services).run()
        printed.append(services.lines)
    assert printed[0] == printed[1]
