"""The text form of kernels (`.tk`): `print_kernel` and its inverse `parse_kernels`.

    kernel row_sum(y: out f32[n], x: f32[n, 64], n: i64) {
      note "sum over k, sixteen lanes"
      for i in 0..n {
        local acc: f32[16]
        vector<16> l in 0..16 {
          acc[l] = 0.0f32
        }
        for k in 0..64 by 16 {
          vector<16> l1 in 0..16 {
            acc[l1] = acc[l1] + x[i, k + l1]
          }
        }
        ...
        y[i] = acc[0]
      }
    }

Constants carry their type (`1.5f32`, `3i32`, `inff64`; a bare integer is an `i64`). Ops with a symbol are infix and those
without are calls; a conversion is a call of its type, other ops whose type does not follow from their operands name it
(`bitcast:u32(x)`), and so does a call of a host function (`@"escape":i64(x, y)`, a buffer by its name). A guarded load
says its condition behind the indices: `x[i - 1 if (i >= 1) & (i <= n)]`. A kernel for a GPU reads

    kernel reversed(y: out f32[n, 64], x: f32[n, 64], n: i64) {
      block i in 0..n {
        shared row: f32[64]
        thread t in 0..64 {
          row[t] = x[i, t]
          barrier
          let other = shuffle_xor(row[63 - t], 1)
          y[i, t] = other
        }
      }
    }

and has for tensor cores `ldmatrix a[0] = s[t % 16, t // 16 * 8]` (`ldmatrix.trans` for transposed ones) and `mma acc[0] += a[0] @ b[0]`;
copies to shared memory that are not waited for are `cp.async s[t, 0] = x[i, 8 * t]`, their groups `cp.async.commit` and `cp.async.wait 1`.

A buffer that the kernel only works in is a last output: `packed: work f32[512]`. Attributes stand after the parameters: `alias(0, 1)` lets
output 0 share memory with input 1, `can_fail`. `#` begins a comment.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import (
    Apply,
    Barrier,
    Buffer,
    CommitCopies,
    Const,
    CopyAsync,
    Declare,
    Exchange,
    Expr,
    For,
    How,
    If,
    Kernel,
    Kind,
    Let,
    Load,
    LoadMatrices,
    Mma,
    Op,
    Space,
    Stmt,
    Store,
    Var,
    WaitCopies,
    op,
)

# Tight binds high. Comparisons do not chain.
_PRECEDENCE = {
    "eq": 1, "ne": 1, "lt": 1, "le": 1, "gt": 1, "ge": 1,
    "or": 2, "xor": 3, "and": 4, "shl": 5, "shr": 5, "add": 6, "sub": 6, "mul": 7, "div": 7, "floordiv": 7, "mod": 7,
}  # fmt: skip
_BY_SYMBOL = {SCALAR_OPS[name].symbol: name for name in _PRECEDENCE}

_LOOPS = {"for": Kind.SERIAL} | {k.value: k for k in Kind if k is not Kind.SERIAL}
_SPACES = {s.value: s for s in (Space.LOCAL, Space.SHARED)}
_EXCHANGES = {f"shuffle_{h.value}": h for h in How}
_LDMATRIX = {False: "ldmatrix", True: "ldmatrix.trans"}


# ---------------------------------------------------------------- printing


def print_kernel(kernel: Kernel) -> str:
    """The kernel as text that `parse_kernels` reads back to an equal kernel (notes included)."""
    params = [f"{b.name}: out {_shape(b)}" for b in kernel.results]
    params += [f"{b.name}: work {_shape(b)}" for b in kernel.outputs[len(kernel.results) :]]
    params += [f"{p.name}: {p.elem}" if isinstance(p, Var) else f"{p.name}: {_shape(p)}" for p in kernel.inputs]
    head = f"kernel {kernel.name}({', '.join(params)})"
    head += "".join(f" alias({o}, {i})" for o, i in kernel.may_alias) + (" can_fail" if kernel.can_fail else "")
    lines = [f"{head} {{", *(f"  note {json.dumps(n, ensure_ascii=False)}" for n in kernel.notes)]
    lines += (f"  {line}" for line in _body(kernel.body))
    return "\n".join([*lines, "}"]) + "\n"


def print_kernels(kernels: dict[str, Kernel]) -> str:
    return "\n".join(print_kernel(k) for k in kernels.values())


def print_expr(e: Expr) -> str:
    return _expr(e, 0)


def _shape(b: Buffer) -> str:
    return f"{b.elem}[{', '.join(_expr(e, 0) for e in b.shape)}]"


def _body(body: tuple[Stmt, ...]) -> Iterator[str]:
    for s in body:
        yield from _stmt(s)


def _stmt(s: Stmt) -> Iterator[str]:
    match s:
        case For():
            kind = {Kind.SERIAL: "for", Kind.VECTOR: f"vector<{s.width}>"}.get(s.kind, s.kind.value)
            kind += f"({_expr(s.work, 0)})" if s.work is not None else ""
            step = f" by {s.step}" if s.step != 1 else ""
            yield f"{kind} {s.var.name} in {_expr(s.start, 0)}..{_expr(s.stop, 0)}{step} {{"
            yield from (f"  {line}" for line in _body(s.body))
            yield "}"
        case Let():
            yield f"let {s.var.name} = {_expr(s.value, 0)}"
        case Store():
            yield f"{s.buffer.name}[{', '.join(_expr(i, 0) for i in s.indices)}] = {_expr(s.value, 0)}"
        case If():
            yield f"if {_expr(s.cond, 0)} {{"
            yield from (f"  {line}" for line in _body(s.then))
            if s.other:
                yield "} else {"
                yield from (f"  {line}" for line in _body(s.other))
            yield "}"
        case Declare():
            yield f"{s.buffer.space.value} {s.buffer.name}: {_shape(s.buffer)}"
        case Barrier():
            yield "barrier"
        case Exchange():
            yield f"let {s.var.name} = shuffle_{s.how.value}({_expr(s.value, 0)}, {_expr(s.lane, 0)})"
        case LoadMatrices():
            yield f"{_LDMATRIX[s.transposed]} {_expr(s.into, 0)} = {_expr(s.row, 0)}"
        case Mma():
            yield f"mma {_expr(s.acc, 0)} += {_expr(s.a, 0)} @ {_expr(s.b, 0)}"
        case CopyAsync():
            yield f"cp.async {_expr(s.into, 0)} = {_expr(s.source, 0)}"
        case CommitCopies():
            yield "cp.async.commit"
        case WaitCopies():
            yield f"cp.async.wait {s.pending}"


def _const(c: Const) -> str:
    match c.value:
        case bool():
            return "true" if c.value else "false"
        case int():
            return str(c.value) if c.elem is Elem.I64 else f"{c.value}{c.elem}"
        case float():
            return f"{c.value!r}{c.elem}"


def _expr(e: Expr, outer: int) -> str:
    match e:
        case Const():
            return _const(e)
        case Var():
            return e.name
        case Load():
            guard = "" if e.guard is None else f" if {_expr(e.guard, 0)}"
            return f"{e.buffer.name}[{', '.join(_expr(i, 0) for i in e.indices)}{guard}]"
        case Apply():
            args = ", ".join(a.name if isinstance(a, Buffer) else _expr(a, 0) for a in e.args)
            return f"@{json.dumps(e.function)}:{e.elem}({args})"
        case Op(op, elem, args) if op in _PRECEDENCE:
            inner = _PRECEDENCE[op]
            text = f"{_expr(args[0], inner + (inner == 1))} {SCALAR_OPS[op].symbol} {_expr(args[1], inner + 1)}"
            return f"({text})" if inner < outer else text
        case Op(op, elem, args):
            name = str(elem) if op == "convert" else f"{op}:{elem}" if SCALAR_OPS[op].gives == "type" else op
            return f"{name}({', '.join(_expr(a, 0) for a in args)})"


# ---------------------------------------------------------------- parsing

_NUMBER = r"-?(?:inf|nan|\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)"
_TYPES = "|".join(sorted((e.value for e in Elem), key=len, reverse=True))
_TOKEN = re.compile(
    rf"""[\s]+ | \#[^\n]*
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>{_NUMBER}(?:{_TYPES})(?![\w.(]) | (?:-(?=\d))?\d[\d_]*(?![\w]))
    | (?P<name>[A-Za-z_]\w*(?:\.\w+)*)
    | (?P<punct>\.\. | // | << | >> | <= | >= | == | != | [-+*/%&|^<>=(){{}}\[\],:@~])""",
    re.VERBOSE,
)

