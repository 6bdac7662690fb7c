"""The AST: what the parser read, nothing decided. Frozen dataclasses, a span each; names are still strings.

A name in expression position may be qualified: `nn.linear` parses as `Field(Name("nn"), "linear")`, in a type as one
dotted string.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tlc.frontend.records import dataclass, field_names
from tlc.frontend.source import Source, Span


@dataclass(frozen=True, kw_only=True)
class Node:
    span: Span = field(compare=False, repr=False)


# ---------------------------------------------------------------- types


@dataclass(frozen=True)
class Wild(Node):
    """`?` (name empty) or `?n`: a dimension that only the run knows."""

    name: str


@dataclass(frozen=True)
class TypeName(Node):
    """`f32[n, 4]`, `nn.Linear(784, H)[L]`, `P`. `args` is None without parentheses; arguments are types or dimension expressions."""

    name: str
    args: tuple[TypeArg, ...] | None
    dims: tuple[Expr | Wild, ...]


@dataclass(frozen=True)
class TupleTypeNode(Node):
    items: tuple[TypeNode, ...]


@dataclass(frozen=True)
class FunctionTypeNode(Node):
    params: tuple[TypeNode, ...]
    result: TypeNode | None


TypeNode = TypeName | TupleTypeNode | FunctionTypeNode
# In `Adam(Mlp)` or `Linear(I, 2 * O)` a bare name may be either; it parses as a TypeName without args and dims.


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Number(Node):
    """`42`, `1.5`, `7i32`. `suffix` is the element type written, or empty."""

    value: int | float
    suffix: str


@dataclass(frozen=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True)
class Hole(Node):
    expr: Expr
    spec: str


@dataclass(frozen=True)
class Str(Node):
    """Literal pieces (escapes done) and interpolations."""

    pieces: tuple[str | Hole, ...]


@dataclass(frozen=True)
class Name(Node):
    name: str


@dataclass(frozen=True)
class Unary(Node):
    """`op`: - ~ not"""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Binary(Node):
    """`op`: + - * / // % ** @ << >> & ^ | == != < <= > >= and or. `op_span` is the operator's place."""

    op: str
    left: Expr
    right: Expr
    op_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class As(Node):
    """`x as f32[b, 784]`"""

    value: Expr
    type: TypeNode


@dataclass(frozen=True)
class Argument(Node):
    name: str  # empty: by position
    value: Expr


@dataclass(frozen=True)
class Call(Node):
    callee: Expr
    args: tuple[Argument, ...]


@dataclass(frozen=True)
class Field(Node):
    base: Expr
    name: str
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class SliceNode(Node):
    """`a..b` in a subscript; both ends None is `:`"""

    lo: Expr | None
    hi: Expr | None


@dataclass(frozen=True)
class Ellipsis(Node):
    pass


@dataclass(frozen=True)
class Subscript(Node):
    base: Expr
    items: tuple[Expr | SliceNode | Ellipsis, ...]


@dataclass(frozen=True)
class IndexRange(Node):
    """`i`, `i < n` (lo None) or `i in a..b`. Bare: both None."""

    name: str
    lo: Expr | None
    hi: Expr | None


@dataclass(frozen=True)
class Comprehension(Node):
    """`for[...] body` (op `for`) or a reduction `sum[...] body`."""

    op: str
    indices: tuple[IndexRange, ...]
    body: Expr


@dataclass(frozen=True)
class Lambda(Node):
    """`fn(x, y: f32) => body`"""

    params: tuple[Param, ...]
    body: Expr


@dataclass(frozen=True)
class IfExpr(Node):
    cond: Expr
    then: Block
    other: Block | IfExpr | None


