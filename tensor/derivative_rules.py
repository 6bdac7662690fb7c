"""The derivative of every scalar op: one row an op, one entry an operand. The table is total over `SCALAR_OPS`.

An entry says what the adjoint of the result contributes to the adjoint of the operand (reverse mode); `None` is an
operand without derivative: not real, or of an op that is constant piece by piece. In an entry, `d.g` is the adjoint of the result,
`d.a`, `d.b`, `d.c` are the operands and `d.y` is the result; what an entry does not mention is not computed. Where a product
is linear in the adjoint it is written `mul(adjoint, other factor)`: a reduction of it is then a matrix product.

At kinks (LANGUAGE.md, "Derivatives"): `max(a, b)` gives all to a only if a > b, which is max(a, b) > b: so the result is enough, and a
need not be kept; `abs` at 0 gives 0, `sqrt` at 0 inf; what rounds gives 0.
`select` differentiates both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Instr, Value


class Forward(Protocol):
    """Where the code of a derivative finds values of the code that is differentiated."""

    def __call__(self, value: Value, /) -> Value: ...


class At:
    """One op at which a rule is applied: its adjoint, operands and result, and a few ops on such values."""

    def __init__(self, b: Builder, instr: Instr, adjoint: Value, forward: Forward) -> None:
        self.builder, self.instr, self.g, self.forward = b, instr, adjoint, forward

    @property
    def a(self) -> Value:
        return self.forward(self.instr.operands[0])

    @property
    def b(self) -> Value:
        return self.forward(self.instr.operands[1])

    @property
    def c(self) -> Value:
        return self.forward(self.instr.operands[2])

    @property
    def y(self) -> Value:
        return self.forward(self.instr.result)

    def op(self, name: str, *args: Value) -> Value:
        return self.builder.op(name, *args)

    def number(self, value: float) -> Value:
        """A constant of the adjoint's type."""
        return self.builder.const(float(value), self.g.type)

    def mul(self, x: Value, y: Value) -> Value:
        return self.op("mul", x, y)

    def neg(self, x: Value) -> Value:
        return self.op("neg", x)

    def only_if(self, holds: Value, x: Value) -> Value:
        """`x` or 0."""
        return self.op("select", holds, x, self.number(0))

    def unless(self, holds: Value, x: Value) -> Value:
        return self.op("select", holds, self.number(0), x)


Partial = Callable[[At], Value]


def _same(d: At) -> Value:
    return d.g


def _negative(d: At) -> Value:
    return d.neg(d.g)


def _convert(d: At) -> Value:
    return d.builder.convert(d.g, d.instr.operands[0].type)


def _pow_base(d: At) -> Value:
    """b * a^(b - 1), and 0 where b = 0 even at a = 0."""
    slope = d.mul(d.b, d.op("pow", d.a, d.op("sub", d.b, d.number(1))))
    return d.mul(d.g, d.unless(d.op("eq", d.b, d.number(0)), slope))


def _pow_exponent(d: At) -> Value:
    """a^b * log a, and 0 where a = 0: there the power does not depend on b > 0."""
    return d.mul(d.g, d.unless(d.op("eq", d.a, d.number(0)), d.mul(d.y, d.op("log", d.a))))


def _select_other(d: At) -> Value:
    return d.unless(d.a, d.g)


def _erf(d: At) -> Value:
    """2 / sqrt(pi) * exp(-a^2)."""
    return d.mul(d.g, d.mul(d.number(2 / math.sqrt(math.pi)), d.op("exp", d.neg(d.mul(d.a, d.a)))))


NONE: tuple[Partial | None, ...] = (None, None, None)  # for ops of up to three operands

