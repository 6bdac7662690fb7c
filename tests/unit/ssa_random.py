"""Random SSA for properties: functions of scalars and tensors with regions, branches, loops and calls, that always run."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.ir import BOOL, I64, Module, Type, Value

F32, F64 = Type(Elem.F32), Type(Elem.F64)
VECTOR, MATRIX = Type(Elem.F32, 1), Type(Elem.F64, 2)
NAMES = ["", "x", "x.1", "y", "7", "some.name", "a b", "%", "_", "loop"]
CONSTANTS = {
    BOOL: st.booleans(),
    I64: st.integers(-3, 5),
    F32: st.sampled_from([0.0, -0.0, 0.1, 3.0, -1e10, float("inf")]),
    F64: st.sampled_from([0.0, -0.0, 0.1, 3.0, -1e10, float("inf")]),
}


@st.composite
def modules(draw: st.DrawFn) -> Module:
    """Two functions of (i64, f32, f32[_], f64[_,_]) with results (f32, i64); the second may call the first, `g`."""
    module = Module()
    for name in ("g", "f[i64, 'x']"):
        _, b = new_function(name, [("n", I64), ("a", F32), ("v", VECTOR), ("w", MATRIX)], [F32, I64], module)
        code = _Code(draw, "g" if name != "g" else None)
        values = code.extend(b, b.block.params, depth=2)
        b.ret(code.pick(b, values, F32), code.pick(b, values, I64))
    return module


class _Code:
    def __init__(self, draw: st.DrawFn, callee: str | None) -> None:
        self.draw, self.callee = draw, callee

    def name(self) -> str:
        return self.draw(st.sampled_from(NAMES))

    def pick(self, b: Builder, values: list[Value], type: Type) -> Value:
        """A recent value of a type, or a constant."""
        found = [v for v in values if v.type == type]
        if found and (type not in CONSTANTS or self.draw(st.integers(0, 9))):
            return self.draw(st.sampled_from(found[-6:]))
        return b.const(self.draw(CONSTANTS[type]), type, self.name())

    def two(self, b: Builder, values: list[Value], type: Type) -> tuple[Value, Value]:
        return self.pick(b, values, type), self.pick(b, values, type)

    def extend(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        """Append a few things; the values there are afterwards."""
        values = list(values)
        for _ in range(self.draw(st.integers(0, 4))):
            kind = self.draw(st.sampled_from([k for k in _KINDS if depth or k not in (_tabulate, _reduce)]))
            values += kind(self, b, values, depth)
        return values

    def at(self, b: Builder, values: list[Value], x: Value) -> Value:
        return b.index(x, *[b.op("mod", self.pick(b, values, I64), n) for n in b.dims(x)], hint=self.name())

    def body(self, values: list[Value], depth: int, type: Type) -> Callable[..., Value]:
        def build(b: Builder, *indices: Value) -> Value:
            inner = self.extend(b, [*values, *indices], depth - 1)
            if type != BOOL and self.draw(st.booleans()):
                return b.op("mul", *self.two(b, inner, type))
            return self.pick(b, inner, type)

        return build


def _int(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    return [b.op(c.draw(st.sampled_from(["add", "mul", "sub", "mod", "max"])), *c.two(b, values, I64), hint=c.name())]


def _real(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    type = c.draw(st.sampled_from([F32, F64]))
    return [b.op(c.draw(st.sampled_from(["add", "mul", "min", "div"])), *c.two(b, values, type), hint=c.name())]


def _compare(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    return [b.op("lt", *c.two(b, values, F32), hint=c.name())]


def _select(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    return [b.op("select", c.pick(b, values, BOOL), *c.two(b, values, F32), hint=c.name())]


def _index(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    return [c.at(b, values, c.draw(st.sampled_from([v for v in values if v.type.rank])))]


def _update(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    x = c.pick(b, values, VECTOR)
    i = b.op("mod", c.pick(b, values, I64), b.dim(x, 0))
    return [b.update(x, [i], c.pick(b, values, F32), c.name())]


def _tabulate(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    extents = [b.i64(n) for n in c.draw(st.sampled_from([[1], [3], [2, 2]]))]
    t = b.tabulate(extents, c.body(values, depth, c.draw(st.sampled_from([F32, F64]))), hint=c.name())
    return [c.at(b, values, t)] + ([t] if t.type in (VECTOR, MATRIX) else [])


def _reduce(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    extents = [b.i64(n) for n in c.draw(st.sampled_from([[1], [3], [17], [2, 3]] if depth > 1 else [[1], [2], [2, 2]]))]
    op = c.draw(st.sampled_from(["sum", "prod", "max", "argmin", "any"]))
    type = BOOL if op == "any" else c.draw(st.sampled_from([F32, F64]))
    return list(b.reduce_many(op, extents, c.body(values, depth, type), c.draw(st.sampled_from(["chain", "lanes"]))).results)


def _diamond(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    then, other, end = b.new_block(c.name()), b.new_block(c.name()), b.new_block("end", [F32])
    b.branch(c.pick(b, values, BOOL), then, other)
    for side in (then, other):
        b.move_to(side)
        b.jump(end, c.pick(b, c.extend(b, values, 0), F32))
    b.move_to(end)
    return list(end.params)


def _loop(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    head, body, done = b.new_block("loop", [I64, F32]), b.new_block("body"), b.new_block("done")
    b.jump(head, b.i64(0), c.pick(b, values, F32))
    b.move_to(head)
    k, x = head.params
    b.branch(b.op("lt", k, b.i64(3)), body, done)
    b.move_to(body)
    b.jump(head, b.op("add", k, b.i64(1)), c.pick(b, c.extend(b, [*values, k, x], 0), F32))
    b.move_to(done)
    return [x]


def _call(c: _Code, b: Builder, values: list[Value], depth: int) -> list[Value]:
    if c.callee is None:
        return []
    return list(b.call(c.callee, [c.pick(b, values, t) for t in (I64, F32, VECTOR, MATRIX)]))


_KINDS = [_int, _real, _compare, _select, _index, _update, _tabulate, _reduce, _diamond, _loop, _call]
