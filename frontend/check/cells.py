"""Open element types, and types with holes: what inference works on.

While a function is checked, the `elem` of a tensor type is one of three things:

    Elem        known
    Cell        open: a literal, or a generic result, whose element type other uses in the same function fix
    TypeParam   `T` of a signature; never in the type of an expression, because bodies are checked per instance

and where a type may stand, a signature may have a `TypeParam` (`P: tree`). The classes of `frontend/types.py` do not know
this: `tensor` and `elem_of` are the two doors, and `zonk.py` leaves no cell behind.
"""

from __future__ import annotations

from typing import cast

from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import TypeParam, leaf_types
from tlc.frontend.types import INTS, REALS, Elem, FunctionType, StructType, TensorType, TupleType, Type

NUMS = INTS + REALS
NEVER = FunctionType((), TupleType(()))  # the type of what never ends; compared by identity
BOUNDS: dict[str, tuple[Elem, ...]] = {"float": REALS, "int": INTS, "num": NUMS}  # bounds that range over element types


class Cell:
    """An open element type: the element types that are still possible. Mutable; two cells that must agree are linked."""

    __slots__ = ("allowed", "link", "preferred")

    def __init__(self, allowed: tuple[Elem, ...], preferred: Elem = Elem.I64) -> None:
        self.allowed = allowed
        self.preferred = preferred
        self.link: Elem | Cell | None = None

    @property
    def default(self) -> Elem:
        """What it becomes if nothing fixes it: `i64` or `f32` (`zeros(3)` prefers `f32`)."""
        return next((e for e in (self.preferred, Elem.I64, Elem.F32) if e in self.allowed), self.allowed[0])

    def __str__(self) -> str:
        if isinstance(self.link, Elem):
            return str(self.link)
        root = resolve(self)
        return str(root.default) if isinstance(root, Cell) else str(root)


Element = Elem | Cell | TypeParam
Pattern = Type | TypeParam  # a type in a signature


class Mismatch(Exception):
    """Two types do not fit; `reason` says what disagrees, `help` proposes a mend.

    `dims` are the dimensions that disagree, for labels that say where they came from; `atom` the variable of a signature that has both.
    """

    def __init__(self, reason: str = "", help: str = "", dims: tuple[Dim, ...] = (), atom: DimVar | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help
        self.dims = dims
        self.atom = atom

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.reason,) if self.reason else ()

    def origins(self, *beside: Span) -> tuple[Label, ...]:
        """Where the dimensions that disagree came from, except for what is marked already."""
        atoms = dict.fromkeys(a for d in self.dims for a in d.atoms())
        return tuple(Label(a.span, f"`{a.name}` comes from here") for a in atoms if a.span.source.text and a.span not in beside)


def tensor(elem: Element, dims: tuple[Dim, ...] = ()) -> TensorType:
    """A tensor type whose element type may be open or a parameter."""
    return TensorType(cast(Elem, elem), dims)


def elem_of(type: TensorType) -> Element:
    """The element type, links followed."""
    return resolve(cast(Element, type.elem))


def known_elem(type: TensorType) -> Elem | None:
    """The element type, if it is fixed."""
    elem = elem_of(type)
    return elem if isinstance(elem, Elem) else None


def resolve(elem: Element) -> Element:
    """Follow the links; those on the way then lead to the end, so that long chains (the rows of a literal) stay cheap."""
    end = elem
    while isinstance(end, Cell) and end.link is not None:
        end = end.link
    while isinstance(elem, Cell) and elem.link is not None and elem.link is not end:
        elem.link, elem = end, elem.link  # type: ignore[assignment]
    return end


def could_be(type: Type, among: tuple[Elem, ...]) -> bool:
    """Whether this is a tensor whose element type is, or may become, one of these."""
    if not isinstance(type, TensorType):
        return False
    elem = elem_of(type)
    return elem in among if isinstance(elem, Elem) else isinstance(elem, Cell) and any(e in among for e in elem.allowed)


