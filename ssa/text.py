"""The text form of SSA: `print_module` writes what `parse_module` reads.

    func @f(%w: f32[_,_], %x: f32[_]) -> f32[_] {        # the entry block's parameters are the function's
    entry:
      %n = dim %w {axis = 0} : i64
      %y = tabulate %n {                                  # results = op operands {attributes} {region} : result types
        (%i: i64):                                        # a region's entry has no label: nothing jumps there
          %a = index %x, %i : f32
          yield %a
      } : f32[_]
      branch %p, then, done(%x)
    then:
      ...
    done(%z: f32[_]):
      return %z
    }

Attributes are Python literals, and `inf` and `nan`. `#` begins a comment. Line ends mean nothing. Values are scoped by
function, block labels by region; both may be used above their definition. A function's name that is not made of
letters, digits, `_` and `.` is quoted: `@"softmax[f64]"`.

Names are hints. Printing numbers values of one name in textual order (`%x`, `%x.1`, ...) and values without a name
(`%0`, `%1`, ...), and drops such numbers on the next printing; so what was printed, parsed and printed again is unchanged.
Spans are not kept: parsed instructions have places in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np

from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span
from tlc.frontend.types import Elem
from tlc.ssa.formatting import shortest
from tlc.ssa.ir import Attr, Block, Function, Instr, Module, Region, Terminator, Type, User, Value
from tlc.ssa.ops import ROWS, TERMINATORS
from tlc.ssa.tokens import Token, Tokens, fail, near, unquote

# ---------------------------------------------------------------- printing


About = Callable[[Callable[[Value], str]], list[str]]  # from the names of values to lines


def print_module(module: Module, spans: bool = False) -> str:
    """All functions in order. With `spans`, each instruction's source place follows as a comment."""
    return "\n".join(print_function(f, spans) for f in module.functions.values())


def print_function(function: Function, spans: bool = False, about: About | None = None) -> str:
    """One function. Broken SSA prints too: a foreign operand as `%?name`, a missing terminator as a comment. What `about` says stands in
    comments below the first line.
    """
    printer = _Printer(spans)
    printer.function(function)
    if about is not None:
        printer.lines[1:1] = [f"  # {line}".rstrip() for line in about(printer.value)]
    return "\n".join(printer.lines) + "\n"


class _Names:
    """Gives out `x`, `x.1`, `x.2` for values of the hint `x`, and 0, 1, 2 for those without."""

    def __init__(self, unnamed: str = "") -> None:
        self.counts: dict[str, int] = {}
        self.unnamed = unnamed

    def new(self, hint: str) -> str:
        base = re.sub(r"(\.\d*)+$", "", re.sub(r"[^\w.]", "_", hint))
        if not re.match(r"[^\W\d]", base):
            base = self.unnamed
        k = self.counts.get(base, 0)
        self.counts[base] = k + 1
        if not base:
            return str(k)
        return f"{base}.{k}" if k else base


class _Printer:
    def __init__(self, spans: bool) -> None:
        self.spans = spans
        self.lines: list[str] = []
        self.names = _Names()
        self.values: dict[Value, str] = {}
        self.labels: dict[Block, str] = {}

    def function(self, f: Function) -> None:
        self.name_region(f.body, is_function=True)
        results = f" -> {', '.join(map(str, f.results))}" if f.results else ""
        self.lines.append(f"func @{_function_name(f.name)}({self.params(f.body.entry)}){results} {{")
        for k, block in enumerate(f.blocks):
            self.block(block, self.labels[block] + ("" if k == 0 or not block.params else f"({self.params(block)})"), "")
        self.lines.append("}")

    def name_region(self, region: Region, is_function: bool = False) -> None:
        """Number values and labels in textual order."""
        labels = _Names("block")
        for k, block in enumerate(region.blocks):
            self.labels[block] = labels.new("entry" if k == 0 and is_function else block.name) if k or is_function else ""
            for p in block.params:
                self.values[p] = self.names.new(p.name)
            for instr in block.instrs:
                for r in instr.results:
                    self.values[r] = self.names.new(r.name)
                for inner in instr.regions:
                    self.name_region(inner)

    def params(self, block: Block) -> str:
        return ", ".join(f"{self.value(p)}: {p.type}" for p in block.params)

    def value(self, v: Value) -> str:
        return f"%{self.values[v]}" if v in self.values else f"%?{v.name}"

    def list(self, values: tuple[Value, ...]) -> str:
        return ", ".join(map(self.value, values))

    def block(self, block: Block, label: str, indent: str) -> None:
        self.lines.append(f"{indent}{label}:")
        for instr in block.instrs:
            self.instr(instr, indent + "  ")
        self.lines.append(f"{indent}  {self.terminator(block.terminator) if block.terminated else '# no terminator'}")

    def instr(self, instr: Instr, indent: str) -> None:
        text = indent
        if instr.results:
            text += f"{self.list(instr.results)} = "
        text += instr.op
        if instr.operands:
            text += f" {self.list(instr.operands)}"
        if instr.attrs:
            elem = instr.results[0].type.elem if instr.op == "const" else None
            text += f" {{{', '.join(f'{k} = {_literal(instr.attrs[k], elem)}' for k in sorted(instr.attrs))}}}"
        for region in instr.regions:
            self.lines.append(f"{text} {{")
            for k, block in enumerate(region.blocks):
                params = f"({self.params(block)})" if block.params or k == 0 else ""
                self.block(block, self.labels[block] + params, indent + "  ")
            text = f"{indent}}}"
        if instr.results:
            text += f" : {', '.join(str(r.type) for r in instr.results)}"
        self.lines.append(text + (f"  # {instr.span}" if self.spans else ""))

    def terminator(self, t: Terminator) -> str:
        parts = [self.value(v) for v in t.own]
        for target, args in t.edges:
            parts.append(self.labels.get(target, f"?{target.name}") + (f"({self.list(args)})" if args else ""))
        return f"{t.op} {', '.join(parts)}".rstrip()


