"""Prints a kernel as a function of C that says what the schedule says: loops as loops, buffers as pointers, `let` as `const`.

Every kind of loop is a plain `for`: its meaning is the sequential one, and a C compiler makes vectors of it where it can. A loop that
runs once is no loop. Local buffers are arrays, of rank 0 where they have one cell. Indices are simplified (`backends/c/index.py`).
An applied function that may stop the program is called in a statement of its own, before the one that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tlc.backends.c.calls import Callee, can_stop
from tlc.backends.c.helpers import Helpers
from tlc.backends.c.index import Indices
from tlc.backends.c.scalar import emit
from tlc.backends.c.words import LESS, TYPES, UNARY, Names, Text, call, definition, infix, literal
from tlc.backends.kernel_text import KernelPrinter, origin
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import (
    Apply,
    Barrier,
    Buffer,
    Const,
    Copying,
    Expr,
    For,
    If,
    Kernel,
    Kind,
    Let,
    Load,
    Meeting,
    Op,
    Space,
    Store,
    Var,
    statements,
    subexpressions,
)

_NOTES = {Kind.PARALLEL: "  /* in any order */"}


def print_kernel(kernel: Kernel, helpers: Helpers, callees: Mapping[str, Callee], name: str) -> str:
    """The definition of one kernel. What it calls must stand before."""
    return _Printer(kernel, helpers, callees, name).run()


def comment(span: Span, notes: Sequence[str] = ()) -> list[str]:
    """Where something comes from, as comments of C."""
    return [f"/* {line.replace('*/', '* /')} */" for line in origin(span, notes)]


def head(kernel: Kernel, helpers: Helpers, callees: Mapping[str, Callee], name: str) -> str:
    """The head of a kernel's definition."""
    return _Printer(kernel, helpers, callees, name).head()