_BEFORE_OPERANDS = ("yield", "of", "at", "in", "by", "if")  # words behind which an expression begins: a `-` there is a sign


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def parse_kernels(text: str, path: str = "<kernel>") -> dict[str, Kernel]:
    """Every kernel of a text, by name. Raises `CompileError` at the first mistake."""
    p = Parser(Source(path, text))
    out: dict[str, Kernel] = {}
    while p.token.kind != "end":
        k = p.kernel()
        out[k.name] = k
    return out


def parse_kernel(text: str, path: str = "<kernel>") -> Kernel:
    (only,) = parse_kernels(text, path).values()
    return only


class Parser:
    """Recursive descent with one token of look-ahead; names are resolved as they are read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = list(self.scan())
        self.position = 0
        self.names: dict[str, Var | Buffer] = {}

    def scan(self) -> Iterator[_Token]:
        text, at = self.source.text, 0
        ends_operand = False  # after an operand `-` is the operator
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m and m.lastgroup == "number" and m.group().startswith("-") and ends_operand:
                m = re.compile("(?P<punct>-)").match(text, at)
            if m is None:
                raise self.error(f"unexpected character `{text[at]}`", at, at + 1)
            at = m.end()
            if m.lastgroup:
                ends_operand = (m.lastgroup in ("number", "name") and m.group() not in _BEFORE_OPERANDS) or m.group() in (")", "]")
                yield _Token(m.lastgroup, m.group(), m.start(), m.end())
        yield _Token("end", "", at, at)

    def error(self, message: str, start: int, end: int) -> CompileError:
        return CompileError([Diagnostic("E0101", message, Span(self.source, start, end))])

    def fail(self, message: str) -> CompileError:
        return self.error(message, self.token.start, self.token.end)

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    def take(self) -> _Token:
        self.position += 1
        return self.tokens[self.position - 1]

    def eat(self, text: str) -> bool:
        if self.token.text == text and self.token.kind != "string":
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.eat(text):
            raise self.fail(f"expected `{text}`, found `{self.token.text or 'end of text'}`")

    def ident(self) -> str:
        if self.token.kind != "name":
            raise self.fail(f"expected a name, found `{self.token.text or 'end of text'}`")
        return self.take().text

    def elem(self) -> Elem:
        try:
            return Elem(self.token.text)
        except ValueError:
            raise self.fail(f"expected an element type, found `{self.token.text}`") from None
        finally:
            self.take()

    def integer(self) -> int:
        if not self.token.text.isdecimal():
            raise self.fail(f"expected a number, found `{self.token.text or 'end of text'}`")
        return int(self.take().text)

    def string(self) -> str:
        value = json.loads(self.take().text)
        assert isinstance(value, str)
        return value

    # -- kernels

    def kernel(self) -> Kernel:
        self.expect("kernel")
        start = self.token.start
        name = self.ident()
        self.expect("(")
        scalars = self.find_scalars()
        self.names = dict(scalars)
        outputs: list[Buffer] = []
        works: list[Buffer] = []
        inputs: list[Buffer | Var] = []
        while not self.eat(")"):
            param = self.ident()
            self.expect(":")
            role = outputs if self.eat("out") else works if self.eat("work") else inputs
            elem = self.elem()
            if self.token.text == "[":
                b = Buffer(param, elem, self.indices(), Space.GLOBAL)
                self.names[param] = b
                role.append(b)
            else:
                inputs.append(scalars[param])
            self.eat(",")
        alias: list[tuple[int, int]] = []
        can_fail = False
        while not self.eat("{"):
            if self.eat("alias"):
                self.expect("(")
                o = self.integer()
                self.expect(",")
                alias.append((o, self.integer()))
                self.expect(")")
            else:
                self.expect("can_fail")
                can_fail = True
        notes: list[str] = []
        while self.eat("note"):
            notes.append(self.string())
        span = Span(self.source, start, self.token.end)
        return Kernel(name, (*outputs, *works), tuple(inputs), self.rest(), tuple(alias), can_fail, len(works), span, tuple(notes))

    def find_scalars(self) -> dict[str, Var]:
        """The scalar parameters: shapes may name those that come later."""
        out: dict[str, Var] = {}
        depth = 0  # parentheses in shapes
        for k in range(self.position, len(self.tokens)):
            text = self.tokens[k].text
            depth += (text == "(") - (text == ")")
            if depth < 0:
                break
            if text == ":" and self.tokens[k + 1].text in {e.value for e in Elem} and self.tokens[k + 2].text != "[":
                out[self.tokens[k - 1].text] = Var(self.tokens[k - 1].text, Elem(self.tokens[k + 1].text))
        return out

    def rest(self) -> tuple[Stmt, ...]:
        """Statements up to the brace that closes them."""
        out: list[Stmt] = []
        while not self.eat("}"):
            out.append(self.stmt())
        return tuple(out)

    def block(self) -> tuple[Stmt, ...]:
        self.expect("{")
        return self.rest()

    def stmt(self) -> Stmt:
        if self.eat("let"):
            name = self.ident()
            self.expect("=")
            how = _EXCHANGES.get(self.token.text)
            if how is not None:
                return self.exchange(name, how)
            value = self.expr()
            var = Var(name, value.elem)
            self.names[name] = var
            return Let(var, value)
        space = _SPACES.get(self.token.text)
        if space is not None:
            self.take()
            name = self.ident()
            self.expect(":")
            b = Buffer(name, self.elem(), self.indices(), space)
            self.names[name] = b
            return Declare(b)
        if self.eat("barrier"):
            return Barrier()
        for transposed, word in _LDMATRIX.items():
            if self.eat(word):
                return LoadMatrices(self.element("="), self.element(), transposed)
        if self.eat("cp.async"):
            return CopyAsync(self.element("="), self.element())
        if self.eat("cp.async.commit"):
            return CommitCopies()
        if self.eat("cp.async.wait"):
            return WaitCopies(self.integer())
        if self.eat("mma"):
            return Mma(self.element("+="), self.element("@"), self.element())
        if self.eat("if"):
            cond = self.expr()
            then = self.block()
            return If(cond, then, self.block() if self.eat("else") else ())
        kind = _LOOPS.get(self.token.text)
        if kind is not None:
            self.take()
            return self.loop(kind)
        buffer = self.buffer(self.ident())
        indices = self.indices()
        self.expect("=")
        return Store(buffer, indices, self.expr())

    def exchange(self, name: str, how: How) -> Exchange:
        self.take()
        self.expect("(")
        value = self.expr()
        self.expect(",")
        lane = self.expr()
        self.expect(")")
        var = Var(name, value.elem)
        self.names[name] = var
        return Exchange(var, value, how, lane)

    def loop(self, kind: Kind) -> For:
        width, work = 0, None
        if kind is Kind.PARALLEL:
            self.expect("(")
            work = self.expr()
            self.expect(")")
        if kind is Kind.VECTOR:
            self.expect("<")
            width = self.integer()
            self.expect(">")
        var = Var(self.ident())
        self.expect("in")
        start = self.expr()
        self.expect("..")
        stop = self.expr()
        step = self.integer() if self.eat("by") else 1
        self.names[var.name] = var
        return For(var, start, stop, self.block(), kind, step, width, work)

    # -- expressions

    def lookup(self, name: str) -> Var | Buffer:
        if name not in self.names:
            self.position -= 1
            raise self.fail(f"`{name}` is not defined")
        return self.names[name]

    def buffer(self, name: str) -> Buffer:
        found = self.lookup(name)
        if not isinstance(found, Buffer):
            raise self.fail(f"`{name}` is not a buffer")
        return found

    def indices(self) -> tuple[Expr, ...]:
        self.expect("[")
        out: list[Expr] = []
        while not self.eat("]"):
            out.append(self.expr())
            self.eat(",")
        return tuple(out)

    def element(self, before: str = "") -> Load:
        """An element of a buffer, and what must stand behind it."""
        found = self.load(self.buffer(self.ident()))
        for symbol in before:
            self.expect(symbol)
        return found

    def load(self, buffer: Buffer) -> Load:
        """`[i, j]`, or with a guard `[i, j if c]`."""
        self.expect("[")
        out: list[Expr] = []
        guard: Expr | None = None
        while not self.eat("]"):
            if self.eat("if"):
                guard = self.expr()
            else:
                out.append(self.expr())
            self.eat(",")
        return Load(buffer, tuple(out), guard)

    def expr(self, least: int = 1) -> Expr:
        left = self.primary()
        while self.token.kind == "punct" and _PRECEDENCE.get(_BY_SYMBOL.get(self.token.text, ""), 0) >= least:
            name = _BY_SYMBOL[self.take().text]
            right = self.expr(_PRECEDENCE[name] + 1)
            left = op(name, left, right)
        return left

    def primary(self) -> Expr:
        if self.eat("("):
            inner = self.expr()
            self.expect(")")
            return inner
        if self.eat("@"):
            function = self.string()
            self.expect(":")
            elem = self.elem()
            return Apply(function, elem, self.arguments())
        if self.token.kind == "number":
            return _number(self.take().text)
        name = self.ident()
        if name in ("true", "false"):
            return Const(name == "true", Elem.BOOL)
        if self.token.text == "[":
            return self.load(self.buffer(name))
        if self.token.text in ("(", ":"):
            typed = self.elem() if self.eat(":") else None
            if name in {e.value for e in Elem}:
                name, typed = "convert", Elem(name)
            if name not in SCALAR_OPS:
                raise self.fail(f"`{name}` is not an op")
            args = self.arguments()
            return op(name, *(a for a in args if not isinstance(a, Buffer)), elem=typed)
        found = self.lookup(name)
        if isinstance(found, Buffer):
            raise self.fail(f"`{name}` is a buffer and needs indices")
        return found

    def arguments(self) -> tuple[Expr | Buffer, ...]:
        self.expect("(")
        out: list[Expr | Buffer] = []
        while not self.eat(")"):
            following = self.tokens[self.position + 1].text
            found = self.names.get(self.token.text)
            if isinstance(found, Buffer) and following in (",", ")"):
                self.take()
                out.append(found)
            else:
                out.append(self.expr())
            self.eat(",")
        return tuple(out)


def _number(text: str) -> Const:
    m = re.fullmatch(rf"({_NUMBER})({_TYPES})", text)
    if m is None:
        return Const(int(text), Elem.I64)
    elem = Elem(m.group(2))
    if elem.is_real:
        value = float(m.group(1))
        return Const(math.nan if math.isnan(value) else value, elem)
    return Const(int(m.group(1)), elem)