@dataclass(frozen=True)
class Block(Node):
    """`{ ... }`: the last statement, if an expression statement, is the value."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True)
class TupleExpr(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class ListExpr(Node):
    items: tuple[Expr, ...]


Expr = (
    Number | Bool | Str | Name | Unary | Binary | As | Call | Field | Subscript | Comprehension | Lambda | IfExpr | Block | TupleExpr
    | ListExpr
)  # fmt: skip
TypeArg = TypeNode | Expr | Wild


# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class Target(Node):
    """What `let` and `var` bind: a name, or a tuple of targets (`name` empty)."""

    name: str
    items: tuple[Target, ...]


@dataclass(frozen=True)
class Binding(Node):
    """`let` or `var`, with an optional type."""

    mutable: bool
    target: Target
    type: TypeNode | None
    value: Expr


@dataclass(frozen=True)
class Assignment(Node):
    """`target op= value`; `op` is empty for `=`. The target is a Name, Field, Subscript or TupleExpr of them."""

    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True)
class ExprStmt(Node):
    expr: Expr


@dataclass(frozen=True)
class While(Node):
    cond: Expr
    body: Block


@dataclass(frozen=True)
class RangeExpr(Node):
    """`a..b by s` after `in`."""

    lo: Expr
    hi: Expr
    step: Expr | None


@dataclass(frozen=True)
class Progress(Node):
    """`progress(a..b, label, note)` after `in`."""

    range: RangeExpr
    label: Expr | None
    note: Expr | None


@dataclass(frozen=True)
class For(Node):
    target: Target
    sequence: RangeExpr | Progress | Expr
    body: Block


@dataclass(frozen=True)
class Break(Node):
    pass


@dataclass(frozen=True)
class Continue(Node):
    pass


@dataclass(frozen=True)
class Return(Node):
    value: Expr | None


@dataclass(frozen=True)
class Assert(Node):
    cond: Expr
    message: Expr | None


Stmt = Binding | Assignment | ExprStmt | While | For | Break | Continue | Return | Assert


# ---------------------------------------------------------------- definitions


@dataclass(frozen=True)
class Param(Node):
    """A parameter of a function, lambda or struct field list. `type` is None only in a lambda."""

    name: str
    type: TypeNode | None
    default: Expr | None
    doc: str


@dataclass(frozen=True)
class TypeVariable(Node):
    """`T: float` in `fn f[T: float](...)`, `P: tree` or `I` (bound empty) in `struct S(I, P: tree)`."""

    name: str
    bound: str


@dataclass(frozen=True)
class Function(Node):
    """`name_span` is where a message about the function points. `body` is None for `extern fn`. `rule` is the function of `@vjp(g)`."""

    name: str
    name_span: Span = field(compare=False, repr=False)
    type_vars: tuple[TypeVariable, ...]
    params: tuple[Param, ...]
    result: TypeNode | None
    body: Expr | None
    extern: bool
    rule: Expr | None
    doc: str


@dataclass(frozen=True)
class StructDef(Node):
    name: str
    name_span: Span = field(compare=False, repr=False)
    params: tuple[TypeVariable, ...]
    fields: tuple[Param, ...]
    doc: str


@dataclass(frozen=True)
class ConstDef(Node):
    name: str
    name_span: Span = field(compare=False, repr=False)
    type: TypeNode | None
    value: Expr
    doc: str


@dataclass(frozen=True)
class Use(Node):
    """`use nn`, `use ./model`, `use nn as layers`. `path` as written; `alias` is the name it gets."""

    path: str
    alias: str


Definition = Function | StructDef | ConstDef | Use


@dataclass(frozen=True, eq=False)
class Module:
    """A file: definitions in order, and top-level statements (a script)."""

    source: Source
    definitions: tuple[Definition, ...]
    stmts: tuple[Stmt, ...]
    doc: str


# ---------------------------------------------------------------- walks


def walk(*nodes: Node | None) -> Iterator[Node]:
    """Nodes and all in them, outer before inner, in the order of the text."""
    work = [n for n in reversed(nodes) if n is not None]
    while work:
        node = work.pop()
        yield node
        work += reversed(children(node))


def children(node: Node) -> list[Node]:
    """The nodes directly in a node."""
    return _nodes(tuple([getattr(node, name) for name in field_names(type(node))]))


def _nodes(values: tuple[object, ...]) -> list[Node]:
    found: list[Node] = []
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += _nodes(value)
    return found


def names_in(*nodes: Node | None) -> Iterator[str]:
    """The names that expressions mention."""
    return (n.name for n in walk(*nodes) if isinstance(n, Name))


def names_of_all(*nodes: Node | None) -> Iterator[str]:
    """The names in expressions and types: in `Linear(I, O)` a bare dimension looks like a type."""
    return (n.name for n in walk(*nodes) if isinstance(n, Name | TypeName))
