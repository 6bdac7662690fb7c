"""Graphs of movement ops (`.uir`): whole tensors, moved, computed element by element and reduced. `parse_movement` reads one.

    # C = A @ B for 4x4 matrices
    %0 = buffer 16 : dtype=f32 slot=0
    %1 = buffer 16 : dtype=f32 slot=1
    %2 = reshape %0, (4, 1, 4)
    %3 = reshape %1, (4, 4)
    %4 = permute %3, (1, 0)
    %5 = reshape %4, (1, 4, 4)
    %6 = mul %2, %5
    %7 = reduce %6 : op=add pop=1

A line defines a value: an op, its arguments (values, numbers, tuples) and, behind a colon, its attributes. `docs/graph.md` lists the ops.
Element-wise ops are the scalar ops of `frontend/ops.py`; their operands are aligned at the right, and an extent of 1 stretches. The
results of a graph are the values that a line `output %a, %b` names, or those that no other reads.

Each line becomes a node of the graph, but for `reshape`, which is a view of what it reshapes; fusion then makes index arithmetic of all
movement. A sum of a product is one chain of fused multiply-adds, as in TL, other sums of reals have sixteen lanes, and narrow reals are
summed in f32. What is padded is not read: the load has a guard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from math import prod

from tlc.frontend.diagnostics import CompileError, Diagnostic, Label
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span
from tlc.frontend.types import Elem
from tlc.ssa.tokens import near
from tlc.tensor.graph.ir import Expr, Graph, Node, Reduction, Tensor, View, acc, axis, const, load, op
from tlc.tensor.graph.movement_text import Attribute, Definition, Name, Number, Output, Tuple, read_lines

# What other notations call an op.
SPELLINGS = {"where": "select", "cast": "convert", "cmplt": "lt", "cmple": "le", "cmpgt": "gt", "cmpge": "ge", "cmpeq": "eq", "cmpne": "ne"}
REDUCERS = {
    "add": "sum", "sum": "sum", "mul": "prod", "prod": "prod", "max": "max", "min": "min", "any": "any", "all": "all",
    "argmax": "argmax", "argmin": "argmin",
}  # fmt: skip
DTYPES = {e.value: e for e in Elem if e not in (Elem.STR, Elem.KEY)}
LARGEST = 1 << 40  # elements of a tensor


@dataclass(frozen=True)
class Value:
    """What a line defines: a tensor, seen in a shape. `factors`: the operands, if it is their product."""

    name: str
    view: View
    shape: tuple[int, ...]
    span: Span
    factors: tuple[Value | Number, ...] = ()

    @property
    def elem(self) -> Elem:
        return self.view.tensor.elem


Argument = Value | Number | Tuple


@dataclass(frozen=True)
class _Line:
    """A definition whose names are resolved."""

    name: str
    op: str
    place: Span  # of the op
    args: tuple[Argument, ...]
    attributes: Mapping[str, Attribute]
    span: Span


class _Unknown(Exception):
    """A line reads a value whose own line was wrong: that has been said."""


def parse_movement(text: str, path: str = "<graph>") -> Graph:
    """The graph of a text, named after its file. Raises `CompileError` with everything that is wrong."""
    return _Reader(Source(path, text)).run()


@dataclass
class _Reader:
    source: Source
    diagnostics: list[Diagnostic] = field(default_factory=list)
    values: dict[str, Value | None] = field(default_factory=dict)  # None: its line is wrong
    read: set[str] = field(default_factory=set)
    outputs: dict[str, None] = field(default_factory=dict)
    slots: dict[int, Span] = field(default_factory=dict)
    buffers: set[str] = field(default_factory=set)
    nodes: dict[Tensor, Node] = field(default_factory=dict)

    def run(self) -> Graph:
        for line in read_lines(self.source):
            try:
                self.line(line)
            except CompileError as error:
                self.diagnostics += error.diagnostics
        if self.diagnostics:
            raise CompileError(self.diagnostics)
        stem = re.sub(r"\W", "_", re.sub(r"\.\w+$", "", self.source.path.rsplit("/", 1)[-1])) or "graph"
        graph = Graph(stem if stem[0].isalpha() else f"g{stem}")
        wanted = self.outputs or [name for name in self.values if name not in self.read | self.buffers]
        results = [v for v in map(self.values.get, wanted) if v is not None]
        if not results:
            raise self.error("E1011", "the graph computes nothing", Span(self.source, 0, len(self.source.text)))
        graph.kept = [self.own(v) for v in results]
        graph.nodes = list(self.nodes.values())
        return graph

    def own(self, v: Value) -> Tensor:
        """A result as a tensor of its own."""
        if v.view.tensor in self.nodes and v.view.shape == v.view.tensor.shape:
            return v.view.tensor
        return self.add(v.name, v.elem, v.shape, read(v, axes(v.shape)), v.span).view.tensor

    # ------------------------------------------------------------ lines

    def line(self, line: Definition | Output | CompileError) -> None:
        match line:
            case CompileError():
                raise line
            case Output(names):
                for name in names:
                    self.value(name)
                    self.outputs[name.text] = None
            case Definition(name):
                before = self.values.get(name.text)
                if name.text in self.values:
                    label = (Label(before.span, "defined here"),) if before else ()
                    raise self.error("E1013", f"`{name.text}` is defined twice", name.span, label)
                self.values[name.text] = None
                with suppress(_Unknown):
                    args = tuple(self.value(a) if isinstance(a, Name) else a for a in line.args)
                    self.values[name.text] = self.define(_Line(name.text, line.op.text, line.op.span, args, line.attributes, line.span))

    def value(self, name: Name) -> Value:
        if name.text not in self.values:
            raise self.error("E1013", f"`{name.text}` is not defined", name.span, help=near(name.text, self.values))
        found = self.values[name.text]
        if found is None:
            raise _Unknown
        self.read.add(name.text)
        return found

    def error(self, code: str, message: str, span: Span, labels: tuple[Label, ...] = (), help: str = "") -> CompileError:
        return CompileError([Diagnostic(code, message, span, labels=labels, help=help)])

    # ------------------------------------------------------------ ops

    def define(self, s: _Line) -> Value:
        name = SPELLINGS.get(s.op, s.op)
        form = MOVEMENT.get(name)
        if form is not None:
            return form(self, s)
        if name in SCALAR_OPS and set(SCALAR_OPS[name].takes) & set(DTYPES.values()):
            return self.elementwise(s, name)
        raise self.error("E1012", f"there is no op `{s.op}`", s.place, help=near(s.op, (*MOVEMENT, *SCALAR_OPS, *SPELLINGS)))

    def add(self, name: str, elem: Elem, shape: Sequence[int], value: Expr, span: Span, reduction: Reduction | None = None) -> Value:
        """A node that gives one element for each index."""
        extents = sizes(shape)
        tensor = Tensor(_plain(name, "v"), elem, extents)
        self.nodes[tensor] = Node((tensor,), extents, (value,), reduction, span=span)
        return Value(name, View(tensor, extents), tuple(shape), span)

    def made(self, s: _Line, x: Value, shape: Sequence[int], value: Expr) -> Value:
        return self.add(s.name, x.elem, shape, value, s.span)

    def buffer(self, s: _Line) -> Value:
        self.known(s, "dtype", "slot")
        self.count(s, 1)
        shape = self.shape(s.args[0])
        slot = self.integer(self.attribute(s, "slot"))
        where = s.attributes["slot"].span
        if slot < 0:
            raise self.error("E1020", f"a slot is a number from 0 on, found {slot}", where)
        if slot in self.slots:
            raise self.error("E1020", f"slot {slot} is taken", where, labels=(Label(self.slots[slot], "by this buffer"),))
        self.slots[slot] = where
        self.buffers.add(s.name)
        tensor = Tensor(f"slot{slot}", self.dtype(s), sizes(shape))
        return Value(s.name, View(tensor, tensor.shape), shape, s.span)

    def const(self, s: _Line) -> Value:
        self.known(s, "dtype")
        self.count(s, 1)
        number = s.args[0]
        if not isinstance(number, Number):
            raise self.error("E1014", "`const` takes a number", number.span)
        return self.add(s.name, self.dtype(s), (), self.literal(number, self.dtype(s)), s.span)

    def reshape(self, s: _Line) -> Value:
        x, arg = self.movement(s)
        shape = self.integers(arg, "the new shape")
        unknown = [k for k, n in enumerate(shape) if n == -1]
        if any(n < -1 for n in shape) or len(unknown) > 1:
            raise self.error("E1019", "an extent is not negative; one may be -1, which the others determine", arg.span)
        size, others = prod(x.shape), prod(n for n in shape if n != -1)
        if unknown:
            if not others or size % others:
                message = f"{_shape(x.shape)} has {size} elements, which {others} does not divide"
                raise self.error("E1017", message, arg.span, labels=_here(x))
            shape[unknown[0]] = size // others
        elif others != size:
            message = f"{_shape(x.shape)} has {size} elements and {_shape(shape)} has {others}"
            raise self.error("E1017", message, arg.span, labels=_here(x))
        return Value(s.name, View(x.view.tensor, sizes(shape)), tuple(shape), s.span)

    def permute(self, s: _Line) -> Value:
        x, arg = self.movement(s)
        order = self.integers(arg, "the order of axes")
        if sorted(order) != list(range(len(x.shape))):
            message = f"{_tuple(order)} is no order of the {_count(x.shape)} of {_shape(x.shape)}"
            raise self.error("E1018", message, arg.span, labels=_here(x))
        shape = [x.shape[k] for k in order]
        return self.made(s, x, shape, read(x, [axis(order.index(k)) for k in range(len(order))]))

    def expand(self, s: _Line) -> Value:
        x, arg = self.movement(s)
        shape = self.integers(arg, "the new shape")
        if len(shape) != len(x.shape):
            message = f"{_shape(x.shape)} has {_count(x.shape)} and {_tuple(shape)} has {len(shape)}"
            raise self.error("E1015", message, arg.span, labels=_here(x))
        shape = [n if m == -1 else m for n, m in zip(x.shape, shape, strict=True)]
        for k, (n, m) in enumerate(zip(x.shape, shape, strict=True)):
            if m < 0 or n not in (1, m):
                message = f"axis {k} of {_shape(x.shape)} has extent {n} and cannot be stretched to {m}: only an extent of 1 can"
                raise self.error("E1015", message, arg.span, labels=_here(x))
        return self.made(s, x, shape, read(x, stretched(x.shape, shape)))

    def pad(self, s: _Line) -> Value:
        x, arg = self.movement(s, "value")
        pairs = self.pairs(arg, x, "(before, after)")
        for k, (low, high) in enumerate(pairs):
            if low < 0 or high < 0:
                raise self.error("E1019", f"the padding of axis {k} is negative; `shrink` cuts off", arg.span)
        given = s.attributes.get("value")
        number = given.value if given else Number(0, s.span)
        if not isinstance(number, Number):
            raise self.error("E1020", "the value of the padding is a number", number.span)
        fill = self.literal(number, x.elem)
        shape = [low + n + high for n, (low, high) in zip(x.shape, pairs, strict=True)]
        if not all(x.shape):
            return self.made(s, x, shape, fill)
        inside: Expr | None = None
        for k, (n, (low, high)) in enumerate(zip(x.shape, pairs, strict=True)):
            tests = [op("ge", axis(k), const(low))] if low else []
            tests += [op("lt", axis(k), const(low + n))] if high else []
            for test in tests:
                inside = test if inside is None else op("and", inside, test)
        at = [op("sub", axis(k), const(low)) for k, (low, _) in enumerate(pairs)]
        value = load(x.view.tensor, at, x.view.shape, inside)
        plain = inside is None or repr(fill.data) in ("0", "0.0", "False")
        return self.made(s, x, shape, value if plain or inside is None else op("select", inside, value, fill))

    def shrink(self, s: _Line) -> Value:
        x, arg = self.movement(s)
        pairs = self.pairs(arg, x, "(start, stop)")
        self.check_bounds(x, [(a, b, 1) for a, b in pairs], arg.span)
        return self.made(s, x, [b - a for a, b in pairs], read(x, [op("add", axis(k), const(a)) for k, (a, _) in enumerate(pairs)]))

    def slice(self, s: _Line) -> Value:
        x, arg = self.movement(s)
        rows = [tuple(self.integers(row, "(start, stop, step)")) for row in self.items(arg, x)]
        for row in rows:
            if len(row) not in (2, 3):
                raise self.error("E1014", f"a slice is (start, stop) or (start, stop, step), found {_tuple(row)}", arg.span)
        steps = [(row[0], row[1], row[2] if len(row) == 3 else 1) for row in rows]
        self.check_bounds(x, steps, arg.span)
        at = [op("add", op("mul", axis(k), const(c)), const(a)) for k, (a, _, c) in enumerate(steps)]
        return self.made(s, x, [-(-(b - a) // c) for a, b, c in steps], read(x, at))

    def check_bounds(self, x: Value, rows: Sequence[tuple[int, int, int]], span: Span) -> None:
        for k, (a, b, c) in enumerate(rows):
            if not 0 <= a <= b <= x.shape[k]:
                message = f"{a} to {b} does not lie in 0 to {x.shape[k]}, the extent of axis {k}"
                raise self.error("E1019", message, span, labels=_here(x))
            if c < 1:
                raise self.error("E1019", f"a step is at least 1, found {c}; `flip` turns an axis around", span)

    def flip(self, s: _Line) -> Value:
        x, arg = self.movement(s)
        turned = [arg.value] if isinstance(arg, Number) and isinstance(arg.value, int) else self.integers(arg, "the axes to turn around")
        for k in turned:
            if not 0 <= k < len(x.shape) or turned.count(k) > 1:
                raise self.error("E1018", f"{k} is no axis of {_shape(x.shape)}, or stands there twice", arg.span, labels=_here(x))
        at = [op("sub", const(n - 1), axis(k)) if k in turned else axis(k) for k, n in enumerate(x.shape)]
        return self.made(s, x, x.shape, read(x, at))

    def elementwise(self, s: _Line, name: str) -> Value:
        row = SCALAR_OPS[name]
        self.known(s, *(["dtype"] if row.gives == "type" else []))
        self.count(s, row.arity)
        operands: list[Value | Number] = []
        for a in s.args:
            if isinstance(a, Tuple):
                raise self.error("E1014", f"`{s.op}` takes values and numbers", a.span)
            operands.append(a)
        typed = operands[1:] if name == "select" else operands
        elem = self.common(s, typed)
        if elem not in row.takes:
            takes = ", ".join(e.value for e in row.takes if e.value in DTYPES)
            raise self.error("E1016", f"`{s.op}` does not take {elem}: it takes {takes}", s.place, labels=_here(*typed))
        if name == "select":
            cond = operands[0]
            if not isinstance(cond, Value) or cond.elem is not Elem.BOOL:
                found = cond.elem if isinstance(cond, Value) else "a number"
                raise self.error("E1016", f"the condition of `{s.op}` is a bool, found {found}", s.place, labels=_here(cond))
        shape = self.broadcast(s, operands)
        elems = [Elem.BOOL if name == "select" and k == 0 else elem for k in range(len(operands))]
        args = [self.operand(a, e, shape) for a, e in zip(operands, elems, strict=True)]
        value = op(name, *args, elem=self.dtype(s) if row.gives == "type" else None)
        if name == "bitcast" and value.elem.width != elem.width:
            raise self.error("E1016", f"{elem} has {elem.width} bits and {value.elem} has {value.elem.width}", s.place)
        out = self.add(s.name, value.elem, shape, value, s.span)
        return Value(out.name, out.view, out.shape, out.span, tuple(operands)) if name == "mul" else out

    def operand(self, a: Value | Number, elem: Elem, shape: tuple[int, ...]) -> Expr:
        """An operand at the axes of a result."""
        if isinstance(a, Number):
            return self.literal(a, elem)
        lead = len(shape) - len(a.shape)
        return read(a, [const(0) if n == 1 else axis(lead + k) for k, n in enumerate(a.shape)])

    def common(self, s: _Line, operands: Sequence[Value | Number]) -> Elem:
        """The element type of all operands; a number takes the type of the others."""
        values = [a for a in operands if isinstance(a, Value)]
        if not values:
            raise self.error("E1014", f"`{s.op}` takes at least one value; `const` makes one of a number", s.place)
        first = values[0]
        for v in values[1:]:
            if v.elem is not first.elem:
                message = f"`{s.op}` of {first.elem} and {v.elem}"
                help = f"convert one of them: `%x = cast {v.name} : dtype={first.elem}`"
                raise self.error("E1016", message, s.place, labels=_here(first, v), help=help)
        return first.elem

    def broadcast(self, s: _Line, operands: Sequence[Value | Number]) -> tuple[int, ...]:
        values = [a for a in operands if isinstance(a, Value)]
        out: list[int] = []
        for k in range(1, max(len(v.shape) for v in values) + 1):
            extents = [(v, v.shape[-k]) for v in values if len(v.shape) >= k]
            long = [(v, n) for v, n in extents if n != 1] or extents
            other = next(((v, n) for v, n in long if n != long[0][1]), None)
            if other is not None:
                shapes = f"{_shape(long[0][0].shape)} and {_shape(other[0].shape)}"
                message = f"{shapes} do not agree: {long[0][1]} and {other[1]}, counted from the right axis {k}"
                raise self.error("E1015", message, s.place, labels=_here(long[0][0], other[0]))
            out.append(long[0][1])
        return tuple(reversed(out))

    def reduce(self, s: _Line) -> Value:
        self.known(s, "op", "pop")
        self.count(s, 1)
        x = s.args[0]
        if not isinstance(x, Value):
            raise self.error("E1014", "`reduce` takes a value", x.span)
        given = self.attribute(s, "op")
        word = given.value.text if isinstance(given.value, Name) else ""
        if word not in REDUCERS:
            help = near(word, REDUCERS) or f"there are {', '.join(REDUCERS)}"
            raise self.error("E1012", f"there is no reducer `{word}`", given.span, help=help)
        reducer = REDUCERS[word]
        pop = self.integer(s.attributes["pop"]) if "pop" in s.attributes else 1
        search = reducer in ("argmax", "argmin")
        if not 1 <= pop <= len(x.shape) or (search and pop > 1):
            message = f"`pop={pop}` reduces so many axes at the end, and {_shape(x.shape)} has {_count(x.shape)}"
            raise self.error("E1018", message if not search else f"`{word}` reduces one axis", s.span, labels=_here(x))
        if (reducer in ("any", "all")) != (x.elem is Elem.BOOL):
            raise self.error("E1016", f"`{word}` of {x.elem}", given.span, labels=_here(x), help="`cast` converts to another type")
        keep = len(x.shape) - pop
        if not all(x.shape[keep:]) and reducer not in ("sum", "prod", "any", "all"):
            raise self.error("E1019", f"`{word}` of nothing: {_shape(x.shape)} has an empty axis that is reduced", s.span, labels=_here(x))
        wide = Elem.F32 if x.elem in NARROW and reducer in ("sum", "prod") else x.elem
        fused = reducer == "sum" and x.elem.is_real and bool(x.factors)
        terms = [self.operand(f, x.elem, x.shape) for f in x.factors] if fused else [read(x, axes(x.shape))]
        terms = [op("convert", t, elem=wide) for t in terms]
        result = acc(0, Elem.I64 if search else wide)
        reduction = Reduction(reducer, "chain" if fused else "lanes", sizes(x.shape[keep:]), tuple(terms))
        gives = Elem.I64 if search else x.elem
        return self.add(s.name, gives, x.shape[:keep], result if search else op("convert", result, elem=gives), s.span, reduction)

    # ------------------------------------------------------------ arguments

    def movement(self, s: _Line, *attributes: str) -> tuple[Value, Argument]:
        """The operand of a movement op, and its argument."""
        self.known(s, *attributes)
        self.count(s, 2)
        x, arg = s.args
        if not isinstance(x, Value):
            raise self.error("E1014", f"`{s.op}` moves a value", x.span)
        return x, arg

    def count(self, s: _Line, wanted: int) -> None:
        if len(s.args) != wanted:
            raise self.error("E1014", f"`{s.op}` takes {wanted} argument{'s' * (wanted != 1)}, found {len(s.args)}", s.span)

    def known(self, s: _Line, *names: str) -> None:
        for name, a in s.attributes.items():
            if name not in names:
                help = f"it has {', '.join(f'`{n}`' for n in names)}" if names else "it has none"
                raise self.error("E1020", f"`{s.op}` has no attribute `{name}`", a.span, help=help)

    def attribute(self, s: _Line, name: str) -> Attribute:
        if name not in s.attributes:
            help = f"write it behind a colon: `: {name}=...`"
            raise self.error("E1020", f"`{s.op}` lacks its attribute `{name}`", s.span, help=help)
        return s.attributes[name]

    def dtype(self, s: _Line) -> Elem:
        a = self.attribute(s, "dtype")
        word = a.value.text if isinstance(a.value, Name) else ""
        if word not in DTYPES:
            raise self.error("E1020", f"there is no dtype `{word}`", a.span, help=near(word, DTYPES) or f"there are {', '.join(DTYPES)}")
        return DTYPES[word]

    def integer(self, a: Attribute) -> int:
        if not isinstance(a.value, Number) or not isinstance(a.value.value, int):
            raise self.error("E1020", f"`{a.name}` is an integer", a.span)
        return a.value.value

    def shape(self, a: Argument) -> tuple[int, ...]:
        shape = [a.value] if isinstance(a, Number) and isinstance(a.value, int) else self.integers(a, "a shape")
        if any(n < 0 for n in shape) or prod(shape) > LARGEST:
            message = f"{_tuple(shape)} is no shape: an extent is not negative, and a tensor has at most 2^40 elements"
            raise self.error("E1019", message, a.span)
        return tuple(shape)

    def integers(self, a: Argument, what: str) -> list[int]:
        if isinstance(a, Tuple):
            found = [x.value for x in a.items if isinstance(x, Number) and isinstance(x.value, int)]
            if len(found) == len(a.items):
                return found
        raise self.error("E1014", f"{what} is a tuple of integers", a.span)

    def items(self, a: Argument, x: Value) -> tuple[Argument, ...]:
        if not isinstance(a, Tuple) or len(a.items) != len(x.shape):
            message = f"expected a tuple with an entry for each axis of {_shape(x.shape)}, which has {_count(x.shape)}"
            raise self.error("E1014", message, a.span, labels=_here(x))
        return a.items

    def pairs(self, a: Argument, x: Value, what: str) -> list[tuple[int, int]]:
        rows = [self.integers(row, what) for row in self.items(a, x)]
        for row in rows:
            if len(row) != 2:
                raise self.error("E1014", f"an entry is {what}, found {_tuple(row)}", a.span)
        return [(row[0], row[1]) for row in rows]

    def literal(self, n: Number, elem: Elem) -> Expr:
        """A number in an element type."""
        if elem is Elem.BOOL:
            if n.value not in (0, 1):
                raise self.error("E1016", f"{n.value} is no bool: write 0 or 1", n.span)
            return const(bool(n.value), elem)
        if elem.is_real:
            return const(float(n.value), elem)
        low, high = (-(2 ** (elem.width - 1)), 2 ** (elem.width - 1) - 1) if elem.is_signed else (0, 2**elem.width - 1)
        if not isinstance(n.value, int) or not low <= n.value <= high:
            raise self.error("E1016", f"{n.value} is no {elem}", n.span)
        return const(n.value, elem)


MOVEMENT: dict[str, Callable[[_Reader, _Line], Value]] = {
    "buffer": _Reader.buffer, "const": _Reader.const, "reshape": _Reader.reshape, "permute": _Reader.permute, "expand": _Reader.expand,
    "pad": _Reader.pad, "shrink": _Reader.shrink, "slice": _Reader.slice, "flip": _Reader.flip, "reduce": _Reader.reduce,
}  # fmt: skip
assert not set(MOVEMENT) & set(SCALAR_OPS), "an op has two meanings"


# ---------------------------------------------------------------- pieces


def sizes(shape: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(map(const, shape))


def axes(shape: Sequence[int]) -> list[Expr]:
    return [axis(k) for k in range(len(shape))]


def read(x: Value, at: Sequence[Expr]) -> Expr:
    """An element of a value."""
    return load(x.view.tensor, at, x.view.shape)


def stretched(shape: Sequence[int], to: Sequence[int]) -> list[Expr]:
    """The indices in a shape for those in another, where extents of 1 are stretched."""
    return [const(0) if n == 1 and m != 1 else axis(k) for k, (n, m) in enumerate(zip(shape, to, strict=True))]


def _plain(name: str, prefix: str) -> str:
    """The name of a tensor: `%x` is `x`, and a number has a letter before it."""
    text = name.lstrip("%")
    return f"{prefix}{text}" if text[0].isdigit() else text


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _count(shape: Sequence[int]) -> str:
    return f"{len(shape)} {'axis' if len(shape) == 1 else 'axes'}"


def _tuple(items: Sequence[int]) -> str:
    return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"


def _here(*values: Value | Number) -> tuple[Label, ...]:
    return tuple(Label(v.span, f"{v.name}: {v.elem}{_shape(v.shape)}") for v in dict.fromkeys(values) if isinstance(v, Value))
