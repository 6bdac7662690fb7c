"""The language page from its first program to its definitions: a row a rule, what it prints in both ways or how it is refused.

Rules that other tables already hold (numbers and strings in test_lexer, line ends in test_parser, flags in test_flags, keys and near
names in test_check_errors) are not repeated here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from checked import program
from whole_program import both

from tlc.driver import cli
from tlc.frontend.diagnostics import CompileError

LAYERS = "struct Linear(I, O) { w: f32[I, O], b: f32[O] }\n"

RUNS = {
    # ---------------------------------------------------------------- lexical structure
    "a semicolon ends a statement, brackets hold lines together, braces inside them do not": (
        "let a = 1; let b = 2\nlet c = (a\n  + b)\nlet d = [1,\n  2\n]\nlet e = (if a < b {\n  let t = c\n  t * 2\n} else { 0 })\nprint(c, d, e)\n",
        ["3 [1 2] 6"],
    ),
    "a line goes on after an operator or an opening, and before a closing brace, a dot or an else": (
        "let x = 1 +\n  2\nlet y =\n  [[1.5], [2.5]]\n  .T\nlet z = if x > 2 { 1 }\nelse { 2 }\nlet w = not\n  (x == 3 and\n  true)\n"
        "fn f(x: i64) ->\n  i64 =\n  x\nlet g = fn(q) =>\n  q + 1\nfor i in\n  0 ..\n  4 by\n  2 { print(i) }\nprint(x, y, z, w, f(1), g(2))\n",
        ["0", "2", "3 [[1.5 2.5]] 1 false 1 3"],
    ),
    "a bracket that begins a line begins a statement": ("var x = [5, 6]\n(x[0], x[1]) = (7, 8)\nfn f(v: i64) -> i64[2] {\n  let y = v\n  [y, 1]\n}\nprint(x, f(2))\n", ["[7 8] [2 1]"]),
    "numbers": (
        "print(42, 0xff, 1_000, 1.0, 1e-3, inf, -inf, nan, 1.0f64, 7i32, 0xffu8)\nprint(1.0f64 / 3.0, 7i32 * 2)\n",
        ["42 255 1000 1.0 0.001 inf -inf nan 1.0 7 255", "0.3333333333333333 14"],
    ),
    "uses fix the element type of a literal and of a generic result": (
        "fn third(x: f64) -> f64 = x / 3.0\nvar a = 0.0\na = third(1.0)\nlet z = zeros(2)\nlet s = z + [third(1.0), third(2.0)]\nlet n = 1\n"
        "print(a, s, n / 3.0, full(1, 2) / 3.0, zeros(2), 1.0 / 3.0)\n",
        ["0.3333333333333333 [0.33333333 0.66666667] 0.33333334 [0.33333334 0.33333334] [0. 0.] 0.33333334"],
    ),
    "strings": (
        'let l = 0.12345\nlet t = ("a", [1, 2])\n'
        'print("loss {l:.4f} {{x}} {max(1, 2)} {t[1][0]} {"in{"ner"}"} {if l > 0.1 { "big" } else { "small" }}\\t|\\n\\"q\\"\\\\ \\u00e9\\x41")\n',
        ['loss 0.1235 {x} 2 1 inner big\t|', '"q"\\ éA'],
    ),
    "a reducer's name is an ordinary one without a bracket": (
        "fn twice(sum: i64) -> i64 = sum + sum\nlet max = 3\nlet mean = twice(max)\nprint(mean, sum[i < 3] i)\n", ["6 3"]
    ),
    # ---------------------------------------------------------------- types
    "types convert by name, tensors too": (
        "let n = 3\nprint(f32(n) / 2.0, i64([1.7, -1.7]), u8([255, 256]), f64([1, 2]) / 3.0, bool(2), f32([true, false]), i8(-1), u32(-1))\n",
        ["1.5 [ 1 -1] [255   0] [0.33333333 0.66666667] true [1. 0.] -1 4294967295"],
    ),
    "every scalar type": (
        'fn f(a: bool, b: i8, c: i32, d: i64, e: u8, f: u32, g: f16, h: bf16, i: f32, j: f64, k: str) { print(a, b, c, d, e, f, g, h, i, j, k) }\n'
        'f(true, -1i8, 2i32, 3, 4u8, 5u32, 0.5f16, 1.5bf16, 2.5, 3.5f64, "x")\n',
        ["true -1 2 3 4 5 0.5 1.5 2.5 3.5 x"],
    ),
    "a scalar is a tensor of rank 0": ("fn first[T: any](x: T[n]) -> T = x[0]\nlet x = first([2.0, 3.0])\nprint(x, first([[1, 2]]), [x, x + first([1.0])])\n", ["2.0 [1 2] [2. 3.]"]),
    "literals hold expressions": ("let a = 2.0\nlet r = [a, a * a]\nprint([r, [exp(0.0), -a]])\n", ["[[ 2.  4.]", " [ 1. -2.]]"]),
    "dimension terms": (
        "const C = 2\nfn f(n: i64, x: f32[n, C * m + 1]) -> f32[m // 1 + n] {\n  let h = n + m\n  let y: f32[h] = zeros(h)\n  y\n}\n"
        "fn tri(n: i64) -> i64 = sum[i < n] len(zeros(i + 1))\nprint(f(2, ones(2, 7)), tri(3))\n",
        ["[0. 0. 0. 0. 0.] 6"],
    ),
    "a parameter in the types of the others and of the result": (
        LAYERS + "fn make(I: i64, O: i64, b: f32[O]) -> Linear(I, O) = Linear(w = zeros(I, O), b = b)\nlet l = make(2, 1, [3.0])\nprint(l.I, l.O, l.b)\n",
        ["2 1 [3.]"],
    ),
    "a var makes a fresh dimension": ("var n = 2\nlet x = zeros(n) + 0.5\nn = 3\nlet y = zeros(n) + 1.5\nprint(x, y, x as f32[2])\n", ["[0.5 0.5] [1.5 1.5 1.5] [0.5 0.5]"]),
    "a dimension variable is an i64 of the body": ("fn f(x: f32[n, m]) -> i64 = n * 10 + m\nprint(f(zeros(2, 3)))\n", ["23"]),
    "a script's variables are not seen in a signature": ("let n = 2\nfn f(x: f32[n]) -> i64 = n\nprint(f(zeros(5)), n)\n", ["5 2"]),
    "a dimension refers to the binding": (
        "fn f(n: i64, x: f32[n]) -> f32[n] {\n  let y = x + 1.0\n  let n = 7\n  let z = zeros(n) + 1.0\n  print(z)\n  y + x\n}\nprint(f(2, [1.0, 2.0]))\n",
        ["[1. 1. 1. 1. 1. 1. 1.]", "[3. 5.]"],
    ),
    "a declared dimension is a claim or a new name": ("let n = 2\nlet x: f32[n, 4] = zeros(2, 4)\nlet y: f32[m, 4] = x\nprint(m, len(y))\n", ["2 2"]),
    "a dimension that only the run knows": (
        "fn some(n: i64) -> i64[?] = for[i < n * n] i\nfn pair(n: i64) -> (i64[?k], i64[?k]) = (for[i < n * n] i, for[i < n * n] 1)\n"
        "let (a, b) = pair(2)\nprint(some(2), a + b)\n",
        ["[0 1 2 3] [1 2 3 4]"],
    ),
    "anonymous dimensions of a parameter": (
        LAYERS + "fn f(x: f32[?, ?], l: Linear) -> i64 = len(x) + l.I + l.O\nprint(f(zeros(2, 3), Linear(w = zeros(4, 5), b = zeros(5))))\n",
        ["11"],
    ),
    "a var with ? changes its dimension": ("var x: i64[?] = [1]\nx = concat(x, [2, 3])\nprint(x, len(x))\n", ["[1 2 3] 3"]),
    "dimensions agree by algebra": (
        "fn f(x: f32[n], y: f32[m]) -> f32[m + n] = concat(x, y)\nfn g(n: i64, m: i64) -> f32[n * n + 2 * n * m + m * m] = zeros((n + m) * (n + m))\n"
        "fn h(x: f32[2 * n]) -> f32[n] = zeros(2 * n // 2) + x[..n]\nfn k(x: f32[n // 2], y: f32[n // 2], n: i64) -> f32[n // 2] = x + y\n"
        "print(f([1.0], [2.0]), len(g(1, 2)), h([1.0, 2.0]), k([1.0], [2.0], 3))\n",
        ["[1. 2.] 9 [1.] [3.]"],
    ),
    "what is claimed by a cast is checked by the run": (
        "fn f(x: f32[n], b: i64) -> f32[b, 2] = reshape(x, b, -1) as f32[b, 2]\nprint(f(zeros(4), 2))\nprint(f(zeros(6), 2))\n",
        ["[[0. 0.]", " [0. 0.]]", "a value of shape [2, 3] is not `f32[b, 2]`, which is [2, 2] here"],
    ),
    "structs have dimensions and types for parameters": (
        "struct Pair(P: tree) { a: P, b: P, step: i64 }\nstruct Box(n, T: float) { x: T[n], scale: T }\nstruct Tagged(n, k) { x: f32[n] }\n"
        "let p = Pair(a = (1.0, [2.0]), b = (3.0, [4.0]), step = 5)\nlet b = Box(x = [1.0f64], scale = 2.0)\nlet t = Tagged(x = [1.0], k = 7)\n"
        "print(p.b[1], p.step, b.x * b.scale, b.n, t.k, t.n)\n",
        ["[4.] 5 [2.] 1 7 1"],
    ),
    "a struct's dimension is a term": (
        LAYERS + "struct Net(D) { first: Linear(D, D), rest: Linear(D, 2)[3] }\nfn f(l: Linear, x: f32[l.I]) -> f32[l.O] = x @ l.w\n"
        "fn g(n: Net, x: f32[n.first.I]) -> Linear(n.D + 1, n.rest.O) = Linear(w = zeros(n.D + 1, 2), b = zeros(2))\nlet l = Linear(w = ones(2, 3), b = zeros(3))\nlet z: f32[l.O] = zeros(3)\nprint(f(l, [1.0, 2.0]), z)\n",
        ["[3. 3. 3.] [0. 0. 0.]"],
    ),
    "an array of structs is a struct of arrays": (
        LAYERS + "struct Net(L, D) { blocks: Linear(D, D)[L] }\nlet net = Net(blocks = for[i < 3] Linear(w = f32(i) * eye(2), b = zeros(2)))\n"
        "print(net.blocks.w.shape, net.blocks[2].w, net.L, net.D)\nfor b in net.blocks { print(sum(b.w)) }\n",
        ["(3, 2, 2) [[2. 0.]", " [0. 2.]] 3 2", "0.0", "2.0", "4.0"],
    ),
    "tuples": (
        'let t = (1, 2.5, "s")\nlet (a, (b, c)) = (t[0], (t[1], t[2]))\nvar (x, y) = (1, 2)\n(x, y) = (y, x)\nprint(t, a, b, c, x, y)\n',
        ["(1, 2.5, s) 1 2.5 s 2 1"],
    ),
    "functions are parameters": ("fn apply(f: fn(f32[n]) -> f32, x: f32[n]) -> f32 = f(x)\nprint(apply(fn(v) => sum(v), [1.0, 2.0]))\n", ["3.0"]),
    "generic element types": (
        "fn softmax[T: float](x: T[n]) -> T[n] {\n  let e = exp(x - max(x))\n  e / sum(e)\n}\nfn inc[T: num](x: T) -> T = x + 1\n"
        "fn half[T: int](x: T) -> T = x // 2\nfn first[T: any](x: T[n]) -> T = x[0]\nfn same[P: tree](p: P) -> P = p\n"
        "print(softmax([0.0, 0.0]), softmax([0.0f64]), inc(1), inc(1.5), half(7u8), first([true]), same((1.0, [2.0])))\n",
        ["[0.5 0.5] [1.] 2 2.5 3 true (1.0, [2.])"],
    ),
    # ---------------------------------------------------------------- definitions
    "bodies, defaults, names, early returns": (
        "fn f(x: f32[n], k: i64 = 3) -> f32 {\n  if k == 0 { return -1.0 }\n  let s = sum(x)\n  s * f32(k)\n}\nfn g(a: i64, b: i64) -> i64 = a - b\n"
        "print(f([1.0, 2.0]), f([1.0], 2), f(k = 0, x = [1.0]), g(b = 1, a = 5))\n",
        ["9.0 2.0 -1.0 4"],
    ),
    "an instance serves every dimension": (
        "fn total(x: f32[n]) -> f32 = if n <= 1 { sum(x) } else { total(x[0 .. n // 2]) + total(x[n // 2 .. n]) }\nprint(total(for[i < 100] f32(i)))\n",
        ["4950.0"],
    ),
    "an anonymous function copies what it captures": (
        "var v = 1\nlet add = fn(x) => x + v\nv = 100\nprint(add(1), (fn(x) => x * x)(3))\n", ["2 9"]
    ),
    "consts": (
        "const A = B * 2\nconst B = 4 * 16\nconst V = [1.0, 2.0]\nconst S = \"s\"\nconst T: f64 = 0.5\nconst P = (1, 2.0)\nconst OK = A > 3 and not false\n"
        "fn f(x: f32[B // 32]) -> f32[B // 32] = x + V\nprint(A, B, f([1.0, 1.0]), S, T, P, OK)\n",
        ["128 64 [2. 3.] s 0.5 (1, 2.0) true"],
    ),
    "consts that are computed are dimensions": (
        "const A = 2 ** 3\nconst B = i64(2.5 * 2.0) % 3 + min(7 & 3, A)\nconst C = if A > B { let d = A - B\n  d * d } else { 0 }\n"
        "fn f(x: f32[A], y: f32[B], z: f32[C]) -> (i64, i64, i64) = (len(x), len(y), len(z))\nprint(f(zeros(8), zeros(5), zeros(9)))\n",
        ["(8, 5, 9)"],
    ),
    "library modules, also by another name": (
        "use nn as layers\nuse optim\nprint(layers.mse([1.0], [3.0]))\n", ["4.0"]
    ),
    "a function of the C library": ("extern fn labs(x: i64) -> i64\nprint(labs(-3))\n", ["3"]),
    "main is all that runs": ("fn main(i: i64 = 2) {\n  print(i)\n}\n", ["2"]),
}  # fmt: skip


@pytest.mark.parametrize("rule", RUNS)
def test_what_runs(rule: str) -> None:
    text, expected = RUNS[rule]
    assert both(text) == expected


REFUSED = {
    # ---------------------------------------------------------------- lexical structure
    "a line that begins with an operator": ("let x = 1\n+ 2\n", "E0105"),
    "a line that begins with a minus and a blank": ("let x = 1\n- 2\n", "E0105"),
    "a point without digits": ("let x = .5\n", "E0108"),
    "a real where only an integer can be": ("let n = 3\nlet x: i64 = 1.0\n", "E0301"),
    "a real literal never becomes an integer": ("var n = 1.5\nlet m: i64 = 2\nn = m\n", "E0301"),
    "rank is never open": ("var x = zeros(2)\nx = zeros(2, 2)\n", "E0301"),
    "dimensions are never open": ("var x = zeros(2)\nx = zeros(3)\n", "E0301"),
    "a keyword for a name": ("let by = 1\n", "E0101"),
    # ---------------------------------------------------------------- types
    "numeric types do not mix": ("fn f(x: f32, y: f64) -> f64 = x + y\n", "E0303"),
    "rows of unequal shape": ("let x = [[1, 2], [3]]\n", "E0301"),
    "elements of two types": ("let x = [1, true]\n", "E0301"),
    "a var in a type is a fresh dimension": ("var n = 2\nlet x: f32[n] = zeros(2)\n", "E0301"),
    "two fresh dimensions differ": ("var n = 2\nlet x = zeros(n) + zeros(n)\n", "E0302"),
    "an unbound dimension of a struct": ("struct S(n) { x: f32[m] }\n", "E0306"),
    "a claim that is not proved": ("fn f(x: f32[m], n: i64) {\n  let y: f32[n] = x\n  print(y)\n}\n", "E0301"),
    "two calls have two unknown dimensions": ("fn f() -> u8[?] = zeros(2)\nlet x = f() + f()\n", "E0302"),
    "a var keeps its dimension": ("fn f(x: f32[n]) {\n  var y = x\n  y = concat(y, y)\n  print(y)\n}\n", "E0301"),
    "dimensions that are not proved equal": ("fn f(x: f32[n], y: f32[m]) -> f32[n] = x + y\n", "E0302"),
    "a field and a dimension of one name": ("struct S(n) { n: f32[n] }\n", "E0202"),
    "a dimension that no field determines and nobody gives": ("struct S(n, k) { x: f32[n] }\nlet s = S(x = [1.0])\n", "E0401"),
    "a tuple's index is a literal": ("let t = (1, 2)\nlet i = 0\nprint(t[i])\n", "E0307"),
    "a dimension given by name against a field": ("struct S(n) { x: f32[n] }\nlet s = S(x = [1.0], n = 2)\n", "E0402"),
    "a struct's dimension that there is not": (LAYERS + "fn f(l: Linear, x: f32[l.J]) -> f32 = sum(x)\n", "E0306"),
    "a function type in a tuple": ("fn f(t: (fn(f32) -> f32, f32)) -> f32 = t[1]\n", "E0407"),
    "a function type in a function type": ("fn f(g: fn(fn(f32) -> f32) -> f32) -> f32 = 1.0\n", "E0407"),
    "a function type outside of parameters": ("fn f() -> fn(f32) -> f32 = exp\n", "E0407"),
    "a function in a struct": ("struct S { f: fn(f32) -> f32 }\n", "E0407"),
    "a type outside of its bound": ("fn f[T: float](x: T) -> T = x\nlet n: i64 = 1\nprint(f(n))\n", "E0402"),
    "a bound that there is not": ("fn f[T: real](x: T) -> T = x\n", "E0205"),
    # ---------------------------------------------------------------- definitions
    "a mistake in a function that nobody calls": ("fn f(x: f32[n]) -> f32[n + 1] = x\n", "E0406"),
    "arithmetic on any type, called or not": ("fn f[T: any](a: T) -> T = a + a\n", "E0304"),
    "what only reals can, on any number": ("fn f[T: num](a: T) -> T = a / 2\n", "E0304"),
    "one mistake is said once, for all instances": ("fn f[T: num](a: T) -> T = a + true\n", "E0303"),
    "instances without an end": ("fn f[P: tree](p: P, n: i64) -> i64 = if n == 0 { 0 } else { f((p, p), n - 1) }\nprint(f((1.0, 2.0), 3))\n", "E0408"),
    "ranks without an end": ("fn f[T: any](x: T, n: i64) -> i64 = if n == 0 { 0 } else { f([x], n - 1) }\nprint(f(1.0, 3))\n", "E0408"),
    "an anonymous function assigns what it captured": ("var v = 1\nlet f = fn(x) => { v = x; x }\nprint(f(2))\n", "E0506"),
    "a function that the compiler cannot know": ("let b = len(zeros(3)) > 2\nlet f = if b { exp } else { log }\n", "E0407"),
    "a function in a tuple": ("let t = (exp, 1)\n", "E0407"),
    "a script's let in a function": ("let scale = 2.0\nfn f(x: f32) -> f32 = x * scale\n", "E0201"),
    "a const that is no constant": ("const K = normal(key(0), 3) + uniform(k)\n", "E0201"),
    "a const is not assigned": ("const N = 1\nN = 2\n", "E0501"),
    "main and top-level statements": ("fn main() { print(1) }\nprint(2)\n", "E0802"),
    "a result of main": ("fn main() -> i64 { 3 }\n", "E0803"),
    "a value that main drops": ("fn main() { 3 }\n", "E0502"),
    "a flag that hides --help": ("fn main(help: bool = false) { print(help) }\n", "E0801"),
    "a flag's default out of range": ("fn main(n: i8 = 300) { print(n) }\n", "E0305"),
    "a constant out of range": ("const N: i32 = 3_000_000_000\nprint(N)\n", "E0305"),
    "a constant of a call in a type": ("fn sq(x: i64) -> i64 = x * x\nconst N = sq(4)\nfn f(x: f32[N]) -> f32 = sum(x)\n", "E0306"),
    "a real constant in a type": ("const N = 2.5\nfn f(x: f32[N]) -> f32 = sum(x)\n", "E0306"),
    "a module under its other name alone": ("use nn as layers\nprint(nn.mse([1.0], [1.0]))\n", "E0201"),
    "a flag that is a tensor": ("fn main(x: f32[3]) { print(x) }\n", "E0801"),
    "a C function that there is not": ("extern fn no_such_thing_here(x: i64) -> i64\nprint(no_such_thing_here(1))\n", "E0409"),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED)
def test_what_is_refused(rule: str) -> None:
    text, code = REFUSED[rule]
    assert refused(text) == [code]


def refused(text: str) -> list[str]:
    """The codes of the parser or the checker."""
    try:
        program(text)
    except CompileError as e:
        return [d.code for d in e.diagnostics]
    return []


# ---------------------------------------------------------------- dimension names, used files, the command line


def test_a_dimension_used_once_and_spelled_nearly_like_another_gives_a_warning() -> None:
    found = program("fn f(x: f32[batch_size], y: f32[batch_sise]) -> f32 = sum(x) + sum(y) / f32(batch_size)\n").warnings
    assert [(d.code, d.help) for d in found] == [("W0001", "did you mean `batch_size`?")]


@pytest.mark.parametrize("words", [[], ["--interp"]])
def test_a_used_file(words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It lies beside the file, may have another name here, and its `main`, however wrong its flags, is ignored."""
    (tmp_path / "sizes.tl").write_text("const WIDTH = 3\n")
    model = "use ./sizes as s\nstruct Point(n) { at: f32[n] }\nfn far(p: Point(s.WIDTH)) -> f32 = sum(p.at)\nfn main(x: key) -> i64 { 1 }\n"
    (tmp_path / "model.tl").write_text(model)
    path = tmp_path / "x.tl"
    path.write_text("use ./model\nuse ./sizes\nprint(model.far(model.Point(at = ones(sizes.WIDTH))))\n")
    assert cli.main([*words, str(path)]) == 0
    assert capfd.readouterr().out == "3.0\n"
    (tmp_path / "model.tl").write_text(model + "print(1)\n".replace("print", "let y = "))
    assert cli.main([*words, str(path)]) == 3
    assert "E0208" in capfd.readouterr().err
    path.write_text("use ./modle\n")
    assert cli.main([*words, str(path)]) == 3
    assert "E0203" in capfd.readouterr().err


