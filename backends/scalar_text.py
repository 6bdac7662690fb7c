"""Scalar ops as text, as far as languages agree: what a form sees, comparisons, and elementary functions written out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tlc.backends.c.words import EQUAL, LESS, Text, call, infix
from tlc.frontend.elementary import expand
from tlc.frontend.ops import COMPARISONS, SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.graph.expand import GraphArith
from tlc.tensor.graph.ir import Expr, Scalar, scalar, walk

_LONG = 96  # a part of an elementary function that gets a name, for people

Form = Callable[..., Text]  # (context, *operands) -> expression
Operands = tuple[tuple[Text, Elem], ...]


class Helpers(Protocol):
    """The functions that a file has so far."""

    def use(self, name: str, *elems: Elem) -> str: ...


H = TypeVar("H", bound=Helpers)


@dataclass(frozen=True)
class Context(Generic[H]):
    """What a form sees: where helpers come from, the type of the result, the type of the operands."""

    helpers: H
    result: Elem
    operand: Elem

    def help(self, name: str, *args: Text) -> Text:
        """A call of a helper over the operands' type."""
        return call(self.helpers.use(name, self.operand), *args)


def _comparison(name: str) -> Form:
    return lambda c, a, b: infix(a, SCALAR_OPS[name].symbol, b, EQUAL if name in ("eq", "ne") else LESS)


COMPARED: dict[str, Form] = {name: _comparison(name) for name in COMPARISONS}


def elementary(function: Callable[[Any, str, Elem], str]) -> dict[str, Form]:
    """The forms of elementary functions: calls of what `function` names, given helpers, a function and its element type."""

    def form(name: str) -> Form:
        return lambda c, *args: call(function(c.helpers, name, c.operand), *args)

    return {name: form(name) for name, row in SCALAR_OPS.items() if row.elementary}


def written_out(
    name: str,
    elem: Elem,
    literal: Callable[[object, Elem], Text],
    emit: Callable[[str, Elem, Operands], Text],
    definition: Callable[[str, Elem, Text], str],
) -> tuple[tuple[str, ...], list[str], Text]:
    """An elementary function of `frontend/elementary.py`: its parameters, the definitions before its result, and that. What the expansion
    uses more than once, or what would be a long line, gets a name.
    """
    params = ("x", "y", "z")[: SCALAR_OPS[name].arity]
    root = expand(name, GraphArith(), elem, *(scalar(Scalar(p, elem)) for p in params))
    assert isinstance(root, Expr)
    uses = Counter(a for e in walk([root]) for a in e.args)
    texts: dict[Expr, Text] = {}
    lines: list[str] = []
    for e in walk([root]):
        match e.op:
            case "const":
                texts[e] = literal(e.data, e.elem)
                continue
            case "scalar":
                texts[e] = Text(e.data.name)
                continue
        text = emit(e.op, e.elem, tuple((texts[a], a.elem) for a in e.args))
        if e is not root and (uses[e] > 1 or len(text.text) > _LONG):
            short = f"t{len(lines)}"
            lines.append(definition(short, e.elem, text))
            text = Text(short)
        texts[e] = text
    return params, lines, texts[root]