def _function_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][\w.]*", name) else _quote(name)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(value: Attr, elem: Elem | None) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_literal(v, elem) for v in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, float):
        return shortest(DTYPES[elem].type(value) if elem is not None and elem.is_real else np.float64(value))
    return repr(value)


# ---------------------------------------------------------------- parsing


_TOKENS = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)
      | (?P<value>%[\w.]+)
      | (?P<function>@(?:[A-Za-z_][\w.]*|"(?:[^"\\\n]|\\.)*"))
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<name>[^\W\d][\w.]*)
      | (?P<punctuation>->|[{}()\[\]:,=-])""",
    re.VERBOSE,
)

_NAMED_LITERALS: dict[str, Attr] = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}


def parse_module(text: str, path: str = "<text>") -> Module:
    """Read a module; raises `CompileError` at the first mistake, with its place."""
    return _Parser(Source(path, text)).module()


@dataclass
class _Labels:
    """The blocks of one region, by label: made at the first mention."""

    blocks: dict[str, Block]
    mentioned: dict[str, Span]


class _Parser(Tokens):
    def __init__(self, source: Source) -> None:
        super().__init__(source, _TOKENS)
        self.values: dict[str, Value] = {}
        # Operands may be defined below their use, so they are filled in at the end of the function.
        self.pending: list[tuple[User, list[Token]]] = []
        self.pending_terminators: list[tuple[Block, Token, list[Token], list[tuple[Block, list[Token]]]]] = []

    # ------------------------------------------------------------ structure

    def module(self) -> Module:
        module = Module()
        while self.token.kind != "end":
            name = self.tokens[self.at + 1]
            f = self.function()
            if f.name in module.functions:
                fail(name.span, f"function `{f.name}` is defined twice")
            module.add(f)
        return module

    def function(self) -> Function:
        if self.token.text != "func":
            fail(self.token.span, f"expected `func`, found `{self.token.text}`")
        start = self.next().span
        token = self.expect("function", "a function's name")
        name = unquote(token, 1) if token.text.startswith('@"') else token.text[1:]
        self.values, self.pending, self.pending_terminators = {}, [], []
        entry = Block("entry")
        self.params(entry)
        results: list[Type] = []
        if self.accept("->"):
            results = self.types()
        span = start.to(self.token.span)
        body = self.region(entry, is_function=True)
        self.resolve()
        return Function(name, body, tuple(results), span)

    def region(self, entry: Block, is_function: bool = False) -> Region:
        """`{ blocks }`. The entry's parameters stand before the brace in a function, in place of a label elsewhere."""
        region, labels = Region(), _Labels({}, {})
        self.expect("{")
        if is_function:
            label = self.expect("name", "the label of the entry block").text
            labels.blocks[label] = entry
        else:
            self.params(entry)
        self.expect(":")
        self.block(region.add(entry), labels)
        while not self.accept("}"):
            label_token = self.expect("name", "a block's label or `}`")
            block = labels.blocks.setdefault(label_token.text, Block(label_token.text))
            if block.region is not None:
                fail(label_token.span, f"block `{label_token.text}` is defined twice")
            if self.token.kind == "(":
                self.params(block)
            self.expect(":")
            self.block(region.add(block), labels)
        for name, span in labels.mentioned.items():
            if labels.blocks[name].region is None:
                fail(span, f"there is no block `{name}` in this region", near(name, [n for n, b in labels.blocks.items() if b.region]))
        return region

    def params(self, block: Block) -> None:
        self.expect("(")
        while not self.accept(")"):
            token = self.expect("value", "a parameter")
            self.expect(":")
            self.define(token, block.add_param(self.type(), _hint(token)))
            if self.token.kind != ")":
                self.expect(",")

    def block(self, block: Block, labels: _Labels) -> None:
        while self.token.text not in TERMINATORS:
            block.append(self.instr())
        op = self.next()
        own: list[Token] = []
        edges: list[tuple[Block, list[Token]]] = []
        if self.token.kind == "value":
            own = self.operands()
        if op.text == "branch":
            self.expect(",")
        for k in range({"jump": 1, "branch": 2}.get(op.text, 0)):
            if k:
                self.expect(",")
            label = self.expect("name", "a block's label")
            labels.mentioned.setdefault(label.text, label.span)
            target = labels.blocks.setdefault(label.text, Block(label.text))
            args: list[Token] = []
            if self.accept("("):
                args = self.operands()
                self.expect(")")
            edges.append((target, args))
        self.pending_terminators.append((block, op, own, edges))

    def instr(self) -> Instr:
        results: list[Token] = []
        if self.token.kind == "value":
            results = self.operands()
            self.expect("=")
        op = self.expect("name", "an instruction or a terminator")
        if op.text not in ROWS and op.text not in SCALAR_OPS:
            fail(op.span, f"there is no op `{op.text}`", near(op.text, [*ROWS, *SCALAR_OPS, *TERMINATORS]))
        operands = self.operands() if self.token.kind == "value" else []
        attrs: dict[str, tuple[Attr, Span]] = {}
        if self.token.kind == "{" and self.tokens[self.at + 1].kind == "name":
            attrs = self.attributes()
        regions: list[Region] = []
        while self.token.kind == "{":
            regions.append(self.region(Block()))
        types: list[Type] = []
        colon = self.token.span
        if self.accept(":"):
            types = self.types()
        if len(types) != len(results):
            fail(colon, f"{len(results)} results have {len(types)} types")
        values = {k: v for k, (v, _) in attrs.items()}
        if op.text == "const" and types and types[0].elem.is_real and isinstance(values.get("value"), (int, float)):
            values["value"] = float(DTYPES[types[0].elem].type(values["value"]))
        span = op.span.to(self.tokens[self.at - 1].span)
        instr = Instr(op.text, (), tuple(types), values, tuple(regions), span, tuple(map(_hint, results)))
        for token, value in zip(results, instr.results, strict=True):
            self.define(token, value)
        self.pending.append((instr, operands))
        return instr

    def operands(self) -> list[Token]:
        """One value or more; stops before a comma that no value follows."""
        out = [self.expect("value", "a value")]
        while self.token.kind == "," and self.tokens[self.at + 1].kind == "value":
            self.next()
            out.append(self.next())
        return out

    def types(self) -> list[Type]:
        out = [self.type()]
        while self.accept(","):
            out.append(self.type())
        return out

    def type(self) -> Type:
        token = self.expect("name", "a type")
        try:
            elem = Elem(token.text)
        except ValueError:
            fail(token.span, f"there is no element type `{token.text}`", near(token.text, [e.value for e in Elem]))
        rank = 0
        if self.accept("["):
            rank = 1
            while not self.accept("]"):
                if self.accept(","):
                    rank += 1
                elif self.token.text == "_":
                    self.next()
                else:
                    fail(self.token.span, f"expected `_` or `]`, found `{self.token.text}`")
        return Type(elem, rank)

    def attributes(self) -> dict[str, tuple[Attr, Span]]:
        out: dict[str, tuple[Attr, Span]] = {}
        self.expect("{")
        while not self.accept("}"):
            name = self.expect("name", "an attribute's name")
            self.expect("=")
            out[name.text] = self.literal(), name.span
            if self.token.kind != "}":
                self.expect(",")
        return out

    def literal(self) -> Attr:
        token = self.next()
        match token.kind:
            case "-":
                value = self.literal()
                if not isinstance(value, (int, float)):
                    fail(token.span, "`-` stands before a number")
                return -value
            case "number":
                return int(token.text) if token.text.isdigit() else float(token.text)
            case "string":
                return unquote(token)
            case "name" if token.text in _NAMED_LITERALS:
                return _NAMED_LITERALS[token.text]
            case "(":
                items: list[Attr] = []
                while not self.accept(")"):
                    items.append(self.literal())
                    if self.token.kind != ")":
                        self.expect(",")
                return tuple(items)
        fail(token.span, f"expected a literal, found `{token.text}`")

    # ------------------------------------------------------------ names

    def define(self, token: Token, value: Value) -> None:
        if token.text in self.values:
            fail(token.span, f"`{token.text}` is defined twice")
        self.values[token.text] = value

    def lookup(self, tokens: list[Token]) -> tuple[Value, ...]:
        for t in tokens:
            if t.text not in self.values:
                fail(t.span, f"there is no value `{t.text}`", near(t.text, list(self.values)))
        return tuple(self.values[t.text] for t in tokens)

    def resolve(self) -> None:
        for user, tokens in self.pending:
            user.operands = self.lookup(tokens)
        for block, op, own, edges in self.pending_terminators:
            block.terminator = Terminator(op.text, self.lookup(own), tuple((b, self.lookup(args)) for b, args in edges), op.span)


def _hint(token: Token) -> str:
    name = token.text[1:]
    return "" if name.isdigit() else name