def is_real(type: Type) -> bool:
    """Whether this is a tensor of reals: known to be, or open and (so far) able to be nothing else, or real by default."""
    if not isinstance(type, TensorType):
        return False
    elem = elem_of(type)
    return elem.is_real if isinstance(elem, Elem) else isinstance(elem, Cell) and elem.default.is_real


def has_real(type: Type) -> bool:
    """Whether a leaf of a type consists of reals."""
    return any(map(is_real, leaf_types(type)))


def restrict(elem: Element, allowed: tuple[Elem, ...]) -> None:
    """Say that an element type is one of these."""
    elem = resolve(elem)
    if isinstance(elem, Cell):
        rest = tuple(e for e in elem.allowed if e in allowed)
        if not rest:
            raise Mismatch(f"`{elem}` does not fit")
        if len(rest) == 1:
            elem.link = rest[0]
        elem.allowed = rest
    elif isinstance(elem, Elem) and elem not in allowed:
        raise Mismatch(f"`{elem}` does not fit")


def unify_elem(a: Element, b: Element) -> Element:
    """Make two element types equal."""
    a, b = resolve(a), resolve(b)
    if a is b:
        return a
    if isinstance(a, Cell) and isinstance(b, Cell):
        rest = tuple(e for e in a.allowed if e in b.allowed)
        if not rest:
            raise Mismatch(f"`{a}` and `{b}` differ")
        a.link = b
        b.allowed = rest
        if a.preferred is Elem.F32:
            b.preferred = Elem.F32
        return b
    if isinstance(a, Cell) and isinstance(b, Elem):
        a, b = b, a
    if isinstance(b, Cell) and isinstance(a, Elem):
        if a not in b.allowed:
            raise Mismatch(f"`{a}` and `{b}` differ")
        b.link = a
        return a
    raise Mismatch(f"`{a}` and `{b}` differ", conversion_help(a, b))


def conversion_help(wanted: Element, found: Element) -> str:
    if isinstance(wanted, Elem) and wanted.is_num and isinstance(found, Elem) and (found.is_num or found is Elem.BOOL):
        return f"convert with `{wanted}(...)`"
    return ""


def unify(a: Type, b: Type) -> None:
    """Make two types equal: dimensions must be provably equal, open element types are fixed. Raises `Mismatch`."""
    match a, b:
        case TensorType(), TensorType():
            if len(a.dims) != len(b.dims):
                raise Mismatch(f"{_dimensions(len(a.dims))} against {_dimensions(len(b.dims))}")
            unify_elem(elem_of(a), elem_of(b))
            unify_dims(a.dims, b.dims)
        case StructType(), StructType():
            if a.decl is not b.decl or len(a.dims) != len(b.dims):
                raise Mismatch()
            unify_dims(a.dims, b.dims)
            for x, y, p in zip(a.args, b.args, a.decl.params, strict=True):
                if isinstance(x, Dim) and isinstance(y, Dim):
                    if x != y:
                        raise Mismatch(f"`{p.name}` is `{x}` on one side and `{y}` on the other", "", (x, y))
                elif not isinstance(x, Dim) and not isinstance(y, Dim):
                    unify(x, y)
        case TupleType(), TupleType():
            if len(a.items) != len(b.items):
                raise Mismatch(f"{len(a.items)} items against {len(b.items)}")
            for t, u in zip(a.items, b.items, strict=True):
                unify(t, u)
        case FunctionType(), FunctionType():
            if len(a.params) != len(b.params):
                raise Mismatch()
            for t, u in zip(a.params, b.params, strict=True):
                unify(t, u)
            unify(a.result, b.result)
        case _:
            raise Mismatch()


def unify_dims(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> None:
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            raise Mismatch(f"dimension {k} is `{x}` on one side and `{y}` on the other", dims_help(x, y), (x, y))


def dims_help(a: Dim, b: Dim) -> str:
    """The cast that is worth proposing where two dimensions are not known to differ."""
    return "" if (a - b).value is not None else "if they are always equal, say so with `x as f32[...]`: it is checked when the program runs"


def _dimensions(n: int) -> str:
    return "a scalar" if n == 0 else "1 dimension" if n == 1 else f"{n} dimensions"
