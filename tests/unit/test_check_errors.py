"""What the checker refuses, and how it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked import codes, diagnostics

from tlc.frontend.check import check
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.errors import ERRORS, ErrorRow
from tlc.frontend.parser import parse
from tlc.frontend.source import Source

OTHER_STAGES = ("E0208", "E0940", "E0960", "E0961")  # two files, or found behind the checker
ROWS = [r for r in ERRORS.values() if "E02" <= r.code < "E1" and r.code not in OTHER_STAGES]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.code)
def test_the_catalogue(row: ErrorRow) -> None:
    """The bad program gets the code, the mended one nothing."""
    assert row.code in codes(row.bad)
    assert codes(row.mend) == []


def test_every_code_has_a_row() -> None:
    import re

    folder = Path(__file__).resolve().parents[2] / "frontend" / "check"
    used = {c for f in folder.glob("*.py") for c in re.findall(r'"(E\d{4})"', f.read_text(encoding="utf-8"))}
    assert used - set(ERRORS) == set()


def test_a_shape_error_names_both_shapes_and_their_origin() -> None:
    (d,) = diagnostics("fn f(a: f32[n], b: f32[m]) -> f32[n] = a + b\n")
    assert d.code == "E0302"
    assert "`f32[n]` and `f32[m]`" in d.message
    assert [label.text for label in d.labels][2:] == ["`n` comes from here", "`m` comes from here"]
    assert "as f32[...]" in d.help


def test_a_dimension_of_one_does_not_stretch() -> None:
    (d,) = diagnostics("fn f(a: f32[n], b: f32[n, 1]) -> f32[n] = a - b\n")
    assert "does not stretch" in d.help


def test_an_argument_is_shown_as_it_was_given() -> None:
    (d,) = diagnostics("fn f(x: f32[784]) -> f32 = sum(x)\nfn g(x: f32[64, 783]) -> f32[64] = f(x)\n")
    assert "must be `f32[784]`, found `f32[64, 783]`" in d.message


@pytest.mark.parametrize(
    ("body", "help"),
    [
        ("x + n", "convert one side: `f32(n)`"),
        ("x / n", "convert one side: `f32(n)`"),
        ("n / 2", "`//` divides integers"),
        ("f32(n) + 1.0f64", "convert one side: `f64(f32(n))`"),
    ],
)
def test_mixed_types_offer_the_conversion(body: str, help: str) -> None:
    (d,) = diagnostics(f"fn f(x: f32, n: i64) -> f32 = {body}\n")
    assert help in d.help


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("fn f(width: f32) -> f32 = widht\n", "did you mean `width`?"),
        ("use nn\nfn f(x: f32[n]) -> f32 = nn.msee(x, x)\n", "did you mean `mse`?"),
        ("use optin\n", "did you mean `optim`?"),
        ("struct P { left: f32 }\nfn f(p: P) -> f32 = p.lefd\n", "did you mean `left`?"),
        ("fn f(x: f32) -> f32 = x\nfn g() -> f32 = f(y = 1.0)\n", ""),
        ("fn main() { var total = 0\n  totl = 1 }\n", "did you mean `total`?"),
    ],
)
def test_near_names(text: str, help: str) -> None:
    assert [d.help for d in diagnostics(text)] == [help]


def test_several_errors_in_one_run() -> None:
    """A statement that fails poisons its variables silently; the others are still checked."""
    text = "fn f() -> f32 {\n  let a = unknown\n  let b = a + 1\n  let c: f32 = b\n  var d = 1.0\n  d = true\n  c + d\n}\n"
    text += "fn g() -> i64 = 1.5\n"
    assert codes(text) == ["E0201", "E0301", "E0406"]


def test_an_error_in_an_uncalled_function_is_found() -> None:
    assert codes("fn f[T: float](x: T[n]) -> T = sum[i] x[i] + true\nfn main() { print(1) }\n") == ["E0303"]


def test_an_error_in_a_used_file(tmp_path: Path) -> None:
    (tmp_path / "model.tl").write_text("fn f(x: f32) -> f32 = y\nprint(1)\n", encoding="utf-8")
    main = tmp_path / "main.tl"
    main.write_text("use ./model\nprint(model.f(1.0))\n", encoding="utf-8")
    with pytest.raises(CompileError) as caught:
        check(parse(Source(str(main), main.read_text(encoding="utf-8"))))
    assert sorted(d.code for d in caught.value.diagnostics) == ["E0201", "E0208"]


@pytest.mark.parametrize(
    "text",
    [
        "fn f(x: f32[3], i: i64) -> f32 = x[3]\n",
        "fn f(x: f32[3]) -> f32 = x[-4]\n",
        "fn f(x: f32[n]) -> f32[n] = x[1..0]\n",
        "fn f(x: f32[3]) -> f32[2] = x[2..4]\n",
        "fn f(x: f32[n]) -> f32 = x[0, 0]\n",
        "fn f(x: f32[n], m: bool[n]) -> f32 = sum(x[m])\n",
    ],
)
def test_subscripts_that_are_certainly_wrong(text: str) -> None:
    assert codes(text) == ["E0307"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let k = key(0)\nlet a = normal(k)\nlet b = uniform(k)\n", ["E0702"]),
        ("let k = key(0)\nfor i in 0..3 { print(normal(k)) }\n", ["E0703"]),
        ("let k = key(0)\nlet x = for[i < 3] normal(k)\n", ["E0703"]),
        ("let k = key(0)\nlet x = for[i < 3] normal(fold(k, i))\n", []),
        ("var k = key(0)\nfor i in 0..3 {\n  let (a, b) = split(k)\n  k = a\n  print(normal(b))\n}\n", []),
        ("let k = key(0)\nif true { print(normal(k)) } else { print(uniform(k)) }\n", []),
        ("let k = key(0)\nif true { print(normal(k)) }\nprint(uniform(k))\n", ["E0702"]),
        ("let ks = split(key(0), 4)\nlet x = for[i] normal(ks[i], 2)\n", []),
        ("let ks = split(key(0), 4)\nprint(normal(ks[0]), normal(ks[1]))\n", []),
        ("let ks = split(key(0), 4)\nprint(normal(ks[0]), normal(ks[0]))\n", ["E0702"]),
        ("let k = key(0)\nlet also = k\nprint(normal(k), normal(also))\n", ["E0702"]),
        ("fn f(k: key) -> f32 = normal(k)\nlet k = key(0)\nprint(f(k), f(k))\n", ["E0702"]),
    ],
)
def test_keys_are_used_once(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "fn f(n: i64) -> f32[n] = zeros(n)\nfn g(n: i64[k]) -> f32[k] = f(n)\n",
        "fn f(x: f32[n]) -> f32[?] = x\nfn g(x: f32[m, n]) -> f32[m, n] = f(x)\n",
        "struct P { a: f32, b: f32 }\nfn f(p: P, x: f32[n]) -> P = p + x\n",
        "struct P { a: f32 }\nstruct Q { a: f32 }\nfn f(p: P, q: Q) -> P = p + q\n",
        "struct P { a: f32 }\nfn f(p: P) -> P = p == p\n",
    ],
)
def test_what_does_not_lift(text: str) -> None:
    assert codes(text) == ["E0404"]


def test_parameters_of_function_type_do_not_lift_and_fit() -> None:
    text = "fn apply(f: fn(f32) -> f32, x: f32) -> f32 = f(x)\n"
    assert codes(text + "fn g() -> f32 = apply(fn(x) => x > 0.0, 1.0)\n") == ["E0402"]
    assert codes(text + "fn g() -> f32 = apply(fn(x, y) => x, 1.0)\n") == ["E0402"]
    assert codes(text + "fn g(x: f32[n]) -> f32[n] = apply(fn(x) => x * x, x)\n") == []


def test_a_claim_that_is_certainly_false() -> None:
    assert codes("fn f(x: f32[n, 3]) -> f32[n, 4] = x as f32[n, 4]\n") == ["E0301"]
    assert codes("fn f(x: f32[n]) -> f32[4] = x as f32[4]\n") == []
