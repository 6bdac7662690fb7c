"""Small functions that numba has not, or not with the meaning of `frontend/ops.py`: each is printed once a file, where it is used.

A row is a function from element types to the lines of a device function; what it uses itself it asks the `Helpers` for. The names end
with the types: `floordiv_i64`, `i32_of_f64`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from tlc.backends.c.helpers import suffix
from tlc.backends.c.words import EQUAL, Text, call, infix
from tlc.backends.cuda.intrinsics import INTRINSICS
from tlc.backends.cuda.words import MEMORY, VALUES, Narrow, literal
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import DTYPES
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

Row = Callable[..., str]  # (helpers, *element types) -> the body of the function, without its `def`


@dataclass
class Helpers:
    """What a file uses so far: device functions with their texts, in order, and names by their modules (types of numba aside)."""

    texts: dict[str, str] = field(default_factory=dict)
    imports: dict[str, set[str]] = field(default_factory=dict)

    def use(self, name: str, *elems: Elem) -> str:
        """The name of a helper; its text is in the file from now on."""
        full = "_of_".join(map(str, elems)) if name == "to_int" else f"{name}_{elems[0]}"
        if full not in self.texts:
            parameters, row = HELPERS[name]
            body = row(self, *elems)
            self.texts[full] = f"@cuda.jit(device=True)\ndef {full}({parameters}):\n{_indented(body)}"
        return full

    def library(self, name: str, *args: Text) -> Text:
        """A call of a function of NVIDIA's libdevice."""
        return call(self.imported("numba.cuda.libdevice", name), *args)

    def intrinsic(self, name: str, *args: Text) -> Text:
        """A call of a row of `INTRINSICS`."""
        assert name in INTRINSICS, name
        return call(self.imported("tlc.backends.cuda.ptx", name), *args)

    def imported(self, module: str, name: str) -> str:
        self.imports.setdefault(module, set()).add(name)
        return name

    def cast(self, elem: Elem, a: Text) -> Text:
        """A value in another type."""
        return call(VALUES[elem], a)

    def loaded(self, cell: Text, elem: Elem) -> Text:
        """The value of what lies in memory."""
        if elem is Elem.BOOL:
            return infix(cell, "!=", Text("0"), EQUAL)
        return Narrow(str(self.intrinsic(f"f32_of_{elem}", cell)), elem=elem, bits=str(cell)) if elem in NARROW else cell

    def stored(self, value: Text, elem: Elem) -> Text:
        """What lies in memory for a value."""
        if elem is Elem.BOOL:
            return call(MEMORY[elem], value)
        if isinstance(value, Narrow) and value.elem is elem:
            return Text(value.bits)
        return self.intrinsic(f"{elem}_of_f32", value.wide or value) if elem in NARROW else value  # it rounds once more

    def literal(self, value: object, elem: Elem) -> Text:
        """A constant, with the names that it needs."""
        text = literal(value, elem)
        for name in ("inf", "nan"):
            if name in (text.text.lstrip("-"), (text.wide or text).text.lstrip("-")):
                self.imported("math", name)
        return text


def _indented(body: str) -> str:
    return "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))


# ---------------------------------------------------------------- rows


def _floordiv(h: Helpers, e: Elem) -> str:
    least = "if b == -1:\n    return -a  # the least number too\n" if e is Elem.I64 else ""
    zero, quotient = h.literal(0, e), Text("a // b") if e is Elem.I64 else h.cast(e, Text("a // b"))
    return f"if b == 0:\n    return {_typed(h, zero, e)}\n{least}return {quotient}"


def _mod(h: Helpers, e: Elem) -> str:
    if e.is_real:
        return _mod_of_reals(h, e)
    cut = "b == 0 or b == -1" if e.is_signed else "b == 0"
    rest = Text("a % b") if e is Elem.I64 else h.cast(e, Text("a % b"))
    return f"if {cut}:\n    return {_typed(h, h.literal(0, e), e)}\nreturn {rest}"


def _typed(h: Helpers, zero: Text, e: Elem) -> Text:
    return h.cast(e, zero) if zero.wide is None else zero


def _mod_of_reals(h: Helpers, e: Elem) -> str:
    f = suffix(e)
    fabs, copysign = (h.imported("numba.cuda.libdevice", f"{name}{f}") for name in ("fabs", "copysign"))
    inf, zero = h.imported("math", "inf"), h.literal(0.0, e)
    return f"""
r = {h.library(f"fmod{f}", Text("a"), Text("b"))}
if {fabs}(b) == {inf} and {fabs}(a) < {inf}:
    return b if (a < 0) != (b < 0) and a != 0 else a
if r == 0:
    return {copysign}({zero}, b)
return r + b if (r < 0) != (b < 0) else r"""


def _sign(h: Helpers, e: Elem) -> str:
    if e.is_real:
        one, less, zero = (h.literal(x, e) for x in (1.0, -1.0, 0.0))
        return f"if a > 0:\n    return {one}\nif a < 0:\n    return {less}\nreturn {zero} if a == 0 else a"
    one, zero = (_typed(h, h.literal(x, e), e) for x in (1, 0))
    negative = f"if a < 0:\n    return {_typed(h, h.literal(-1, e), e)}\n" if e.is_signed else ""
    return f"{negative}return {one} if a > 0 else {zero}"


def _to_int(h: Helpers, result: Elem, e: Elem) -> str:
    """Truncation; what does not fit becomes the nearest that does, NaN 0. Both bounds are powers of two, or 0, so they are exact."""
    info = np.iinfo(DTYPES[result])
    low = h.literal(float(info.min), e)
    high = h.literal(2.0 ** (result.width - result.is_signed), e)
    zero, least, most = (_typed(h, h.literal(int(n), result), result) for n in (0, info.min, info.max))
    return f"""
if x != x:
    return {zero}
if x <= {low}:
    return {least}
if x >= {high}:
    return {most}
return {h.cast(result, Text("x"))}"""


def _round(h: Helpers, e: Elem) -> str:
    return f"return {h.intrinsic(f'f32_of_{e}', h.intrinsic(f'{e}_of_f32', Text('x')))}"


HELPERS: dict[str, tuple[str, Row]] = {
    "floordiv": ("a, b", _floordiv),
    "mod":      ("a, b", _mod),
    "sign":     ("a", _sign),
    "to_int":   ("x", _to_int),
    "round":    ("x", _round),
}  # fmt: skip

