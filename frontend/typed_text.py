"""The typed AST as text that reads like TL, with everything said: types, comprehensions, instances, checks.

For people and golden tests; nothing parses it. A local or dimension whose name is taken in its function gets a number (`x~2`), and what a
local stands for in types has the local's name. An index that is checked when the program runs has a `?` behind it, a division that is
checked likewise (`a //? b`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tlc.frontend import typed as t
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import UNIT, StructType, TupleType, Type, map_dims

INDENT = "  "


def print_program(program: t.Program) -> str:
    """All functions, callees first, and which is `main`."""
    parts = [print_function(f) for f in program.functions.values()]
    if program.main is not None:
        flags = [f"#   --{f.name}: {f.type}" + (f" = {f.default!r}" if f.default is not None else "") for f in program.flags]
        parts.append("\n".join([f"# main is {program.main}", *flags]))
    return "\n\n".join(parts) + "\n"


def print_function(f: t.Function) -> str:
    """`fn name(params) -> result { body }`"""
    printer = Printer()
    params = ", ".join([f"{printer.name(p)}: {printer.type(p.type)}" for p in f.params])
    result = f" -> {printer.type(f.result)}" if f.result != UNIT else ""
    rule = [f"@vjp({f.rule.name})"] if f.rule is not None else []
    return "\n".join([*rule, f"fn {f.ref.name}({params}){result} {{", *printer.block(f.body, INDENT), "}"])


class Printer:
    """Prints one function. `expr` gives text on one line, or several where a block is inside."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.dims: dict[DimVar, str] = {}
        self.owned: set[DimVar] = set()  # dimensions that are called as a local is
        self.taken: dict[str, int] = {}
        self.indent = INDENT

    def fresh(self, name: str) -> str:
        count = self.taken[name] = self.taken.get(name, 0) + 1
        return name if count == 1 else f"{name}~{count}"

    def name(self, local: t.Local) -> str:
        """What a local is called: as the dimension that it is, if that has its name and no other local has taken it."""
        if local.uid not in self.names:
            atom = local.dim.atom if local.dim is not None else None
            if isinstance(atom, DimVar) and atom.name == local.name and atom not in self.owned:
                self.owned.add(atom)
                self.names[local.uid] = self.dimension(atom)
            else:
                self.names[local.uid] = self.fresh(local.name)
        return self.names[local.uid]

    def dimension(self, atom: DimVar) -> str:
        if atom not in self.dims:
            self.dims[atom] = self.fresh(atom.name)
        return self.dims[atom]

    def dim(self, dim: Dim) -> Dim:
        """A term over the printed names."""
        return dim.substitute(lambda atom: Dim.var(replace(atom, name=self.dimension(atom))))

    def type(self, type: Type) -> str:
        return str(map_dims(type, self.dim))

    # ------------------------------------------------------------ blocks and statements

    def block(self, e: t.Expr, indent: str) -> list[str]:
        """The lines inside the braces of a block."""
        outer, self.indent = self.indent, indent
        try:
            if not isinstance(e, t.Do):
                return [indent + self.expr(e)]
            lines = [line for s in e.stmts for line in self.stmt(s, indent)]
            return lines if e.value is None else [*lines, indent + self.expr(e.value)]
        finally:
            self.indent = outer

    def braces(self, e: t.Expr) -> str:
        """`{ ... }`, on one line if it is short."""
        if isinstance(e, t.Do) and not e.stmts and e.value is None:
            return "{ }"
        lines = self.block(e, self.indent + INDENT)
        if len(lines) == 1 and "\n" not in lines[0] and len(lines[0]) < 80:
            return f"{{ {lines[0].strip()} }}"
        return "\n".join(["{", *lines, self.indent + "}"])

    def stmt(self, s: t.Stmt, indent: str) -> list[str]:
        return [indent + self._stmt(s)]

    def _stmt(self, s: t.Stmt) -> str:
        match s:
            case t.Let():
                word = "var" if s.local.mutable else "let"
                value, name = self.expr(s.value), self.name(s.local)
                dim = "" if s.local.dim is None else str(self.dim(s.local.dim))
                return f"{word} {name}: {self.type(s.local.type)} = {value}{f'  # {dim}' if dim not in ('', name) else ''}"
            case t.Assign():
                return f"{self.name(s.local)}{self.path(s)} = {self.expr(s.value)}"
            case t.Eval():
                return self.expr(s.expr)
            case t.While():
                return f"while {self.expr(s.cond)} {self.braces(s.body)}"
            case t.For():
                ends = f"{self.expr(s.lo)}..{self.expr(s.hi)}"
                step = "" if isinstance(s.step, t.Const) and s.step.value == 1 else f" by {self.expr(s.step)}"
                note = "" if s.note is None else f", {self.expr(s.note)}"
                sequence = ends + step if s.label is None else f"progress({ends}{step}, {self.expr(s.label)}{note})"
                return f"for {self.name(s.local)} in {sequence} {self.braces(s.body)}"
            case t.Break():
                return "break"
            case t.Continue():
                return "continue"
            case t.Return():
                return "return" if s.value is None else f"return {self.expr(s.value)}"
            case t.Fail():
                return f"{s.kind}-fail({self.expr(s.message)})"
            case t.CheckRange():
                return f"check 0 <= {self.expr(s.lo)} <= {self.expr(s.hi)} <= {self.expr(s.extent)}"
            case t.CheckExtent():
                return f"check 0 <= {self.expr(s.extent)}"
            case t.Print():
                return f"print({self.expr(s.text)})"
        raise AssertionError(s)

    def path(self, s: t.Assign) -> str:
        """`.w[i, j]`: the part of a variable that is assigned."""
        out, type = "", s.local.type
        for step in s.path:
            if isinstance(step, t.IndexStep):
                out += self.indices(step.indices, step.checked)
                if isinstance(type, StructType):
                    type = StructType(type.decl, type.args, type.dims[len(step.indices) :])
            elif isinstance(type, StructType):
                out += f".{type.decl.fields[step.index].name}"
                type = t.field_type(type, step.index)
            elif isinstance(type, TupleType):
                out += f"[{step.index}]"
                type = type.items[step.index]
        return out

    def indices(self, indices: tuple[t.Expr, ...], checked: tuple[bool, ...]) -> str:
        return f"[{', '.join(self.expr(i) + '?' * c for i, c in zip(indices, checked, strict=True))}]"

    # ------------------------------------------------------------ expressions

    def expr(self, e: t.Expr) -> str:
        return _EXPRESSIONS[type(e)](self, e)

    def args(self, args: tuple[t.Expr, ...]) -> str:
        return ", ".join(self.expr(a) for a in args)

    def base(self, e: t.Expr) -> str:
        """An expression before a dot or bracket."""
        text = self.expr(e)
        return text if isinstance(e, t.Read | t.Part | t.Index | t.Call | t.Tuple | t.Struct) else f"({text})"

    def ranges(self, ranges: tuple[t.Range, ...]) -> str:
        out = []
        for r in ranges:
            zero = isinstance(r.lo, t.Const) and r.lo.value == 0
            ends = f" < {self.expr(r.hi)}" if zero else f" in {self.expr(r.lo)}..{self.expr(r.hi)}"
            out.append(self.name(r.local) + ends)
        return ", ".join(out)

    def const(self, e: t.Const) -> str:
        if isinstance(e.value, bool):
            return str(e.value).lower()
        if isinstance(e.value, str):
            return '"' + e.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        text = str(e.type)  # of a scalar
        return f"{e.value}" if text in ("i64", "f32") else f"{e.value}{text}"

    def op(self, e: t.Op) -> str:
        if e.op in ("convert", "bitcast"):
            name = self.type(e.type) if e.op == "convert" else f"bitcast_{e.type}"
            return f"{name}({self.args(e.args)})"
        row = SCALAR_OPS[e.op]
        if row.symbol and row.arity == 2:
            symbol = row.symbol + "?" * e.checked
            return f"{self.tight(e.args[0])} {symbol} {self.tight(e.args[1])}"
        if row.symbol:
            return f"{row.symbol}{self.tight(e.args[0])}"
        return f"{e.op}({self.args(e.args)})"

    def tight(self, e: t.Expr) -> str:
        """An operand: in parentheses if it is an operation itself."""
        text = self.expr(e)
        simple = not isinstance(e, t.Op | t.If | t.Do | t.Comp | t.Reduce | t.Cast | t.DimValue) or text.isidentifier()
        call = isinstance(e, t.Op) and (not SCALAR_OPS[e.op].symbol)
        return text if simple or call else f"({text})"

    def part(self, e: t.Part) -> str:
        if isinstance(e.base.type, StructType):
            return f"{self.base(e.base)}.{e.base.type.decl.fields[e.index].name}"
        return f"{self.base(e.base)}[{e.index}]"

    def struct(self, e: t.Struct) -> str:
        assert isinstance(e.type, StructType)
        fields = ", ".join(f"{f.name} = {self.expr(v)}" for f, v in zip(e.type.decl.fields, e.fields, strict=True))
        return f"{e.type.decl.name}({fields})"

    def format(self, e: t.Format) -> str:
        pieces = [
            p.replace("{", "{{").replace("}", "}}") if isinstance(p, str) else f"{{{self.expr(p.value)}{':' + p.spec if p.spec else ''}}}"
            for p in e.pieces
        ]
        return '"' + "".join(pieces) + '"'

    def grad(self, e: t.Grad) -> str:
        word = "value_and_grad" if e.value else "grad"
        wrt = f", wrt = {e.wrt}" if e.wrt != (0,) or e.many else ""
        return f"{word}({e.callee.name})({self.args(e.args)}{wrt})"

    def jvp(self, e: t.Jvp) -> str:
        return f"jvp({e.callee.name})(({self.args(e.args)}), ({self.args(e.tangents)}), wrt = {e.wrt})"

    def reduce(self, e: t.Reduce) -> str:
        ranges = self.ranges(e.ranges)
        return f"{e.op}[{ranges}; {e.order}] {self.tight(e.body)}"

    def comp(self, e: t.Comp) -> str:
        ranges = self.ranges(e.ranges)
        return f"for[{ranges}] {self.expr(e.body)}"


