"""Functions of the host module that kernels apply, as device functions: loops and branches on scalars, and loads.

    head(x, n):  branch c, body, exit       while c:
    body:        jump head(x * x, n + 1)        x, n = fmul_rn(x, x), n + 1
    exit:        return n                   return n

The structure is that of the C backend (`backends/c/control.py`); a value that is used once stands where it is used, an edge's moves are one
assignment. What may stop the program or makes a tensor is not on a GPU yet (`E0901`), and neither is what calls itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from tlc.backends.c import control
from tlc.backends.c.control import Forever, Goto, If, Item, Let, Line
from tlc.backends.c.words import AND, SUM, Names, Text, call
from tlc.backends.cuda import words
from tlc.backends.cuda.helpers import Helpers
from tlc.backends.cuda.intrinsics import INTRINSICS
from tlc.backends.cuda.scalar import emit
from tlc.backends.cuda.words import VALUES
from tlc.backends.kernel_text import origin
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import predecessors, reverse_postorder
from tlc.ssa.ir import Block, Function, Instr, Terminator, Value, const_of

_LONG = 100


@dataclass
class Procedures:
    """The device functions of a file."""

    functions: Mapping[str, Function]
    helpers: Helpers
    names: dict[str, str] = field(default_factory=dict)
    making: list[str] = field(default_factory=list)

    def name(self, function: str, caller: Span) -> str:
        """The name of a function in the file; its text is there from now on. Raises `CompileError` where it cannot be."""
        if function in self.making or function not in self.functions:
            raise unsupported(f"the function `{function}`, which calls itself," if function in self.making else f"`{function}`", caller)
        if function not in self.names:
            self.making.append(function)
            name = self.scope().of(function)
            self.helpers.texts[name] = _Printer(self.functions[function], self, name, caller).run()
            self.names[function] = name
            self.making.pop()
        return self.names[function]

    def scope(self, *more: str) -> Names:
        """Names of a new scope in the file."""
        return words.names(frozenset((*INTRINSICS, *self.helpers.texts, *self.names.values(), *more)))


def unsupported(what: str, span: Span) -> CompileError:
    return CompileError([Diagnostic("E0901", f"{what} in a kernel for a GPU: not supported yet", span)])


@dataclass
class _Printer:
    function: Function
    procedures: Procedures
    name: str
    caller: Span
    values: dict[Value, tuple[Text, ...]] = field(default_factory=dict)
    code: dict[Block, list[Item]] = field(default_factory=dict)
    conditions: dict[Block, Text] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = self.procedures.scope(self.name)
        self.helpers = self.procedures.helpers
        self.into = predecessors(self.function.body)

    def run(self) -> str:
        f = self.function
        if len(f.results) != 1 or f.results[0].rank:
            raise unsupported(f"the function `{f.name}`, which does not give one number,", self.caller)
        params: list[str] = []
        for v in f.params:
            name = Text(self.names.of(v.name or "v"))
            self.values[v] = (name, *(Text(self.names.of(f"{name}_extent{k}")) for k in range(v.type.rank)))
            params += map(str, self.values[v])
        order = reverse_postorder(f.body)
        for b in order[1:]:
            if len(self.into[b]) != 1:
                for v in b.params:
                    self.values[v] = (Text(self.names.of(v.name or "v")),)
        for b in order:
            self.learn(b)
        items = control.structure(f.body, control.Code(self.code.__getitem__, self.edge, self.conditions.__getitem__, negated))
        head = [f"@cuda.jit(device=True)\ndef {self.name}({', '.join(params)}):"]
        where = [line.replace('"""', "'''").replace("\\", "/") for line in origin(f.span)]
        return "\n".join([*head, *(f'    """{line}"""' for line in where), *self.lines(items, 1)])

    def learn(self, block: Block) -> None:
        """Print a block, and pass on what it gives to blocks that it alone jumps to."""
        here = self.code.setdefault(block, [])
        for instr in block.instrs:
            self.instruction(instr, here)
        end = block.terminator
        if end.op == "return":
            here.append(Line(f"return {self.one(end.own[0])}", ends=True))
        elif end.op == "branch":
            self.conditions[block] = self.one(end.own[0])
        elif end.op != "jump":
            raise unsupported(f"`{end.op}`", self.caller)
        for k, target in enumerate(end.targets):
            if len(self.into[target]) == 1:
                for p, a in zip(target.params, end.args(k), strict=True):
                    self.values[p] = self.values[a]

    def edge(self, block: Block, k: int) -> list[Item]:
        """The moves of an edge, at once."""
        end = block.terminator
        target = end.targets[k]
        if len(self.into[target]) == 1:
            return []
        moves = [(self.one(p), self.typed(a)) for p, a in zip(target.params, end.args(k), strict=True)]
        moves = [(to, source) for to, source in moves if to.text != source.text]
        if not moves:
            return []
        return [Line(f"{', '.join(str(to) for to, _ in moves)} = {', '.join(str(source) for _, source in moves)}")]

    def typed(self, v: Value) -> Text:
        """A value that a variable gets, of its type also where it is a bare number."""
        text = self.one(v)
        return call(VALUES[v.type.elem], text) if const_of(v) is not None and v.type.elem in (Elem.I64, Elem.F64) else text

    # ------------------------------------------------------------ values

    def one(self, v: Value) -> Text:
        return self.values[v][0]

    def instruction(self, instr: Instr, here: list[Item]) -> None:
        if any(v.type.rank for v in instr.results):
            raise unsupported(f"`{instr.op}` of a tensor", instr.span)
        match instr.op:
            case "const" if instr.result.type.elem is not Elem.STR:
                self.values[instr.result] = (self.helpers.literal(instr.attrs["value"], instr.result.type.elem),)
            case "dim":
                axis = instr.attrs["axis"]
                assert isinstance(axis, int)
                self.values[instr.result] = (self.values[instr.operands[0]][1 + axis],)
            case "stop_grad":
                self.values[instr.result] = self.values[instr.operands[0]]
            case "load":
                tensor, at = instr.operands
                cell = Text(f"{self.one(tensor)}[{self.one(at)}]")
                self.give(instr.result, self.helpers.loaded(cell, instr.result.type.elem), here)
            case "call":
                args = [t for v in instr.operands for t in (self.values[v] if v.type.rank else (self.typed(v),))]
                self.named(instr.result, call(self.procedures.name(callee_of(instr), instr.span), *args), here)
            case name if name in SCALAR_OPS:
                operands = tuple((self.one(v), v.type.elem) for v in instr.operands)
                self.give(instr.result, emit(self.helpers, name, instr.result.type.elem, operands), here)
            case _:
                raise unsupported(f"`{instr.op}` in the function `{self.function.name}`", instr.span)

    def give(self, v: Value, text: Text, here: list[Item]) -> None:
        """Where a value is used once, in the same block, it stands there; else it gets a name."""
        owner = v.owner
        assert isinstance(owner, Instr)
        near = sum(v.uses.values()) == 1 and all(u.block is owner.block for u in v.uses if isinstance(u, Instr | Terminator))
        if near and len(text.text) <= _LONG:
            self.values[v] = (text,)
        else:
            self.named(v, text, here)

    def named(self, v: Value, text: Text, here: list[Item]) -> None:
        name = Text(self.names.of(v.name or "t"))
        here.append(Let("", name.text, text.text))
        self.values[v] = (name,)

    # ------------------------------------------------------------ statements

    def lines(self, items: list[Item], depth: int) -> Iterator[str]:
        pad = "    " * depth
        for x in items:
            match x:
                case Line(text):
                    yield pad + text.rstrip(";")
                case Let(_, name, value):
                    yield f"{pad}{name} = {value}"
                case If(cond, then, other):
                    yield f"{pad}if {cond}:"
                    yield from self.lines(then, depth + 1)
                    if other:
                        yield f"{pad}else:"
                        yield from self.lines(other, depth + 1)
                case Forever([If(cond, [Line("break;")], []), *body]):
                    yield f"{pad}while {negated(cond)}:"
                    yield from self.lines(body, depth + 1) if body else [f"{pad}    pass"]
                case Forever(body):
                    yield f"{pad}while True:"
                    yield from self.lines(body, depth + 1)
                case Goto():
                    raise unsupported(f"the jumps of the function `{self.function.name}`", self.caller)


def negated(cond: Text) -> Text:
    inner = cond.text.removeprefix("not ")
    return Text(inner.removeprefix("(").removesuffix(")") if inner.startswith("(") else inner) if inner != cond.text else _not(cond)


def _not(cond: Text) -> Text:
    return Text(f"not {cond.at(SUM)}", AND)