# fmt: off
RULES: dict[str, tuple[Partial | None, ...]] = {
    "add":      (_same,                                                 _same),
    "sub":      (_same,                                                 _negative),
    "mul":      (lambda d: d.mul(d.g, d.b),                             lambda d: d.mul(d.g, d.a)),
    "div":      (lambda d: d.op("div", d.g, d.b),                       lambda d: d.neg(d.op("div", d.mul(d.g, d.y), d.b))),
    "floordiv": NONE,
    "mod":      (_same,                                                 lambda d: d.neg(d.mul(d.g, d.op("floordiv", d.a, d.b)))),
    "neg":      (_negative,),
    "abs":      (lambda d: d.mul(d.g, d.op("sign", d.a)),),
    "sign":     NONE,
    "max":      (lambda d: d.only_if(d.op("gt", d.y, d.b), d.g),        lambda d: d.unless(d.op("gt", d.y, d.b), d.g)),
    "min":      (lambda d: d.only_if(d.op("lt", d.y, d.b), d.g),        lambda d: d.unless(d.op("lt", d.y, d.b), d.g)),
    "fma":      (lambda d: d.mul(d.g, d.b),                             lambda d: d.mul(d.g, d.a),                       _same),
    "and":      NONE,
    "or":       NONE,
    "xor":      NONE,
    "not":      NONE,
    "shl":      NONE,
    "shr":      NONE,
    "eq":       NONE,
    "ne":       NONE,
    "lt":       NONE,
    "le":       NONE,
    "gt":       NONE,
    "ge":       NONE,
    "select":   (None,                                                  lambda d: d.only_if(d.a, d.g),                   _select_other),
    "isnan":    NONE,
    "floor":    NONE,
    "ceil":     NONE,
    "trunc":    NONE,
    "round":    NONE,
    "sqrt":     (lambda d: d.op("div", d.mul(d.g, d.number(0.5)), d.y),),
    "convert":  (_convert,),
    "bitcast":  NONE,
    "key_make": NONE,
    "key_hi":   NONE,
    "key_lo":   NONE,
    "exp":      (lambda d: d.mul(d.g, d.y),),
    "expm1":    (lambda d: d.mul(d.g, d.op("add", d.y, d.number(1))),),
    "log":      (lambda d: d.op("div", d.g, d.a),),
    "log1p":    (lambda d: d.op("div", d.g, d.op("add", d.a, d.number(1))),),
    "sin":      (lambda d: d.mul(d.g, d.op("cos", d.a)),),
    "cos":      (lambda d: d.neg(d.mul(d.g, d.op("sin", d.a))),),
    "tan":      (lambda d: d.mul(d.g, d.op("add", d.mul(d.y, d.y), d.number(1))),),
    "tanh":     (lambda d: d.mul(d.g, d.op("sub", d.number(1), d.mul(d.y, d.y))),),
    "erf":      (_erf,),
    "iterations": NONE,
    "dot2":     NONE,
    "dot4":     NONE,
    "fma2":     NONE,
    "fma2_normal": NONE,
    "ldexp":    NONE,
    "pow":      (_pow_base,                                             _pow_exponent),
}
# fmt: on

_missing = set(SCALAR_OPS) ^ set(RULES)
assert not _missing, f"scalar ops without a derivative, or derivatives without an op: {sorted(_missing)}"


def partial(instr: Instr, operand: int) -> Partial | None:
    """The rule for one operand of a scalar op, where both it and the result are real."""
    if not instr.result.type.elem.is_real or not instr.operands[operand].type.elem.is_real:
        return None
    return RULES[instr.op][operand]


def by_own_rule(b: Builder, instr: Instr, adjoints: Sequence[Value], forward: Forward) -> Iterator[tuple[Value, Value]]:
    """The real operands of a `call_vjp` and what its rule gives for each; `adjoints` are those of its real results."""
    rule, rest = instr.attrs["rule"], iter(adjoints)
    assert isinstance(rule, str)
    real = [v for v in instr.operands if v.type.elem.is_real]
    results = [forward(r) for r in instr.results]
    given = [next(rest) if v.type.elem.is_real else v for v in results]
    gradients = b.call(rule, [*map(forward, instr.operands), *results, *given], [v.type for v in real])
    return zip(real, gradients, strict=True)