FLAGS = "fn main(\n  ## how many\n  batch_size: i64 = 2,\n  shuffle: bool = true,\n  quiet: bool = false,\n  name: str,\n) {\n  let x = [10, 20, 30]\n  print(x[batch_size], shuffle, quiet, name)\n}\n"  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "status", "out", "err"),
    [
        (["--name", "a"], 0, "30 true false a\n", ""),
        (["--name=a", "--batch-size", "0", "--no-shuffle", "--quiet"], 0, "10 false true a\n", ""),
        (["--batch_size", "1", "--name", "b"], 0, "20 true false b\n", ""),
        (["--name", "a", "--batch-size", "99"], 1, "", "index 99 is out of range"),
        (["--batch-size", "1"], 2, "", "`--name` must be given"),
        (["--name", "a", "--batch-size", "x"], 2, "", "needs an integer, found `x`"),
        (["--name", "a", "--batch-sise", "1"], 2, "", "did you mean `--batch-size`?"),
        (["--help"], 0, "how many", ""),
    ],
)
@pytest.mark.parametrize("words", [[], ["--interp"]], ids=["native", "interp"])
def test_what_follows_the_file_belongs_to_main(
    words: list[str], flags: list[str], status: int, out: str, err: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tl"
    path.write_text(FLAGS)
    assert cli.main([*words, str(path), *flags]) == status
    found = capfd.readouterr()
    assert found.out == out or (out and out in found.out and flags == ["--help"])
    assert err in found.err and bool(err) == bool(found.err)
