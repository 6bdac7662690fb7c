"""Pictures: by Matplotlib into a file, or sketched in the terminal where no file is named."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tlc.backends.runtime import files, sketch
from tlc.backends.runtime.console import World
from tlc.ssa.world import RuntimeStop

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("png", "svg", "pdf")
SIZE = (7.0, 4.0)  # inches
DOTS = 150  # an inch


def line(world: World, layout: str, y: Any, path: str, title: str, x_label: str, y_label: str) -> None:
    """`plot.line(y)`: the numbers over 0, 1, 2, ..."""
    lines(world, layout, np.arange(len(y)), y[None], "", path, title, x_label, y_label)


def lines(world: World, layout: str, x: Any, y: Any, names: str, path: str, title: str, x_label: str, y_label: str) -> None:
    """`plot.lines(x, y)`: each row of `y` over `x`; `names` are those of the rows, with commas between."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    named = [name.strip() for name in names.split(",")] if names else [""] * len(y)
    if len(named) != len(y):
        raise RuntimeStop(f"there are {len(y)} curves and {len(named)} names", "extern")
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[:, order]
    if not path:
        _sketch_lines(world, x, y, named, title)
        return

    def fill(axes: Axes) -> None:
        for name, row in zip(named, y, strict=True):
            known = np.isfinite(row)
            axes.plot(x[known], row[known], label=name or None, linewidth=1.2)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        axes.grid(alpha=0.3)
        if names:
            axes.legend()

    _draw(path, fill)


def image(world: World, layout: str, x: Any, path: str, title: str) -> None:
    """`plot.image(x)`: a matrix as grey pixels, the least black, the greatest white."""
    x = np.asarray(x, np.float64)
    if not x.size:
        raise RuntimeStop(f"an image of {x.shape[0]} by {x.shape[1]} pixels has none", "extern")
    if not path:
        world.put(f"{title}\n" if title else "")
        world.put(f"{sketch.image(x)}\n")
        return

    def fill(axes: Axes) -> None:
        axes.imshow(x, cmap="gray", interpolation="nearest")
        axes.set_axis_off()
        axes.set(title=title)

    _draw(path, fill)


def _sketch_lines(world: World, x: Any, y: Any, names: list[str], title: str) -> None:
    """The curves one below the other, on one scale."""
    known = np.isfinite(y) & np.isfinite(x)
    low, high = (float(y[known].min()), float(y[known].max())) if known.any() else (0.0, 0.0)
    for name, row, here in zip(names, y, known, strict=True):
        heading = ", ".join(part for part in (title, name) if part)
        world.put(f"{heading}\n" if heading else "")
        world.put(f"{sketch.curve(x[here], row[here], low, high) if here.any() else '(no finite numbers)'}\n")


def ensure_drawable(world: World, path: str) -> None:
    """`plot.ensure_drawable(path)`: fail as drawing would, as far as that can be known before."""
    _kind(path)
    if find_spec("matplotlib") is None:
        raise _no_matplotlib(path)
    files.ensure_writable(path)


def _kind(path: str) -> str:
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in KINDS:
        raise RuntimeStop(f"a picture is a .png, .svg or .pdf, and {path} is none of them", "file")
    return kind


def _no_matplotlib(path: str) -> RuntimeStop:
    brings = "the extra `plot` of the compiler brings it, and so does `pip install matplotlib`"
    notes = (brings, "without a path there is a sketch in the terminal")
    return RuntimeStop(f"drawing {path} needs Matplotlib, which is not installed", "extern", notes)


def _draw(path: str, fill: Callable[[Axes], None]) -> None:
    """A picture in a file. The same numbers give the same bytes: there is no date in it, and no name is drawn by chance."""
    kind = _kind(path)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise _no_matplotlib(path) from None
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with rc_context({"svg.hashsalt": "tlc", "text.parse_math": False}), warnings.catch_warnings(), files.replacing(path) as stream:
        warnings.simplefilter("ignore")  # of letters that its font does not have
        figure = Figure(figsize=SIZE, dpi=DOTS, layout="tight")
        fill(figure.add_subplot())
        figure.savefig(stream, format=kind, metadata=metadata)
