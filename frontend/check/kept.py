"""What a session of the REPL keeps between its entries: definitions, variables, functions that a `let` names, keys that are used up.

A value itself lies outside of the checker, in a slot, as its leaves. Its type has a number for each dimension, since the value is
there, so the next entry knows all shapes. Every entry is checked by a new `Session`, which reads the definitions again; the
structs in kept types then become those of that session, by name. A variable whose struct is another one by now is lost.

All is immutable: an entry makes a new `State`, and one that fails leaves the old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count
from typing import TYPE_CHECKING

from tlc.frontend import ast, typed
from tlc.frontend.check.instances import freshen
from tlc.frontend.check.scope import StructEntity
from tlc.frontend.check.signature import Bindings, dims_of_type, finish, match, substitute
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.typed import StructDecl, leaf_types
from tlc.frontend.types import FunctionType, StructType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.session import Session

KeyPlace = tuple[int, tuple[int | Dim, ...]]  # a slot and the way to a key in its value: `keys.Place` across entries

new_slot = count(1).__next__


@dataclass(frozen=True)
class KeptValue:
    """A variable.

    `known`: the value of an immutable `i64`, which is a dimension term. `pattern`: the declared type of a `var` with `?`, whose
    `wilds` are free. `alias`: the key that a `let` is another name of.
    """

    slot: int
    type: Type
    mutable: bool = False
    known: int | None = None
    pattern: Type | None = None
    wilds: frozenset[DimVar] = frozenset()
    alias: KeyPlace | None = None
    span: Span = NOWHERE  # where it is bound


@dataclass(frozen=True)
class KeptFunction:
    """A `let` that names a function: the expression, and what its names meant there."""

    node: ast.Expr
    captures: Mapping[str, Kept]


Kept = KeptValue | KeptFunction


@dataclass(frozen=True)
class State:
    """What an entry finds. A later definition takes the place of an earlier one of its name."""

    definitions: Mapping[str, ast.Definition] = field(default_factory=dict)
    names: Mapping[str, Kept] = field(default_factory=dict)
    used: Mapping[KeyPlace, Span] = field(default_factory=dict)

    def slots(self) -> set[int]:
        """The slots that may be read again."""
        return {value.slot for value in values_in(self.names)}


def values_in(names: Mapping[str, Kept]) -> Iterator[KeptValue]:
    """The variables, and those that functions captured."""
    for kept in names.values():
        if isinstance(kept, KeptValue):
            yield kept
        else:
            yield from values_in(kept.captures)


def name_of(definition: ast.Definition) -> str:
    return definition.alias if isinstance(definition, ast.Use) else definition.name


# ---------------------------------------------------------------- types of values that are there


def concrete(type: Type, shapes: Sequence[tuple[int, ...]]) -> Type:
    """The type of a value whose leaves have these shapes: a number for each dimension."""
    open = freshen(type)
    dims: dict[DimVar, Dim] = {}
    for leaf, shape in zip(leaf_types(open), shapes, strict=True):
        for dim, extent in zip(leaf.dims, shape, strict=True):
            if isinstance(dim.atom, DimVar):
                dims[dim.atom] = Dim.const(extent)
    return substitute(open, Bindings(dims=dims))


def known_but(pattern: Type, wilds: frozenset[DimVar], type: Type) -> Type:
    """A declared type with `?`, all its dimensions but those from the type of its value."""
    binds = Bindings()
    free = frozenset(dims_of_type(pattern))
    match(pattern, type, binds, free)
    finish(binds, free)
    return substitute(pattern, Bindings(dims={v: d for v, d in binds.dims.items() if v not in wilds}))


# ---------------------------------------------------------------- types in another session


class Changed(Exception):
    """A struct is not there any more, or is another one."""


def renewed(type: Type, session: Session) -> Type:
    """A kept type with the structs of this session. Raises Changed."""
    new = _renewed(type, session)
    if not _alike(type, new):
        raise Changed
    return new


def _renewed(type: Type, session: Session) -> Type:
    match type:
        case StructType():
            decl = _struct(type.decl, session)
            if len(decl.params) != len(type.args):
                raise Changed
            return StructType(decl, tuple(a if isinstance(a, Dim) else _renewed(a, session) for a in type.args), type.dims)
        case TupleType():
            return TupleType(tuple(_renewed(i, session) for i in type.items))
        case TensorType() | FunctionType():
            return type


def _struct(old: StructDecl, session: Session) -> StructDecl:
    """The struct of this name, of the session's own entries or of the same file."""
    module, dot, _ = old.name.partition(".")
    if dot:
        session.library(module)
    for scope in (*session.own, *session.libraries.values()):
        for entity in scope.names.values():
            if (
                isinstance(entity, StructEntity)
                and entity.decl.name == old.name
                and (scope is session.root or _file(entity.decl) == _file(old))
            ):
                return entity.decl
    raise Changed


def _file(decl: StructDecl) -> str:
    return decl.span.source.path


def _alike(old: Type, new: Type) -> bool:
    """Whether values of both types consist of the same leaves, under the same names."""
    match old, new:
        case StructType(), StructType():
            names = [f.name for f in old.decl.fields], [f.name for f in new.decl.fields]
            if names[0] != names[1] or any(isinstance(a, Dim) != isinstance(b, Dim) for a, b in zip(old.args, new.args, strict=True)):
                return False
            return all(map(_alike, typed.field_types(old), typed.field_types(new)))
        case TupleType(), TupleType():
            return len(old.items) == len(new.items) and all(map(_alike, old.items, new.items))
        case _:
            return old == new