@dataclass
class _Printer(KernelPrinter):
    helpers: Helpers
    callees: Mapping[str, Callee]
    name: str

    indent, true, false = "  ", literal(True, Elem.BOOL), literal(False, Elem.BOOL)

    def __post_init__(self) -> None:
        k = self.kernel
        bounds = (e for s in statements(k.body) if isinstance(s, For) for e in (s.start, s.stop))
        self.ends = {x.name for e in bounds for x in subexpressions(e) if isinstance(x, Var)}
        self.count(statements(k.body))
        extents = frozenset(x for b in k.buffers for e in b.shape for x in subexpressions(e) if isinstance(x, Var))
        self.indices = Indices(extents, self.plain, self.help)
        self.names = Names()
        for p in k.parameters:
            self.env[p.name] = self.names.of(p.name)
        for p in k.inputs:
            if isinstance(p, Var) and p.elem is Elem.I64:
                self.indices.scalar(p, self.env[p.name])

    # ------------------------------------------------------------ the function

    def head(self) -> str:
        k = self.kernel
        shared_out = {o for o, _ in k.may_alias}
        shared_in = {i for _, i in k.may_alias}
        params = [self.pointer(b, "", n in shared_out) for n, b in enumerate(k.outputs)]
        for n, p in enumerate(k.inputs):
            params.append(f"{TYPES[p.elem]} {self.env[p.name]}" if isinstance(p, Var) else self.pointer(p, "const ", n in shared_in))
            self.helpers.type(p.elem)
        result = "int" if can_stop(k, self.callees) else "void"
        return f"{result} {self.name}({', '.join(params)})"

    def pointer(self, b: Buffer, const: str, shared: bool) -> str:
        return f"{const}{self.helpers.type(b.elem)} *{'' if shared else 'restrict '}{self.env[b.name]}"

    def run(self) -> str:
        k = self.kernel
        notes = [*k.notes]
        for o, i in k.may_alias:
            notes.append(f"`{self.env[k.outputs[o].name]}` may be the memory of `{self.env[k.inputs[i].name]}`")
        top = [*comment(k.span, notes), f"{self.head()} {{"]
        self.body(k.body)
        if can_stop(k, self.callees):
            self.put("return 0;")
        return "\n".join([*top, *self.lines, "}"])

    # ------------------------------------------------------------ statements

    def open(self, text: str) -> None:
        self.put(text)
        self.depth += 1

    def close(self, text: str = "}") -> None:
        self.depth -= 1
        self.put(text)

    def meet(self, s: Barrier | Meeting | Copying) -> None:
        raise InternalError("threads of a GPU meet", f"kernel {self.kernel.name}")

    def declare(self, b: Buffer, first: Const | None) -> None:
        name = self.env[b.name] = self.names.of(b.name.rstrip("0123456789") or b.name)
        extents = "".join(f"[{e.value}]" for e in b.shape if isinstance(e, Const) and e.value != 1)
        self.put(f"{self.helpers.type(b.elem)} {name}{extents}{f' = {self.expr(first)}' if first else ''};")

    def definition(self, name: str, elem: Elem, value: Text) -> str:
        self.helpers.type(elem)
        return definition(name, elem, value)

    def loop(self, s: For) -> None:
        trips = self.trips(s)
        if trips in (0, 1):
            if trips:
                self.indices.constant(s.var, s.start)
                self.body(s.body)
            return
        name = self.env[s.var.name] = self.names.of_loop(s.var.name)
        start, stop = self.indices.text(s.start), self.indices.text(s.stop)
        step = f"{name}++" if s.step == 1 else f"{name} += {s.step}"
        if s.kind is Kind.UNROLL and trips is not None:
            self.put(f"#pragma GCC unroll {trips}")
        self.open(f"for (int64_t {name} = {start}; {infix(Text(name), '<', stop, LESS)}; {step}) {{{_NOTES.get(s.kind, '')}")
        with self.indices.loop(s, name):
            self.body(s.body)
        self.close()
        self.names.taken.discard(name)

    def let(self, s: Let) -> None:
        if s.var.elem is Elem.I64 and self.is_position(s):
            self.indices.constant(s.var, s.value)
            return
        if s.var.elem is Elem.BOOL:
            self.indices.conditions[s.var.name] = s.value
        value = self.expr(self.wholly(s.value))
        name = self.env[s.var.name] = self.names.of(s.var.name)
        self.put(self.definition(name, s.var.elem, value))
        if s.var.elem is Elem.I64:
            self.indices.scalar(s.var, name)

    def is_position(self, s: Let) -> bool:
        """The end of a loop is better named."""
        return s.var.name not in self.ends and super().is_position(s)

    def store(self, s: Store) -> None:
        if id(s) in self.begun:
            return
        place = self.place(s.buffer, s.indices)
        itself = Load(s.buffer, s.indices)
        match s.value:
            case Op("add" | "sub" | "mul" as name, Elem.F32 | Elem.F64, (first, other)) if first == itself:
                self.put(f"{place} {SCALAR_OPS[name].symbol}= {self.expr(self.wholly(other))};")
            case _:
                value = self.expr(self.wholly(s.value))
                self.put(f"{place} = {value};")

    def conditional(self, s: If) -> None:
        cond = self.expr(s.cond)
        if cond in (self.true, self.false):
            self.body(s.then if cond == self.true else s.other)
            return
        self.open(f"if ({cond}) {{")
        with self.indices.given(s.cond):
            self.body(s.then)
        if s.other:
            self.close("} else {")
            self.depth += 1
            self.body(s.other)
        self.close()

    # ------------------------------------------------------------ expressions

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> Text:
        """A cell of a buffer."""
        name = self.env[b.name]
        if b.space is Space.LOCAL:
            at = [self.indices.text(i) for i, e in zip(indices, b.shape, strict=True) if not isinstance(e, Const) or e.value != 1]
            return Text(name + "".join(f"[{i}]" for i in at))
        return Text(f"{name}[{self.indices.flat(indices, b.shape)}]") if b.shape else Text(f"*{name}", UNARY)

    def literal(self, value: object, elem: Elem) -> Text:
        self.helpers.type(elem)
        return literal(value, elem)

    def load(self, e: Load) -> Text:
        return self.place(e.buffer, e.indices)

    def emit(self, op: str, elem: Elem, operands: tuple[tuple[Text, Elem], ...]) -> Text:
        return emit(self.helpers, op, elem, operands)

    def apply(self, e: Apply) -> Text:
        if e in self.hoisted:
            return self.hoisted[e]
        callee = self.callees[e.function]
        args = self.arguments(e)
        if not callee.can_stop:
            return call(callee.name, *args)
        result = Text(self.names.of("result"))
        self.put(f"{self.helpers.type(e.elem)} {result};")
        self.put(f"if ({call(callee.name, f'&{result}', *args)}) return 1;")
        self.hoisted[e] = result
        return result
