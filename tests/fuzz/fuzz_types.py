"""The types of generated programs, and what a scope knows. Dimensions are compared by their text: two that are written alike are equal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from meaning import REALS, WIDTHS

INTS = tuple(WIDTHS)
FLOATS = tuple(REALS)


class E(NamedTuple):
    """An expression in both languages. `factors`: of a real product its two factors in Python, because a sum fuses them."""

    tl: str
    py: str
    factors: tuple[str, str] | None = None


@dataclass(frozen=True)
class Dim:
    """`name + plus`; a number where there is no name."""

    name: str = ""
    plus: int = 0

    def __str__(self) -> str:
        if not self.name:
            return str(self.plus)
        return self.name if not self.plus else f"{self.name} {'+' if self.plus > 0 else '-'} {abs(self.plus)}"

    def __add__(self, n: int) -> Dim:
        return Dim(self.name, self.plus + n)


@dataclass(frozen=True)
class Tensor:
    """A scalar where there are no dims."""

    elem: str
    dims: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        return self.elem + (f"[{', '.join(map(str, self.dims))}]" if self.dims else "")


@dataclass(frozen=True)
class Tuple:
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class Declaration:
    """A struct. `param` is its dimension parameter, empty if it has none; a field has it alone as a dimension."""

    name: str
    param: str
    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        head = self.name + (f"({self.param})" if self.param else "")
        return f"struct {head} {{ {', '.join(f'{n}: {t}' for n, t in self.fields)} }}"


@dataclass(frozen=True)
class Struct:
    """An instance; with `dims`, an array of it."""

    declaration: Declaration
    arg: Dim = Dim()
    dims: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        head = self.declaration.name + (f"({self.arg})" if self.declaration.param else "")
        return head + (f"[{', '.join(map(str, self.dims))}]" if self.dims else "")

    @property
    def fields(self) -> list[tuple[str, Type]]:
        table = {self.declaration.param: self.arg} if self.declaration.param else {}
        return [(n, stacked(self.dims, substitute(t, table))) for n, t in self.declaration.fields]


Type = Tensor | Tuple | Struct

I64, BOOL = Tensor("i64"), Tensor("bool")


def substitute(type: Type, table: dict[str, Dim]) -> Type:
    """Dimensions for dimension names."""

    def of(d: Dim) -> Dim:
        return table[d.name] + d.plus if d.name in table else d

    match type:
        case Tensor():
            return Tensor(type.elem, tuple(map(of, type.dims)))
        case Tuple():
            return Tuple(tuple(substitute(i, table) for i in type.items))
        case Struct():
            return Struct(type.declaration, of(type.arg), tuple(map(of, type.dims)))


def stacked(dims: tuple[Dim, ...], type: Type) -> Type:
    """More leading dimensions."""
    match type:
        case Tuple():
            return Tuple(tuple(stacked(dims, i) for i in type.items))
        case _:
            return replace(type, dims=dims + type.dims)


def parts(type: Type) -> list[Type]:
    """The types of the items of a tuple or the fields of a struct."""
    match type:
        case Tuple():
            return list(type.items)
        case Struct():
            return [t for _, t in type.fields]
        case _:
            return []


def leaves(type: Type) -> list[Tensor]:
    return [type] if isinstance(type, Tensor) else [leaf for p in parts(type) for leaf in leaves(p)]


def like(type: Type) -> str:
    """`meaning.Like` of a type, as Python text."""
    if isinstance(type, Tensor):
        return f"({''.join(f'{d}, ' for d in type.dims)})"
    return f"[{', '.join(map(like, parts(type)))}]"


def match_dims(pattern: Type, type: Type, names: frozenset[str]) -> dict[str, Dim] | None:
    """The dimensions for `names` that make `pattern` this type; None if nothing does."""
    found: dict[str, Dim] = {}

    def dim(p: Dim, d: Dim) -> bool:
        if p.name not in names:
            return p == d
        wanted = d + -p.plus
        if not wanted.name and wanted.plus < 0:
            return False
        return found.setdefault(p.name, wanted) == wanted

    def go(p: Type, t: Type) -> bool:
        match p, t:
            case Tensor(), Tensor():
                return p.elem == t.elem and len(p.dims) == len(t.dims) and all(map(dim, p.dims, t.dims))
            case Tuple(), Tuple():
                return len(p.items) == len(t.items) and all(map(go, p.items, t.items))
            case Struct(), Struct():
                same = p.declaration is t.declaration and len(p.dims) == len(t.dims)
                return same and (not p.declaration.param or dim(p.arg, t.arg)) and all(map(dim, p.dims, t.dims))
            case _:
                return False

    return found if go(pattern, type) else None


@dataclass(frozen=True)
class Var:
    """A variable. `level` is how many comprehensions are around it: only there it may be assigned. An index goes over the
    dimension `bound`; a `size` may be a dimension itself (and has one name in both languages).
    """

    tl: str
    py: str
    type: Type
    mutable: bool = False
    level: int = 0
    bound: Dim | None = None
    size: bool = False


@dataclass(frozen=True)
class Function:
    """`names` are its dimension variables; `sizes` those of its parameters that are dimensions; `counts` those that must be small."""

    name: str
    names: frozenset[str]
    params: tuple[tuple[str, Type], ...]
    result: Type
    pure: bool
    sizes: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    weight: int = 1


@dataclass
class Scope:
    """Where code stands. A block copies it."""

    vars: list[Var] = field(default_factory=list)
    closures: list[Function] = field(default_factory=list)
    level: int = 0
    loop: bool = False  # in a loop of this level
    result: Type | None = None  # what `return` gives, where it may stand
    pure: bool = False
    weight: int = 1  # how often this is run, about

    def inner(self, **changes: object) -> Scope:
        return replace(self, vars=list(self.vars), closures=list(self.closures), **changes)  # type: ignore[arg-type]

    @property
    def dims(self) -> list[Dim]:
        """Names that may be dimensions."""
        return [Dim(v.tl) for v in self.vars if v.size]
