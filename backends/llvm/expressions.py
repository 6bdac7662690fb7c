"""Expressions of a kernel as LLVM IR, on scalars and on the lanes of a vector loop.

An index is kept as a linear form of scalars and of the lane (`backends/llvm/values.py`), and becomes a register where that is asked for; a
quotient of one may be one too. What is known of each lane is a constant.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field
from math import gcd

from tlc.backends.llvm import scalar
from tlc.backends.llvm.abi import function_symbol
from tlc.backends.llvm.code import Code
from tlc.backends.llvm.scalar import literal, register
from tlc.backends.llvm.values import Linear, Value, Word, wrapped
from tlc.frontend.ops import evaluate
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import Apply, Buffer, Const, Expr, For, Kernel, Load, Op, Var


class NotVectorError(Exception):
    """A vector loop has to be printed as a scalar one."""


@dataclass(frozen=True)
class Vector:
    """The vector loop being printed: its lanes, and which of them are active (None: all)."""

    loop: For
    lanes: int
    mask: str | None = None
    tail_only: bool = True  # the mask comes from the end of the loop alone


@dataclass
class Memory:
    """Where a buffer lies; `lanes` > 1: a local one with a copy for each lane; `fixed`: nobody writes to it;
    `older`: the variables that were there when a local one was declared.
    """

    pointer: str
    lanes: int = 1
    fixed: bool = False
    older: frozenset[str] = frozenset()


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def mask_word(lanes: list[bool]) -> Word:
    """A bool for each lane as a constant."""
    if len(set(lanes)) == 1:
        return Word(literal(lanes[0], Elem.BOOL), Elem.BOOL)
    return Word("<" + ", ".join(f"i1 {literal(x, Elem.BOOL)}" for x in lanes) + ">", Elem.BOOL, len(lanes))


def mask_lanes(text: str, lanes: int) -> list[bool] | None:
    """What each lane of a constant bool is; None for what is no constant."""
    if text in ("true", "false"):
        return [text == "true"] * lanes
    return [x.endswith("true") for x in text.strip("<>").split(", ")] if text.startswith("<") else None


@dataclass
class Expressions(ABC):
    """What is known at a place of a kernel, and the values of expressions there."""

    kernel: Kernel
    code: Code = field(default_factory=Code)
    env: dict[str, Value] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    vector: Vector | None = None
    memo: dict[int, Value] = field(default_factory=dict)  # id of an expression of the current statement -> its value
    multiples: dict[str, int] = field(default_factory=dict)  # counters of loops, which do not wrap, and what they are multiples of
    can_stop: bool = False

    @abstractmethod
    def load(self, e: Load) -> Word:
        """The element that each lane reads (`backends/llvm/accesses.py`)."""

    def value(self, e: Expr) -> Value:
        if isinstance(e, Var):
            return self.env[e.name]
        found = self.memo.get(id(e))
        if found is None:
            found = self.memo[id(e)] = self.compute(e)
        return found

    def compute(self, e: Op | Const | Load | Apply) -> Value:
        match e:
            case Op():
                return self.op(e)
            case Const():
                return Linear(constant=int(e.value)) if e.elem is Elem.I64 else Word(literal(e.value, e.elem), e.elem)
            case Load():
                return self.load(e)
            case Apply():
                return self.apply(e)

    def linear(self, e: Expr) -> Linear:
        """The value of an `i64` expression that is the same for all lanes, or linear in the lane."""
        v = self.value(e)
        if isinstance(v, Linear):
            return v
        if v.lanes > 1:
            raise NotVectorError
        return Linear(((v.text, 1),))

    def word(self, v: Value) -> Word:
        """The value in a register."""
        if isinstance(v, Word):
            return v
        base = self.total(v.terms, v.constant)
        if not v.varies:
            return Word(base, Elem.I64)
        assert self.vector is not None
        lanes = self.vector.lanes
        each = v._replace(constant=0).numbers(lanes)
        numbers = "<" + ", ".join(f"i64 {wrapped(n)}" for n in each) + ">"
        if not v.terms and not v.constant:
            return Word(numbers, Elem.I64, lanes)
        spread = self.spread(Word(base, Elem.I64), lanes).text
        return Word(self.code.ins(f"add {register(Elem.I64, lanes)} {spread}, {numbers}"), Elem.I64, lanes)

    def total(self, terms: tuple[tuple[str, int], ...], constant: int) -> str:
        """The sum in a scalar register, outer terms first."""
        out = ""
        for name, c in sorted(terms, key=lambda t: self.code.depth.get(t[0], 0)):
            term = name if c == 1 else self.code.ins(f"mul i64 {name}, {wrapped(c)}")
            out = self.code.ins(f"add i64 {out}, {term}") if out else term
        if not out:
            return str(wrapped(constant))
        return self.code.ins(f"add i64 {out}, {wrapped(constant)}") if constant else out

    def spread(self, w: Word, lanes: int) -> Word:
        """A value with as many lanes as asked for."""
        if w.lanes == lanes:
            return w
        assert w.lanes == 1
        if not w.text.startswith("%"):
            return Word(f"splat ({register(w.elem)} {w.text})", w.elem, lanes)
        type = register(w.elem, lanes)
        one = self.code.ins(f"insertelement {type} poison, {register(w.elem)} {w.text}, i64 0")
        text = self.code.ins(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")
        return Word(text, w.elem, lanes)

    def op(self, e: Op) -> Value:
        args = [self.value(a) for a in e.args]
        known = [a.value if isinstance(a, Linear) else None for a in args]
        if args and None not in known:
            return self.folded(e, [k for k in known if k is not None])
        if e.elem is Elem.I64 and all(isinstance(a, Linear) or (a.lanes == 1 and a.elem is Elem.I64) for a in args):
            forms = [a if isinstance(a, Linear) else Linear(((a.text, 1),)) for a in args]
            match e.op:
                case "add":
                    return forms[0].plus(forms[1])
                case "sub":
                    return forms[0].minus(forms[1])
                case "neg":
                    return forms[0].scaled(-1)
                case "mul" if known[1] is not None:
                    return forms[0].scaled(known[1])
                case "mul" if known[0] is not None:
                    return forms[1].scaled(known[0])
                case _:
                    pass
        if e.op in ("floordiv", "mod") and e.elem is Elem.I64:
            split = self.divided(e.op, args[0], known[1])
            if split is not None:
                return split
        settled = self.settled(e, args)
        if settled is not None:
            return settled
        words = [self.word(a) for a in args]
        if e.op == "select" and words[0].text in ("true", "false"):
            return args[1] if words[0].text == "true" else args[2]
        lanes = max([w.lanes for w in words])
        operands = tuple([(self.spread(w, lanes).text, w.elem) for w in words])
        text = scalar.emit(self.code, e.op, e.elem, operands, lanes)
        return Linear(((text, 1),)) if e.elem is Elem.I64 and lanes == 1 and text.startswith("%") else Word(text, e.elem, lanes)

    def settled(self, e: Op, args: list[Value]) -> Word | None:
        """A comparison of lanes that are known numbers, or a conjunction or disjunction of what came out of such, as a constant."""
        if self.vector is None:
            return None
        lanes = self.vector.lanes
        if e.op in _COMPARISONS and all(isinstance(a, Linear) and not a.terms for a in args):
            a, b = (x.numbers(lanes) for x in args if isinstance(x, Linear))
            return mask_word([_COMPARISONS[e.op](wrapped(x), wrapped(y)) for x, y in zip(a, b, strict=True)])
        if e.op in ("and", "or") and e.elem is Elem.BOOL:
            known = [mask_lanes(a.text, lanes) if isinstance(a, Word) else None for a in args]
            both = [k for k in known if k is not None]
            if len(both) == 2:
                return mask_word([x and y if e.op == "and" else x or y for x, y in zip(*both, strict=True)])
        return None

    def divided(self, op: str, a: Value, by: int | None) -> Value | None:
        """A quotient or remainder of an index by a number whose lanes are known, because the rest is a multiple of the number; or that
        are of one multiple of it, because the rest counts in steps that the lanes do not fill; or that pass one multiple of it at most.

            (8 i + l) // 2 = 4 i + (0, 0, 1, 1, ..)             (16 i + l) // 784 = 16 i // 784,  16 lanes
            (16 i + l) // 196 = q + (r + l >= 196)              for q = 16 i // 196, r = 16 i % 196
        """
        if by is None or by <= 0 or not isinstance(a, Linear) or not a.varies or self.vector is None:
            return None
        if any(name not in self.multiples or abs(c) > 1 << 20 for name, c in a.terms):
            return None  # a multiple that wraps is none
        grain = gcd(*(c * self.multiples[name] for name, c in a.terms))
        numbers = a.numbers(self.vector.lanes)
        if any(abs(n) > 1 << 61 for n in numbers):
            return None  # what wraps is not what it seems
        rest = Linear(a.terms)
        if grain % by == 0:
            if op == "mod":
                return Linear.of((), [n % by for n in numbers])
            if all(c % by == 0 for _, c in a.terms):
                return Linear.of(tuple((name, c // by) for name, c in a.terms), [n // by for n in numbers])
        elif by % grain or min(numbers) < 0 or max(numbers) >= grain:
            return self.passing(op, rest, numbers, by) if min(numbers) >= 0 and max(numbers) < by else None
        text = scalar.emit(self.code, op, Elem.I64, ((self.word(rest).text, Elem.I64), (str(by), Elem.I64)), 1)
        return Linear(((text, 1),)).plus(Linear.of((), [n // by if op == "floordiv" else n for n in numbers]))

    def passing(self, op: str, rest: Linear, numbers: list[int], by: int) -> Word:
        """The quotient or remainder of a rest plus a number below the divisor for each lane."""
        assert self.vector is not None
        lanes, type = self.vector.lanes, register(Elem.I64, self.vector.lanes)
        operands = ((self.word(rest).text, Elem.I64), (str(by), Elem.I64))
        quotient, left = (scalar.emit(self.code, name, Elem.I64, operands, 1) for name in ("floordiv", "mod"))
        at = self.word(Linear(((left, 1),)).plus(Linear.of((), numbers))).text
        passed = self.code.ins(f"icmp sge {type} {at}, splat (i64 {by})")
        if op == "mod":
            less = self.code.ins(f"sub {type} {at}, splat (i64 {by})")
            return Word(self.code.ins(f"select <{lanes} x i1> {passed}, {type} {less}, {type} {at}"), Elem.I64, lanes)
        one = self.code.ins(f"zext <{lanes} x i1> {passed} to {type}")
        return Word(self.code.ins(f"add {type} {self.spread(Word(quotient, Elem.I64), lanes).text}, {one}"), Elem.I64, lanes)

    def folded(self, e: Op, numbers: list[int]) -> Value:
        """An op on constants."""
        result = evaluate(e.op, e.elem, ((wrapped(n), Elem.I64) for n in numbers))
        return Linear(constant=int(result)) if e.elem is Elem.I64 else Word(literal(result, e.elem), e.elem)

    def apply(self, e: Apply) -> Value:
        args = ["ptr %ctx"]
        for a in e.args:
            if isinstance(a, Buffer):
                args.append(f"ptr {self.memory[a.name].pointer}")
                args += [f"i64 {self.word(self.linear(extent)).text}" for extent in a.shape]
                continue
            w = self.word(self.value(a))
            if w.lanes > 1:
                raise NotVectorError
            args.append(f"{register(w.elem)} {w.text}")
        type = f"{{ i32, {register(e.elem)} }}"
        both = self.code.here(f"call {type} {function_symbol(e.function)}({', '.join(args)})")
        status = self.code.here(f"extractvalue {type} {both}, 0")
        fine = self.code.here(f"icmp eq i32 {status}, 0")
        label = self.code.label("fine")
        self.code.put(f"br i1 {fine}, label %{label}, label %stopped, !prof !{{!\"branch_weights\", i32 1048575, i32 1}}")
        self.code.start(label)
        self.can_stop = True
        text = self.code.here(f"extractvalue {type} {both}, 1")
        return Linear(((text, 1),)) if e.elem is Elem.I64 else Word(text, e.elem)
