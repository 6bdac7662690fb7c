"""Pictures of numbers in a terminal: a curve in the dots of Braille signs, an image in five shades of grey."""

from __future__ import annotations

from typing import Any

import numpy as np

Reals = np.ndarray[Any, np.dtype[np.float64]]

COLUMNS, ROWS = 64, 12  # of signs in a picture of a curve
IMAGE = 40  # pixels across the terminal
SHADES = " ░▒▓█"
_BLANK = 0x2800  # the Braille sign without dots
# The bits of the dots of a Braille sign, row by row, two in a row.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def curve(x: Reals, y: Reals, low: float, high: float) -> str:
    """One curve through finite points in the order of `x`, with `low` and `high` at the ends of its vertical axis."""
    across, down = 2 * COLUMNS, 4 * ROWS
    dots = np.zeros((down, across), bool)
    at = (np.arange(across) + 0.5) / across
    heights = np.interp(at, _between(x, x[0], x[-1]), _between(y, low, high)) if len(x) > 1 else np.full(across, 0.5)
    rows = [round(float(row)) for row in (down - 1) * (1.0 - heights)]
    for column, (before, row) in enumerate(zip([rows[0], *rows], rows, strict=False)):
        dots[min(before, row) : max(before, row) + 1, column] = True
    signs = (dots.reshape(ROWS, 4, COLUMNS, 2) * _DOTS[:, None, :]).sum(axis=(1, 3))
    labels = [f"{high:.4g}", *[""] * (ROWS - 2), f"{low:.4g}"]
    width = max(map(len, labels))
    texts = ("".join(chr(_BLANK + sign) for sign in row).rstrip(chr(_BLANK)) for row in signs)
    lines = [f"{label:>{width}} ┤{text}" for label, text in zip(labels, texts, strict=True)]
    left, right = f"{x[0]:.4g}", f"{x[-1]:.4g}"
    return "\n".join([*lines, " " * (width + 2) + left + right.rjust(COLUMNS - len(left))])


def image(x: Reals) -> str:
    """Pixels as pairs of signs, the least of them blank, the greatest full. A large image is shown by the means of its squares."""
    size = -(-x.shape[1] // IMAGE)
    if size > 1:
        rows, columns = max(x.shape[0] // size, 1), x.shape[1] // size
        x = x[: rows * size, : columns * size].reshape(rows, -1, columns, size).mean(axis=(1, 3))
    known = np.isfinite(x)
    if not known.any():
        return "(no finite numbers)"
    shade = _between(np.where(known, x, x[known].min()), x[known].min(), x[known].max()) * (len(SHADES) - 1)
    return "\n".join("".join(2 * SHADES[round(float(s))] for s in row).rstrip() for row in shade)


def _between(x: Reals, low: float, high: float) -> Reals:
    """Where numbers lie on the way from `low` (0) to `high` (1). Halves, because the difference of two numbers may be too large for one."""
    return (x / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
