"""Typed nodes that still wait: calls whose instance is known only when the caller's element types are final.

`zonk.py` replaces them; nothing else ever sees them.
"""

from __future__ import annotations

from tlc.frontend import typed
from tlc.frontend.check.scope import FunctionDecl
from tlc.frontend.records import dataclass
from tlc.frontend.typed import Local, TypeParam
from tlc.frontend.types import Type


@dataclass(frozen=True)
class Outline:
    """A function value that is passed on: `params -> body`, where the body may speak of the locals around it (its captures).

    It becomes a function of its own that takes the captures as further parameters; a body that is only a call of
    another function with these parameters is that function.
    """

    params: tuple[Local, ...]
    body: typed.Expr
    name: str


@dataclass(frozen=True)
class Closed:
    """An outline made a function: an instance and the values of its captures."""

    ref: typed.FunctionRef
    captures: tuple[typed.Expr, ...]


@dataclass(frozen=True)
class PendingCall(typed.Expr):
    """A call of a definition; `types` are what its type parameters stand for, `functions` its arguments of function type."""

    decl: FunctionDecl
    types: dict[TypeParam, Type]
    args: tuple[typed.Expr, ...]
    functions: tuple[tuple[str, Outline], ...]


@dataclass(frozen=True)
class PendingGrad(typed.Expr):
    """`typed.Grad` of a function value."""

    function: Outline
    args: tuple[typed.Expr, ...]
    wrt: tuple[int, ...]
    many: bool
    value: bool


@dataclass(frozen=True)
class PendingJvp(typed.Expr):
    """`typed.Jvp` of a function value."""

    function: Outline
    args: tuple[typed.Expr, ...]
    tangents: tuple[typed.Expr, ...]
    wrt: tuple[int, ...]


@dataclass(frozen=True)
class PendingCheckpoint(typed.Expr):
    """A `typed.Call` of a function value that a derivative runs again."""

    function: Outline
    args: tuple[typed.Expr, ...]


@dataclass(frozen=True)
class PendingConst(typed.Expr):
    """A number whose element type is still open. It is converted, and its range checked, when that is known."""

    value: int | float


@dataclass(frozen=True)
class PendingRandom(typed.Expr):
    """`normal` or `uniform` of a key and a counter, in the type that the rest of the function wants."""

    name: str
    key: typed.Expr
    counter: typed.Expr


@dataclass(frozen=True)
class PendingLayout(typed.Expr):
    """What a service must know of a value that consists of leaves: see `leaves.py`. `service` is who asks."""

    of: Type
    service: str
