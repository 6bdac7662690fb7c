"""Rewriting of scalar instructions by rules that are data on both sides.

A pattern is a tree of op names over variables; a variable stands for one value, wherever it occurs, and may be asked to be
a constant. The right side is a variable, a constant, or a tree of ops. `opt/rules.py` holds the rules.

    rule("(x + c) + d = x + (c + d), integers", op("add", op("add", X, C), D), op("add", X, op("add", C, D)), INT)

Commutative ops are matched in both orders. An op whose operands are all constants is evaluated while the right side is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import DTYPES, SCALAR_OPS, Literal, bits, evaluate, literal
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.edit import insert_before
from tlc.ssa.ir import Instr, Type, Value, const_of


@dataclass(frozen=True)
class Var:
    """Any value; with `constant`, only the result of a `const`; with `elems`, only one of these element types."""

    name: str
    constant: bool = False
    elems: tuple[Elem, ...] = ()


@dataclass(frozen=True)
class Lit:
    """The constant with this value, in the type that its place asks for."""

    value: Literal


@dataclass(frozen=True)
class Tree:
    """An op of patterns. Of `convert` the target must be given on the right side, so rules do not make one."""

    op: str
    args: tuple[Pattern, ...]


Pattern = Var | Lit | Tree
Bindings = dict[str, Value]


def op(name: str, *args: Pattern) -> Tree:
    assert SCALAR_OPS[name].arity == len(args), name
    return Tree(name, args)


@dataclass(frozen=True)
class Rule:
    """`left` becomes `right` where the element type of the operands is one of `elems`. `equation` is for people."""

    equation: str
    left: Tree
    right: Pattern
    elems: tuple[Elem, ...]


def same_literal(a: Literal | None, b: Literal, elem: Elem) -> bool:
    """Equal in every bit."""
    return a is not None and bits(a, elem) == bits(b, elem)


def constant(op: str, elem: Elem, known: Sequence[Literal | None], operands: Sequence[Value]) -> Literal | None:
    """The value of a scalar op whose operands are constants: `known` are those. Narrow reals are computed in f32 and rounded by the stage
    that knows how; nothing of them is folded here.
    """
    elems = [v.type.elem for v in operands]
    if any(e in NARROW for e in (elem, *elems)) or any(v is None for v in known):
        return None
    return evaluate(op, elem, ((v, e) for v, e in zip(known, elems, strict=True) if v is not None))


_Shape = tuple[str, Elem, bool, tuple[str, ...]]  # op, element type, whether the operands are one value, what makes each operand


class Rewriter:
    """Applies rules to instructions of one block, inserting what the right side needs before them.

    Most instructions fit no rule, and what rules an instruction may fit follows from its op and those of its operands; so that
    is worked out once for each combination.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.candidates: dict[_Shape, tuple[Rule, ...]] = {}

    def rewrite(self, instr: Instr) -> Value | None:
        """The value that the instruction's result may be replaced by, or None if no rule fits."""
        operands = instr.operands
        makers = tuple([v.owner.op if isinstance(v.owner, Instr) else "" for v in operands])
        shape = (instr.op, operands[-1].type.elem, len(operands) > 1 and operands[-2] is operands[-1], makers)
        candidates = self.candidates.get(shape)
        if candidates is None:
            candidates = self.candidates[shape] = tuple(r for r in self.rules if _may_fit(r, shape))
        for rule in candidates:
            for bindings in _match_tree(rule.left, instr, {}):
                return _Right(instr, bindings).build(rule.right, instr.result.type)
        return None


def _may_fit(rule: Rule, shape: _Shape) -> bool:
    op, elem, one_value, makers = shape
    args = rule.left.args
    if rule.left.op != op or elem not in rule.elems:
        return False
    if len(args) > 1 and isinstance(args[-1], Var) and args[-2] == args[-1] and not one_value and makers[-2:] != ("const", "const"):
        return False
    orders = [makers, makers[::-1]] if SCALAR_OPS[op].commutative else [makers]
    return any(all(_may_be(a, maker) for a, maker in zip(args, order, strict=True)) for order in orders)


def _may_be(pattern: Pattern, maker: str) -> bool:
    """Whether a value made by an op may fit a pattern."""
    match pattern:
        case Lit():
            return maker == "const"
        case Var():
            return maker == "const" or not pattern.constant
        case Tree():
            return maker == pattern.op


def _match_tree(pattern: Tree, instr: Instr, bindings: Bindings) -> Iterator[Bindings]:
    if instr.op != pattern.op:
        return
    orders = [instr.operands]
    if SCALAR_OPS[pattern.op].commutative:
        orders.append(instr.operands[::-1])
    for operands in orders:
        yield from _match_all(pattern.args, operands, bindings)


def _match_all(patterns: tuple[Pattern, ...], operands: tuple[Value, ...], bindings: Bindings) -> Iterator[Bindings]:
    if not patterns:
        yield bindings
        return
    for found in _match(patterns[0], operands[0], bindings):
        yield from _match_all(patterns[1:], operands[1:], found)


def _match(pattern: Pattern, value: Value, bindings: Bindings) -> Iterator[Bindings]:
    match pattern:
        case Lit():
            if same_literal(const_of(value), pattern.value, value.type.elem):
                yield bindings
        case Var():
            bound = bindings.get(pattern.name)
            if bound is None:
                fits = not pattern.elems or value.type.elem in pattern.elems
                if fits and (not pattern.constant or const_of(value) is not None):
                    yield {**bindings, pattern.name: value}
            elif bound is value or _same_constant(bound, value):
                yield bindings
        case Tree():
            if isinstance(value.owner, Instr):
                yield from _match_tree(pattern, value.owner, bindings)


def _same_constant(a: Value, b: Value) -> bool:
    literal = const_of(b)
    return literal is not None and a.type == b.type and same_literal(const_of(a), literal, a.type.elem)


class _Right:
    """Builds the right side before an instruction."""

    def __init__(self, instr: Instr, bindings: Bindings) -> None:
        self.instr = instr
        self.bindings = bindings

    def build(self, pattern: Pattern, type: Type) -> Value:
        match pattern:
            case Var():
                return self.bindings[pattern.name]
            case Lit():
                return self.insert("const", (), type, {"value": literal(DTYPES[type.elem].type(pattern.value), type.elem)})
            case Tree():
                args = self.arguments(pattern)
                value = constant(pattern.op, type.elem, [const_of(a) for a in args], args)
                if value is not None:
                    return self.insert("const", (), type, {"value": value})
                return self.insert(pattern.op, args, type, {})

    def arguments(self, tree: Tree) -> tuple[Value, ...]:
        """Operands have the type of the instruction's last operand (rules are of one element type)."""
        return tuple(self.build(a, self.instr.operands[-1].type) for a in tree.args)

    def insert(self, op: str, operands: tuple[Value, ...], type: Type, attrs: dict[str, object]) -> Value:
        return insert_before(self.instr, Instr(op, operands, (type,), attrs, (), self.instr.span)).result
