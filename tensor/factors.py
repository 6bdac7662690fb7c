"""The derivative of a product of many by one of its factors: the product of the others, as an expression that has derivatives itself.

With `m` the number of zeros among the others, `rest` the product of all elements that are not zero, and `s` and `q` the sums of the zeros
among the others and of their squares (0 both, but not their derivatives):

    m = 0       rest / x where x is not zero, else rest
    m = 1       that times s                                       the zero itself is a factor of the others
    m = 2       that times (s * s - q) / 2                         the product of two zeros
    m > 2       0                                                  as are its first two derivatives

So a product has its first three derivatives wherever its elements are zero, and every one where no more than two are. Where the
factor before a zero has overflowed, the zero wins.

Method: Newton's identities, by which power sums give elementary symmetric polynomials.
"""

from __future__ import annotations

from collections.abc import Callable

from tlc.ssa.builder import Builder
from tlc.ssa.ir import I64, Type, Value


def is_zero(b: Builder, x: Value) -> Value:
    return b.op("eq", x, b.const(0.0, x.type))


def one_if_zero(b: Builder, x: Value) -> Value:
    """1, an `i64`, for each element that is zero: summed, their number."""
    return b.convert(is_zero(b, x), I64)


def not_zero(b: Builder, x: Value) -> Value:
    """The element, or 1 in place of a zero."""
    return b.op("select", is_zero(b, x), b.const(1.0, x.type), x)


def only_zero(b: Builder, x: Value) -> Value:
    """The element if it is zero, or 0: so 0, but with a derivative."""
    return b.op("select", is_zero(b, x), x, b.const(0.0, x.type))


def square_of_zero(b: Builder, x: Value) -> Value:
    zero = only_zero(b, x)
    return b.op("mul", zero, zero)


# What `others` is told of all elements: how each is found, by a reduction of a part of every element; of what type, if not of theirs.
KNOWN: tuple[tuple[str, Callable[[Builder, Value], Value], Type | None], ...] = (
    ("sum", one_if_zero, I64),
    ("prod", not_zero, None),
    ("sum", only_zero, None),
    ("sum", square_of_zero, None),
)


def others(b: Builder, x: Value, zeros: Value, rest: Value, total: Value, squares: Value) -> Value:
    """The product of all elements but `x`, of what is `KNOWN` of all."""
    type = x.type
    nothing = b.const(0.0, type)
    count = b.op("sub", zeros, one_if_zero(b, x))
    before = b.op("select", is_zero(b, x), rest, b.op("div", rest, not_zero(b, x)))
    finite = b.op("select", b.op("eq", b.op("sub", before, before), nothing), before, nothing)
    first = b.op("sub", total, only_zero(b, x))
    square = b.op("sub", squares, square_of_zero(b, x))
    second = b.op("mul", b.op("sub", b.op("mul", first, first), square), b.const(0.5, type))
    two = b.op("select", b.op("eq", count, b.i64(2)), b.op("mul", finite, second), nothing)
    some = b.op("select", b.op("eq", count, b.i64(1)), b.op("mul", finite, first), two)
    return b.op("select", b.op("eq", count, b.i64(0)), before, some)
