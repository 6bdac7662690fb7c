"""Signatures of functions, and matching them with arguments: the dimensions and types that a call puts for variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import cast

from tlc.frontend import ast, typed
from tlc.frontend.check.cells import (
    BOUNDS,
    NUMS,
    Cell,
    Mismatch,
    Pattern,
    dims_help,
    elem_of,
    restrict,
    tensor,
    unify,
    unify_elem,
)
from tlc.frontend.dims import Dim, DimVar, linear
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.typed import TypeParam
from tlc.frontend.types import REALS, FunctionType, StructType, TensorType, TupleType, Type


@dataclass(frozen=True)
class Parameter:
    """`type` is None for a parameter of an anonymous function that takes whatever comes. `dim` is the atom of an `i64` parameter."""

    name: str
    type: Pattern | None
    span: Span = NOWHERE
    default: ast.Expr | None = None
    dim: DimVar | None = None
    doc: str = ""


@dataclass(frozen=True)
class Signature:
    """`fresh` are the dimensions of the result that only the run knows (`?`); `in_types` the atoms that occur in types."""

    type_params: tuple[TypeParam, ...]
    params: tuple[Parameter, ...]
    result: Pattern | None
    fresh: tuple[DimVar, ...] = ()
    dims: tuple[DimVar, ...] = ()
    in_types: frozenset[DimVar] = frozenset()


@dataclass
class Bindings:
    """What stands for the variables of a signature at one call. An element type is bound as a scalar type."""

    dims: dict[DimVar, Dim] = field(default_factory=dict)
    types: dict[TypeParam, Type] = field(default_factory=dict)
    later: list[tuple[Dim, Dim]] = field(default_factory=list)  # compound terms: compared when all variables are bound


def match(pattern: Pattern, type: Type, binds: Bindings, bindable: frozenset[DimVar] | set[DimVar]) -> None:
    """Bind the variables of a pattern (those dimensions in `bindable`, every type parameter) so that it equals the type."""
    match pattern, type:
        case TypeParam(), _:
            bound = binds.types.get(pattern)
            if bound is None:
                if pattern.bound == "tree" and not is_tree(type):
                    raise Mismatch(f"`{pattern.name}` stands for a struct or tuple of tensors")
                binds.types[pattern] = type
            else:
                unify(bound, type)
        case TensorType(), _ if whole_of(pattern) is not None:
            if not isinstance(type, TensorType | StructType):
                raise Mismatch("an array of tuples is a tuple of arrays")
            count = len(pattern.dims)
            if len(type.dims) < count:
                raise Mismatch()
            match_dims(pattern.dims, type.dims[:count], binds, bindable)
            match(cast(TypeParam, whole_of(pattern)), strip(type, count), binds, bindable)
        case TensorType(), TensorType():
            elem = elem_of(pattern)
            if len(pattern.dims) != len(type.dims):
                raise Mismatch()
            if isinstance(elem, TypeParam):
                known = binds.types.get(elem)
                if known is None:
                    restrict(elem_of(type), BOUNDS.get(elem.bound, NUMS))
                    binds.types[elem] = tensor(elem_of(type))
                else:
                    assert isinstance(known, TensorType)
                    unify_elem(elem_of(known), elem_of(type))
            else:
                unify_elem(elem, elem_of(type))
            match_dims(pattern.dims, type.dims, binds, bindable)
        case StructType(), StructType():
            if pattern.decl is not type.decl or len(pattern.dims) != len(type.dims):
                raise Mismatch()
            match_dims(pattern.dims, type.dims, binds, bindable)
            for p, a in zip(pattern.args, type.args, strict=True):
                if isinstance(p, Dim) and isinstance(a, Dim):
                    match_dims((p,), (a,), binds, bindable)
                elif not isinstance(p, Dim) and not isinstance(a, Dim):
                    match(p, a, binds, bindable)
        case TupleType(), TupleType():
            if len(pattern.items) != len(type.items):
                raise Mismatch()
            for i, t in zip(pattern.items, type.items, strict=True):
                match(i, t, binds, bindable)
        case FunctionType(), FunctionType():
            for p1, p2 in zip(pattern.params, type.params, strict=True):
                match(p1, p2, binds, bindable)
            match(pattern.result, type.result, binds, bindable)
        case _:
            raise Mismatch()


def match_dims(pattern: tuple[Dim, ...], dims: tuple[Dim, ...], binds: Bindings, bindable: frozenset[DimVar] | set[DimVar]) -> None:
    for p, d in zip(pattern, dims, strict=True):
        atom = p.atom
        if isinstance(atom, DimVar) and atom in bindable:
            known = binds.dims.setdefault(atom, d)
            if known != d:
                raise Mismatch(f"`{atom}` is both `{known}` and `{d}`", dims_help(known, d), (known, d), atom)
        elif any(a in bindable for a in p.atoms()):
            binds.later.append((p, d))
        elif p != d:
            raise Mismatch(f"`{p}` is wanted, `{d}` found", dims_help(p, d), (p, d))


def finish(binds: Bindings, bindable: frozenset[DimVar] | set[DimVar]) -> None:
    """Compare the compound dimensions. A variable that is still unknown is solved for where it stands alone with a factor."""
    pending = list(binds.later)
    while pending:
        # One with no more than one unknown; if there is none, the first says what is wrong.
        pattern, dim = next((pair for pair in pending if len(_unknown(pair[0], binds, bindable)) <= 1), pending[0])
        pending.remove((pattern, dim))
        unknown = _unknown(pattern, binds, bindable)
        term = pattern.substitute(binds.dims.get)
        if len(unknown) == 1:
            binds.dims[unknown[0]] = _solve(term, unknown[0], dim)
            term = term.substitute(binds.dims.get)
        if term != dim:
            raise Mismatch(f"`{pattern}` is `{term}` here, `{dim}` found", dims_help(term, dim), (term, dim))
    binds.later.clear()


def _unknown(term: Dim, binds: Bindings, bindable: frozenset[DimVar] | set[DimVar]) -> list[DimVar]:
    """The variables of a pattern's term that are still to be bound."""
    return [a for a in dict.fromkeys(term.atoms()) if a in bindable and a not in binds.dims]


