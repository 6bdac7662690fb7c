"""How values print: the rules of LANGUAGE.md, shared by the interpreter and the run time.

A template (the attribute of `format`) is a tuple of pieces: a `str` stands for itself, `("hole", spec, layout)` for a
value. A value comes as its leaves; its layout says how they stand together:

    "leaf"                                     a scalar or a tensor
    ("tuple", layouts)                         (a, b)
    ("struct", name, field names, layouts)     Name(field = a, other = b); a field without a name is not shown

A leaf is a NumPy scalar, an `ndarray` or a `str`. NumPy has no bf16, so a leaf of that type comes as `Brief`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tlc.frontend import narrow_reals
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

Layout = Any  # see the module's text
Template = tuple[Any, ...]


def render(template: Template, leaves: Sequence[Any]) -> str:
    """The text of a template with its holes filled by `leaves` in order."""
    rest = iter(leaves)
    return "".join(piece if isinstance(piece, str) else _layout(piece[2], piece[1], rest) for piece in template)


def fill(message: str, values: Sequence[Any]) -> str:
    """The message of a `check`: `{k}` is the k-th value."""
    return re.sub(r"\{(\d+)\}", lambda m: leaf(values[int(m[1])]), message)


def count_leaves(layout: Layout) -> int:
    """How many leaves a layout takes."""
    return 1 if layout == "leaf" else sum(map(count_leaves, layout[-1]))


def template_leaves(template: Template) -> int:
    """How many leaves all the holes of a template take."""
    return sum(count_leaves(piece[2]) for piece in template if not isinstance(piece, str))


def _layout(layout: Layout, spec: str, rest: Iterator[Any]) -> str:
    if layout == "leaf":
        return leaf(next(rest), spec)
    if layout[0] == "tuple":
        items = [_layout(item, spec, rest) for item in layout[1]]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    _, name, fields, layouts = layout
    shown = [(f, _layout(item, spec, rest)) for f, item in zip(fields, layouts, strict=True)]
    return f"{name}({', '.join(f'{f} = {text}' for f, text in shown if f)})"


@dataclass(frozen=True)
class Brief:
    """bf16 values, in f32."""

    value: Any


def marked(value: Any, elem: Elem) -> Any:
    """A value of this element type as a leaf."""
    return Brief(value) if elem is Elem.BF16 else value


def leaf(value: Any, spec: str = "") -> str:
    """One scalar or tensor; `spec` is a Python format specification for each element."""
    if isinstance(value, Brief):
        value = value.value if spec else np.vectorize(narrow_reals.shortest, otypes=[np.float64])(value.value)
    if isinstance(value, np.ndarray):
        return _tensor(value, spec) if value.ndim else scalar(value[()], spec)
    return scalar(value, spec)


def scalar(value: Any, spec: str = "") -> str:
    """A bool as `true` or `false`, a real as the shortest text that reads back in its own type, an integer or `str` as Python does."""
    if isinstance(value, (bool, np.bool_)):
        value = "true" if value else "false"
    elif isinstance(value, np.floating) and not spec:
        return shortest(value)
    elif isinstance(value, np.generic):
        value = value.item()
    return format(value, spec)


def shortest(value: np.floating[Any] | float) -> str:
    """The fewest digits that read back to `value` in its own type, laid out as Python lays out a float: 1.0, 0.1, 1e-05."""
    if not np.isfinite(value):
        return "nan" if np.isnan(value) else "inf" if value > 0 else "-inf"
    mantissa, exponent_text = np.format_float_scientific(value, unique=True, trim="-").split("e")
    sign, digits, exponent = "-" * mantissa.startswith("-"), mantissa.lstrip("-").replace(".", ""), int(exponent_text)
    if not -4 <= exponent < 16:
        point = "." * (len(digits) > 1)
        return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent:+03d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, part = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :] or "0"
    return f"{sign}{whole}.{part}"


# NumPy's own defaults, spelled out so that nobody's `np.set_printoptions` changes what a program prints.
_OPTIONS: dict[str, Any] = {
    "max_line_width": 75, "precision": 8, "suppress_small": False, "separator": " ", "prefix": "",
    "threshold": 1000, "edgeitems": 3, "sign": "-", "floatmode": "maxprec",
}  # fmt: skip


def _tensor(value: np.ndarray[Any, Any], spec: str) -> str:
    options = _OPTIONS
    if spec:
        options = {**_OPTIONS, "formatter": {"all": lambda v: scalar(v, spec)}}
    elif value.dtype.kind == "b":
        width = 5 if not value.all() else 4
        options = {**_OPTIONS, "formatter": {"bool": lambda v: scalar(v).rjust(width)}}
    return np.array2string(value, **options)
