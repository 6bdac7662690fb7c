"""What names mean: entities of modules, and scopes inside functions.

Mutable: a scope is filled as statements are checked. A scope knows its kind, because a comprehension's body may read the
variables around it but not assign them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING

from tlc.frontend import ast, typed
from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Type

if TYPE_CHECKING:
    from tlc.frontend.check.functions import FunctionValue
    from tlc.frontend.check.signature import Signature


# ---------------------------------------------------------------- entities of a module


@dataclass(eq=False)
class FunctionDecl:
    """A function as declared."""

    name: str  # unique and readable: `nn.linear`
    node: ast.Function
    module: ModuleScope
    _read: Callable[[], Signature | None] | None = None  # what there is to read
    _signature: Signature | None = None

    @property
    def signature(self) -> Signature | None:
        """None while it is unknown or if it is wrong (and was reported)."""
        if self._read is not None:
            read, self._read = self._read, None
            self._signature = read()
        return self._signature

    def declare(self, read: Callable[[], Signature | None], later: bool) -> None:
        """Say how the signature is read; it is read now, or `later`, when somebody asks for it."""
        self._read = read
        if not later:
            self._signature = self.signature

    @property
    def is_service(self) -> bool:
        """Whether the run time does it: an `extern fn` of the standard library."""
        return self.node.extern and self.module.trusted


@dataclass(eq=False)
class StructEntity:
    """A struct as declared; `broken` if its fields are wrong (and were reported)."""

    decl: typed.StructDecl
    node: ast.StructDef
    module: ModuleScope
    broken: bool = False


@dataclass(eq=False)
class ConstEntity:
    """A constant. `value` is filled when first asked for: see `constants.py`."""

    name: str
    node: ast.ConstDef
    module: ModuleScope
    state: str = "new"  # new, busy, done, broken
    value: bool | int | float | str | None = None
    type: Type | None = None


@dataclass(eq=False)
class Namespace:
    """A module under the name that `use` gives it."""

    module: ModuleScope
    span: Span


@dataclass(frozen=True)
class Poisoned:
    """A name whose definition failed and was reported: its uses say nothing more."""


Entity = FunctionDecl | StructEntity | ConstEntity | Namespace | Poisoned


@dataclass(eq=False)
class ModuleScope:
    """The definitions of a file. `name` is empty for the program itself; `trusted` files may say `__op`."""

    name: str
    node: ast.Module
    trusted: bool
    names: dict[str, Entity] = field(default_factory=dict)

    def qualified(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name and self.name != "prelude" else name


# ---------------------------------------------------------------- scopes inside a function


@dataclass(frozen=True)
class Variable:
    local: typed.Local


@dataclass(frozen=True)
class DimensionName:
    """A dimension variable (or another known `i64`) that a body may read."""

    dim: Dim


@dataclass(frozen=True)
class TypeName:
    """A type parameter in an instance: what it stands for here."""

    type: Type


@dataclass(frozen=True)
class FunctionName:
    """A parameter of function type, or a `let` that names a function."""

    value: FunctionValue


Entry = Variable | DimensionName | TypeName | FunctionName | Poisoned


class Kind(Enum):
    FUNCTION = "function"
    BLOCK = "block"
    COMPREHENSION = "comprehension"
    LAMBDA = "anonymous function"


@dataclass(eq=False)
class Scope:
    parent: Scope | None
    kind: Kind = Kind.BLOCK
    names: dict[str, Entry] = field(default_factory=dict)

    def lookup(self, name: str) -> Entry | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def barrier(self, name: str) -> Kind | None:
        """The kind of the first comprehension or anonymous function between here and the binding of the name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            if scope.kind in (Kind.COMPREHENSION, Kind.LAMBDA):
                return scope.kind
            scope = scope.parent
        return None

    def innermost(self, *kinds: Kind) -> Kind | None:
        """Which of these kinds of scope is around, the innermost."""
        scope: Scope | None = self
        while scope is not None and scope.kind not in kinds:
            scope = scope.parent
        return scope.kind if scope is not None else None

    def snapshot(self) -> Scope:
        """A scope that finds what this one finds now, whatever is bound in it later."""
        parent = self.parent.snapshot() if self.parent is not None else None
        return Scope(parent, self.kind, dict(self.names))

    def all_names(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.parent


def near(name: str, candidates: Iterator[str] | list[str], cutoff: float = 0.65) -> str:
    """`did you mean ...`, or nothing. Between short names one letter is a big difference."""
    names = sorted(set(candidates))
    cutoff = cutoff if len(name) > 3 else max(cutoff, 0.75)
    small = {n.lower(): n for n in names}
    found = get_close_matches(name, names, 1, cutoff) or [small[n] for n in get_close_matches(name.lower(), small, 1, cutoff)]
    return f"did you mean `{found[0]}`?" if found else ""


def field_help(name: str, fields: list[str]) -> str:
    """For a field that a struct does not have: a near one, or all if they are few."""
    few = f"its fields are {', '.join(f'`{f}`' for f in fields)}" if len(fields) <= 6 else ""
    return near(name, fields) or few