def _solve(term: Dim, atom: DimVar, value: Dim) -> Dim:
    """The variable in term = value, where the division is exact."""
    split = linear(term, atom)
    if split is not None:
        factor, rest = split
        solution = (value - rest) // factor
        if solution * factor + rest == value:
            return solution
    raise Mismatch(f"`{atom}` cannot be found from `{term}` = `{value}`")


def substitute(pattern: Pattern, binds: Bindings) -> Type:
    """The pattern with the bound variables replaced; an element parameter that nothing binds becomes open."""
    match pattern:
        case TypeParam():
            return binds.types[pattern]
        case TensorType():
            elem = elem_of(pattern)
            dims = tuple(d.substitute(binds.dims.get) for d in pattern.dims)
            whole = whole_of(pattern)
            if whole is not None:
                return typed.with_dims(dims, binds.types[whole])
            if isinstance(elem, TypeParam):
                bound = binds.types.get(elem)
                if bound is None:
                    bound = binds.types[elem] = tensor(Cell(BOUNDS.get(elem.bound, REALS)))
                assert isinstance(bound, TensorType)
                return tensor(elem_of(bound), dims)
            return tensor(elem, dims)
        case StructType():
            args = tuple(a.substitute(binds.dims.get) if isinstance(a, Dim) else substitute(a, binds) for a in pattern.args)
            return StructType(pattern.decl, args, tuple(d.substitute(binds.dims.get) for d in pattern.dims))
        case TupleType():
            return TupleType(tuple(substitute(i, binds) for i in pattern.items))
        case FunctionType():
            return FunctionType(tuple(substitute(p, binds) for p in pattern.params), substitute(pattern.result, binds))


def known(type: Pattern, binds: Bindings) -> Pattern:
    """The pattern with the dimensions and the types that are known by now, for messages."""

    def put(d: Dim) -> Dim:
        return d.substitute(binds.dims.get)

    match type:
        case TensorType():
            found = binds.types.get(type.elem) if isinstance(type.elem, TypeParam) else None
            dims = tuple(map(put, type.dims))
            return tensor(elem_of(found), dims) if isinstance(found, TensorType) and not found.dims else TensorType(type.elem, dims)
        case StructType():
            return StructType(type.decl, tuple(put(a) if isinstance(a, Dim) else a for a in type.args), tuple(map(put, type.dims)))
        case TypeParam():
            return binds.types.get(type, type)
        case _:
            return type


def dims_of_type(pattern: Pattern) -> list[DimVar]:
    """The variables that occur in a type, in order, each once."""
    return list(dict.fromkeys(a for d in dim_terms(pattern, functions=True) for a in d.atoms()))


def dim_terms(pattern: Pattern, functions: bool = False) -> Iterator[Dim]:
    """The dimensions of a type, in order; those of function types only if asked for."""
    match pattern:
        case TensorType():
            yield from pattern.dims
        case StructType():
            for a in pattern.args:
                if isinstance(a, Dim):
                    yield a
                else:
                    yield from dim_terms(a, functions)
            yield from pattern.dims
        case TupleType():
            for i in pattern.items:
                yield from dim_terms(i, functions)
        case FunctionType() if functions:
            for p in pattern.params:
                yield from dim_terms(p, functions)
            yield from dim_terms(pattern.result, functions)
        case _:
            pass


def whole_of(pattern: Pattern | None) -> TypeParam | None:
    """`T` of `T[n]` where it stands for whole types (`any`, `tree`): an array of them, written as a tensor of elements `T`."""
    elem = elem_of(pattern) if isinstance(pattern, TensorType) else None
    return elem if isinstance(elem, TypeParam) and elem.bound not in BOUNDS else None


def rank_of(pattern: Pattern) -> int:
    """Leading dimensions of a value: the rank of a tensor, those of a struct array."""
    return len(pattern.dims) if isinstance(pattern, TensorType | StructType) else 0


def is_tree(type: Type) -> bool:
    return isinstance(type, StructType | TupleType)


def strip(type: Type, count: int) -> Type:
    """The type without its first `count` dimensions."""
    match type:
        case TensorType():
            return TensorType(type.elem, type.dims[count:])
        case StructType():
            return StructType(type.decl, type.args, type.dims[count:])
        case _:
            assert count == 0
            return type


def as_type(pattern: Pattern) -> Type:
    """A pattern that is known to be a type, for places that store either."""
    return cast(Type, pattern)


def struct_pattern(decl: typed.StructDecl, dims: tuple[Dim, ...] = ()) -> StructType:
    """The struct with its own parameters as arguments."""
    args = tuple(Dim.var(p) if isinstance(p, DimVar) else param_type(p) for p in decl.params)
    return StructType(decl, args, dims)


def param_type(p: TypeParam) -> Type:
    """What a bare type parameter means as a type: an element type's scalar, or the whole."""
    return tensor(p) if p.bound in BOUNDS else cast(Type, p)