def _tuple(p: Printer, e: t.Tuple) -> str:
    return f"({p.args(e.items)}{',' * (len(e.items) == 1)})"


_EXPRESSIONS: dict[type[t.Expr], Callable[[Printer, Any], str]] = {
    t.Const: Printer.const,
    t.Read: lambda p, e: p.name(e.local),
    t.DimValue: lambda p, e: str(p.dim(e.dim)),
    t.Op: Printer.op,
    t.Call: lambda p, e: f"{f'checkpoint({e.callee.name})' if e.again else e.callee.name}({p.args(e.args)})",
    t.Grad: Printer.grad,
    t.Jvp: Printer.jvp,
    t.StopGrad: lambda p, e: f"stop_grad({p.expr(e.arg)})",
    t.Extern: lambda p, e: f"extern {e.name}({p.args(e.args)})",
    t.Foreign: lambda p, e: f"foreign {e.symbol}({p.args(e.args)})",
    t.Comp: Printer.comp,
    t.Reduce: Printer.reduce,
    t.Index: lambda p, e: p.base(e.base) + p.indices(e.indices, e.checked),
    t.Reshape: lambda p, e: f"reshape{'?' * e.checked}({p.expr(e.base)}) as {p.type(e.type)}",
    t.Rows: lambda p, e: f"[{p.args(e.items)}]",
    t.Struct: Printer.struct,
    t.Tuple: _tuple,
    t.Part: Printer.part,
    t.If: lambda p, e: f"if {p.expr(e.cond)} {p.braces(e.then)}" + ("" if _empty(e.other) else f" else {p.braces(e.other)}"),
    t.Do: lambda p, e: p.braces(e),
    t.Cast: lambda p, e: f"{p.tight(e.arg)} as {p.type(e.type)}",
    t.Format: Printer.format,
}


def _empty(e: t.Expr) -> bool:
    return isinstance(e, t.Do) and not e.stmts and e.value is None
