"""Warnings: what is allowed and looks like a mistake. They are said, and the program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked import program

from tlc.driver import cli
from tlc.frontend.errors import ERRORS

SLIP = "fn f(x: f32[batch, n], y: f32[bacth]) -> f32[batch] = for[b] sum(x[b])\nfn main() {\n  print(f([[1.0]], [2.0]))\n}\n"


def codes(text: str) -> list[str]:
    return [d.code for d in program(text).warnings]


@pytest.mark.parametrize("code", [code for code in ERRORS if code.startswith("W")])
def test_the_catalogue(code: str) -> None:
    row = ERRORS[code]
    assert codes(row.bad) == [code] and codes(row.mend) == []


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        ("for i in 0..3 { let w = 0.5 * w }", True),
        ("while w > x { let w = w - 1.0 }", True),
        ("for i in 0..3 { if i > 0 { for j in 0..2 { var w = w + 1.0 } } }", True),
        ("for i in 0..3 { let w = 0.5 * w; print(w) }", False),
        ('for i in 0..3 { let w = 0.5 * w; print("{w}") }', False),
        ("for i in 0..3 { let w = 1.0; let w = w + 1.0 }", False),  # no outer one
        ("for w in 0..3 { let w = w + 1 }", False),
        ("for i in 0..3 { let v = w }", False),
        ("for w in 0..3 { let w = w + 1 }; for i in 0..3 { let v = sum[w < 3] f32(w) }", False),
        ("for i in 0..3 { let w = sum[w < 3] f32(w) }", False),  # an index
        ("for i in 0..3 { let f = f(w) }", False),  # a function
        ("{ let w = 0.5 * w }", False),  # no round follows
    ],
)
def test_a_value_that_a_loop_loses(body: str, lost: bool) -> None:
    assert codes(f"fn f(x: f32) -> f32 {{\n  let w = x\n  {body}\n  w\n}}\n") == ["W0002"] * lost


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("fn f(x: f32[batch, n], y: f32[bacth]) -> f32[batch] = for[b] sum(x[b])\n", "batch"),
        ("fn f(x: f32[heads], y: f32[head, heads]) -> f32 = sum(x)\n", "heads"),
        ("const HIDDEN = 3\nfn f(x: f32[HIDEN]) -> f32 = sum(x)\n", "HIDDEN"),
        ("fn f(count: i64, x: f32[couns, count]) -> f32 = sum(x)\n", ""),
        ("fn f(count: i64, x: f32[coont, count]) -> f32 = sum(x)\n", "count"),
        ("struct S(I, O) { w: f32[I, O] }\nfn f(s: S(width, widht)) -> i64 = width\n", "width"),
        ("fn f(x: f32[width, widht]) -> i64 = width + widht\n", ""),
        ("fn f(x: f32[dim1, dim2], y: f32[in_x, in_y], z: f32[no, n]) -> i64 = n\n", ""),
        ("fn f(x: f32[rows, cols], y: f32[channels_in, channels_out]) -> f32 = sum(x)\n", ""),
    ],
)
def test_a_misspelt_dimension(text: str, near: str) -> None:
    found = program(text).warnings
    assert [d.help for d in found] == ([f"did you mean `{near}`?"] if near else [])


@pytest.mark.parametrize("words", [["check"], ["--interp"], [], []], ids=["check", "interp", "run", "run again"])
def test_it_is_said_and_the_program_runs(words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tl"
    path.write_text(SLIP)
    assert cli.main([*words, str(path)]) == 0
    out, err = capfd.readouterr()
    assert err.startswith("warning[W0001]: the dimension `bacth` is used once, and there is `batch`")
    assert out == ("" if words == ["check"] else "[1.]\n")
