"""`plot`: pictures in files by Matplotlib, and sketches of them in the terminal."""

from __future__ import annotations

import builtins
import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tlc.backends.runtime import plots, sketch
from tlc.backends.runtime.services import WorldServices
from tlc.driver import cli, pipeline
from tlc.ssa.world import RuntimeStop

MODES = [["--host", host] for host in pipeline.hosts()] + [["--interp"]]
BEGINS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(body: str, mode: list[str]) -> int:
    Path("program.tl").write_text(f"use plot\nfn main() {{\n{body}\n}}\n")
    return cli.main([*mode, "program.tl"])


@pytest.mark.parametrize("mode", MODES[-2:], ids=" ".join)
def test_a_file_of_each_kind(mode: list[str], folder: Path) -> None:
    body = """
  let y = f16([4.0, 2.0, 1.5])
  plot.line(y, "a.png", "loss", x_label = "epoch", y_label = "mean")
  plot.lines([0, 1, 2], [[1, 2, 3], [3, 2, 1]], "up, down", path = "b.svg")
  plot.image(for[i < 4, j < 6] f64(i * j), "c.pdf", title = "product")
"""
    assert run(body, mode) == 0
    for name, kind in (("a.png", "png"), ("b.svg", "svg"), ("c.pdf", "pdf")):
        assert (folder / name).read_bytes().startswith(BEGINS[kind])
    assert sorted(path.name for path in folder.iterdir()) == ["a.png", "b.svg", "c.pdf", "program.tl"]


@pytest.mark.parametrize("kind", plots.KINDS)
def test_the_same_numbers_give_the_same_file(kind: str, folder: Path) -> None:
    for name in (f"a.{kind}", f"b.{kind}"):
        plots.lines(WorldServices(), "", np.arange(3), np.array([[1, np.nan, 2], [2.0, 1.0, 0.0]]), "a, b", name, "t", "x", "y")
    assert (folder / f"a.{kind}").read_bytes() == (folder / f"b.{kind}").read_bytes()


def test_any_text_may_be_a_title(folder: Path) -> None:
    """Dollars are no formulas, and a letter that the font does not have is no fault."""
    plots.line(WorldServices(), "", np.ones(3), "a.svg", "$\\frac$ \U00013000", "$", "_")
    assert (folder / "a.svg").exists()


def test_numbers_of_all_sizes() -> None:
    for y in ([1e308, -1e308], [5e-324, 0.0], [np.nan, 1.0], [np.inf, -np.inf]):
        assert len(drawn(plots.line, np.array(y), "", "", "", "")) in (1, sketch.ROWS + 1)
        assert len(drawn(plots.image, np.array([y]), "", "")) == 1


def test_without_matplotlib(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run('  plot.line([1.0, 2.0], "a.png")', ["--interp"]) == 1
    assert capfd.readouterr().err.splitlines() == [
        "error[R0012]: drawing a.png needs Matplotlib, which is not installed",
        " --> program.tl:3:3",
        "  |",
        '3 |   plot.line([1.0, 2.0], "a.png")',
        "  |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "  = note: the extra `plot` of the compiler brings it, and so does `pip install matplotlib`",
        "  = note: without a path there is a sketch in the terminal",
    ]
    assert run("  plot.line([1.0, 2.0])", ["--interp"]) == 0
    assert not (folder / "a.png").exists()


def drawn(draw: Any, *args: Any) -> list[str]:
    output = io.StringIO()
    draw(WorldServices(output), "", *args)
    return output.getvalue().splitlines()


def dots(lines: list[str]) -> list[list[int]]:
    """Which rows of dots, from above, are set in each column of a sketch."""
    signs = [line.split("┤")[1].ljust(sketch.COLUMNS, chr(0x2800)) for line in lines]
    bits = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by the Unicode standard, chapter 21.1
    columns = [(column, side) for column in range(sketch.COLUMNS) for side in (0, 1)]
    return [[4 * r + d for r, row in enumerate(signs) for d in range(4) if ord(row[c]) & bits[side][d]] for c, side in columns]


def test_a_sketch_of_a_curve() -> None:
    """A straight line downwards: every column has dots, those of the first are above, and none lies above the one before."""
    lines = drawn(plots.line, np.linspace(5.0, 1.0, 50, dtype=np.float32), "", "loss", "step", "")
    assert lines[0] == "loss"
    assert lines[1].startswith("5 ┤")
    assert lines[sketch.ROWS].startswith("1 ┤")
    assert lines[-1].split() == ["0", "49"]
    found = dots(lines[1:-1])
    assert found[0] == [0]
    assert max(found[-1]) == 4 * sketch.ROWS - 1
    assert all(found)
    assert all(max(a) <= max(b) for a, b in pairwise(found))


def test_curves_share_their_axis_and_skip_what_is_no_number() -> None:
    y = np.array([[0.0, np.nan, 10.0], [2.0, 2.0, 2.0], [np.inf] * 3])
    lines = drawn(plots.lines, np.array([3, 1, 2]), y, "up, flat, none", "", "t", "", "")
    assert lines[0] == "t, up"
    assert lines[1].startswith("10 ┤")
    second = lines.index("t, flat")
    assert set(map(tuple, dots(lines[second + 1 : second + 1 + sketch.ROWS]))) == {(38,)}  # of rows 0 to 47: 47 * (1 - 2 / 10) is 37.6
    assert lines[-2:] == ["t, none", "(no finite numbers)"]


def test_a_sketch_of_few_points() -> None:
    assert drawn(plots.line, np.zeros(0), "", "loss", "", "") == ["loss", "(no finite numbers)"]
    assert len(set(map(tuple, dots(drawn(plots.line, np.ones(1), "", "", "", "")[:-1])))) == 1


def test_a_sketch_of_an_image() -> None:
    assert drawn(plots.image, np.array([[0, 1], [3, 4]]), "", "four") == ["four", "  ░░", "▓▓██"]
    large = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones((100, 100)))
    shown = drawn(plots.image, large, "", "")
    assert len(shown) == 40
    assert shown[0] == " " * 40 + "█" * 40
    assert shown[-1] == "█" * 40


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda world: plots.line(world, "", np.ones(3), "a.jpg", "", "", ""), "a picture is a .png, .svg or .pdf, and a.jpg is none of them"),
        (lambda world: plots.line(world, "", np.ones(3), "no/a.png", "", "", ""), "cannot write no/a.png: no such file or directory"),
        (lambda world: plots.lines(world, "", np.ones(3), np.ones((2, 3)), "a", "", "", "", ""), "there are 2 curves and 1 names"),
        (lambda world: plots.image(world, "", np.ones((3, 0)), "", ""), "an image of 3 by 0 pixels has none"),
    ],
)
def test_what_cannot_be_drawn(draw: Any, says: str) -> None:
    with pytest.raises(RuntimeStop) as stop:
        draw(WorldServices())
    assert stop.value.message == says
