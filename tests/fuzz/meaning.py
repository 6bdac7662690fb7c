"""What TL's operations mean, in Python and NumPy scalars: the generator writes each program in this language too.

It shares no code with the compiler but the elementary functions (`exp`, `sin`), which are TL's own. An integer is a Python `int`
that `wrap` keeps in range, a real a NumPy scalar of its type, a tensor a `Tensor`, a struct or tuple a Python tuple (of a struct array, with
tensors in it). Nothing is changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem

Value = Any

WIDTHS = {"i8": (8, True), "i32": (32, True), "i64": (64, True), "u8": (8, False), "u32": (32, False)}
REALS: dict[str, Any] = {"f16": np.float32, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
NARROW = ("f16", "bf16")  # held and computed in f32, and rounded


class Stopped(Exception):
    """The program stopped itself. The message is None where only the kind is foretold."""

    def __init__(self, kind: str, message: str | None = None) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class TooLong(Exception):
    """The program does more than a test can afford."""


# ---------------------------------------------------------------- numbers


def wrap(elem: str, value: int) -> int:
    width, signed = WIDTHS[elem]
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def number(elem: str, value: Any) -> Value:
    """A literal."""
    return narrow(elem, REALS[elem](value)) if elem in REALS else bool(value) if elem == "bool" else wrap(elem, value)


def narrow(elem: str, value: Value) -> Value:
    """An f32 rounded to the nearest value of a narrow type, of two to the even one; values of other types as they are."""
    if elem == "f16":
        return np.float32(np.float16(value))
    if elem == "bf16" and np.isfinite(value):
        bits = int(np.float32(value).view(np.uint32))
        high, rest = bits >> 16, bits & 0xFFFF
        high += rest > 0x8000 or (rest == 0x8000 and high & 1)
        return np.uint32(high << 16).view(np.float32)
    return value


def _floordiv(elem: str, a: Value, b: Value) -> Value:
    if elem in REALS:
        return np.floor(a / b)
    if b == 0:
        raise Stopped("division", "division by zero")
    return a // b


def _mod(elem: str, a: Value, b: Value) -> Value:
    if elem in REALS:
        return _real_mod(a, b)
    if b == 0:
        raise Stopped("division", "remainder of a division by zero")
    return a % b


def _real_mod(a: Value, b: Value) -> Value:
    """The sign of the divisor, as Python has it."""
    if np.isnan(a) or np.isnan(b) or np.isinf(a) or b == 0:
        return type(a)(np.nan)
    rest = type(a)(math.fmod(a, b))
    if rest == 0:
        return np.copysign(type(a)(0), b) if np.isfinite(b) else rest
    return rest + b if (rest < 0) != (b < 0) else rest


def _maximum(elem: str, a: Value, b: Value) -> Value:
    if elem in REALS:
        if a != a or b != b:
            return REALS[elem](np.nan)
        if a == 0 and b == 0:
            return b if np.signbit(a) else a
    return max(a, b)


def _minimum(elem: str, a: Value, b: Value) -> Value:
    if elem in REALS:
        if a != a or b != b:
            return REALS[elem](np.nan)
        if a == 0 and b == 0:
            return a if np.signbit(a) else b
    return min(a, b)


def _shift(elem: str, b: Value) -> int:
    return int(b) & (WIDTHS[elem][0] - 1)


def _power(elem: str, x: Value, n: int) -> Value:
    """Squares, the low bit of the exponent first."""
    if elem not in REALS:
        if n < 0:
            raise Stopped("assert", f"an integer to the negative power {n} is no integer")
        return pow(x, n, 1 << 64)
    result, base, bits = REALS[elem](1), x, abs(n)
    while bits:
        if bits & 1:
            result = narrow(elem, result * base)
        bits >>= 1
        if bits:
            base = narrow(elem, base * base)
    return REALS[elem](1) / result if n < 0 else result


# fmt: off
OPS: dict[str, Callable[..., Value]] = {
    "add":      lambda e, a, b: a + b,
    "sub":      lambda e, a, b: a - b,
    "mul":      lambda e, a, b: a * b,
    "div":      lambda e, a, b: a / b,
    "floordiv": _floordiv,
    "mod":      _mod,
    "power":    _power,
    "neg":      lambda e, a: -a,
    "abs":      lambda e, a: abs(a),
    "sign":     lambda e, a: a if a != a else type(a)(int(a > 0) - int(a < 0)),
    "max":      _maximum,
    "min":      _minimum,
    "and":      lambda e, a, b: a & b,
    "or":       lambda e, a, b: a | b,
    "xor":      lambda e, a, b: a ^ b,
    "not":      lambda e, a: not a if e == "bool" else ~a,
    "shl":      lambda e, a, b: a << _shift(e, b),
    "shr":      lambda e, a, b: a >> _shift(e, b),
    "floor":    lambda e, a: np.floor(a),
    "ceil":     lambda e, a: np.ceil(a),
    "trunc":    lambda e, a: np.trunc(a),
    "round":    lambda e, a: np.rint(a),
    "sqrt":     lambda e, a: np.sqrt(a),
}
COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "<":  lambda a, b: a < b,  "<=": lambda a, b: a <= b,
    ">":  lambda a, b: a > b,  ">=": lambda a, b: a >= b,
}
# fmt: on


def op(name: str, elem: str, *args: Value) -> Value:
    """An op whose result has the element type of its operands."""
    tick()
    if name not in OPS:
        return REALS[elem](SCALAR_OPS[name].evaluate(Elem(elem), *args))
    value = OPS[name](elem, *args)
    return narrow(elem, value) if elem in REALS else bool(value) if elem == "bool" else wrap(elem, int(value))


def compare(symbol: str, a: Value, b: Value) -> bool:
    tick()
    return bool(COMPARE[symbol](a, b))


def convert(target: str, source: str, value: Value) -> Value:
    if target == "bool":
        return bool(value != 0)
    if target in REALS:
        exact = np.int64(value) if source in WIDTHS else value
        return narrow(target, REALS[target](exact))
    if source in REALS:
        if value != value:
            return 0
        width, signed = WIDTHS[target]
        least, most = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
        return max(least, min(most, int(value) if np.isfinite(value) else most if value > 0 else least))
    return wrap(target, int(value))


# ---------------------------------------------------------------- tensors


@dataclass(frozen=True)
class Tensor:
    """`items` in row-major order."""

    shape: tuple[int, ...]
    items: tuple[Value, ...]


def size(shape: Sequence[int]) -> int:
    return math.prod(shape)


def at(x: Value, *indices: int) -> Value:
    """The element, or the part, at leading indices; of a struct array, a struct of them."""
    if isinstance(x, tuple):
        return tuple(at(part, *indices) for part in x)
    tick()
    place = _place(x, indices)
    rest = x.shape[len(indices) :]
    return Tensor(rest, x.items[place : place + size(rest)]) if rest else x.items[place]


def put(x: Value, indices: Sequence[int], value: Value) -> Value:
    """`x` with another part at leading indices."""
    if isinstance(x, tuple):
        return tuple(put(part, indices, v) for part, v in zip(x, value, strict=True))
    tick()
    place = _place(x, indices)
    new = value.items if isinstance(value, Tensor) else (value,)
    return Tensor(x.shape, x.items[:place] + new + x.items[place + len(new) :])


def _place(x: Tensor, indices: Sequence[int]) -> int:
    place = 0
    for index, extent in zip(indices, x.shape, strict=False):
        if not 0 <= index < extent:
            raise Stopped("index", f"index {index} is out of range for a dimension of {extent}")
        place = place * extent + index
    return place * size(x.shape[len(indices) :])


def with_item(x: tuple[Value, ...], index: int, value: Value) -> tuple[Value, ...]:
    """A struct or tuple with another field."""
    return (*x[:index], value, *x[index + 1 :])


Like = Any  # the shape of a tensor as a tuple of extents, or a list of those of a struct's or tuple's parts


def tabulate(extents: Sequence[int], like: Like, body: Callable[..., Value]) -> Value:
    """A comprehension whose body is `like`."""
    if any(n < 0 for n in extents):
        raise Stopped("extent")
    extents = tuple(extents)
    values = [body(*index) for index in product(*map(range, extents))]

    def stack(parts: list[Value], like: Like) -> Value:
        if isinstance(like, list):
            return tuple(stack([p[k] for p in parts], inner) for k, inner in enumerate(like))
        if like:
            return Tensor(extents + tuple(like), tuple(item for p in parts for item in p.items))
        return Tensor(extents, tuple(parts))

    return stack(values, like)


def rows(items: Sequence[Value]) -> Tensor:
    """A tensor literal."""
    return tabulate((len(items),), items[0].shape if isinstance(items[0], Tensor) else (), lambda i: items[i])


def reshape(x: Tensor, *shape: int) -> Tensor:
    if size(shape) != len(x.items):
        raise Stopped("reshape")
    return Tensor(shape, x.items)


def cast(x: Tensor, shape: Sequence[int]) -> Tensor:
    if x.shape != tuple(shape):
        raise Stopped("cast")
    return x


def span(lo: int, hi: int, extent: int) -> None:
    """What a slice asks of its ends."""
    if not 0 <= lo <= hi <= extent:
        raise Stopped("slice", f"slice {lo}..{hi} is out of range for a dimension of {extent}")


# ---------------------------------------------------------------- reductions


def reduce(name: str, elem: str, extents: Sequence[int], body: Callable[..., Value], chain: bool = False) -> Value:
    """A reduction by the order that the language fixes. The body of a sum that is a `chain` gives the two factors."""
    places = list(product(*(range(max(n, 0)) for n in extents)))
    if name in ("max", "min", "mean", "argmax", "argmin") and not places:
        raise Stopped("empty", f"`{name}` of nothing")
    values = [body(*place) for place in places]
    match name:
        case "any":
            return any(values)
        case "all":
            return all(values)
        case "argmax" | "argmin":
            best = 0
            for k, v in enumerate(values):
                old = values[best]
                if old == old and (v != v or (v > old if name == "argmax" else v < old)):
                    best = k
            return places[best][0] if len(extents) == 1 else places[best]
        case "max" | "min":
            total = values[0]
            for v in values[1:]:
                total = OPS[name](elem, total, v)
            return total
    if elem not in REALS:
        total = 0 if name == "sum" else 1
        for v in values:
            total = wrap(elem, total + v if name == "sum" else total * v)
        return total
    wide = "f32" if elem in NARROW else elem
    if name == "prod":
        return narrow(elem, _chained_product(wide, values) if chain else _lanes("mul", wide, values))
    total = _chain(wide, values) if chain else _lanes("add", wide, values)
    return narrow(elem, total / REALS[wide](np.int64(len(values))) if name == "mean" else total)


def _chain(elem: str, factors: Sequence[tuple[Value, Value]]) -> Value:
    total = REALS[elem](0)
    for a, b in factors:
        total = fma(elem, a, b, total)
    return total


def _chained_product(elem: str, values: Sequence[Value]) -> Value:
    total = REALS[elem](1)
    for v in values:
        total = total * v
    return total


def _lanes(step: str, elem: str, values: Sequence[Value]) -> Value:
    lanes = [REALS[elem](0 if step == "add" else 1)] * 16
    for k, v in enumerate(values):
        lanes[k % 16] = OPS[step](elem, lanes[k % 16], v)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [OPS[step](elem, lanes[k], lanes[k + half]) for k in range(half)]
    return lanes[0]


def ragged(name: str, elem: str, n: int, plus: int, body: Callable[..., Value], chain: bool = False) -> Value:
    """`name[i < n, k < i + plus] body`: a reduction of the reductions of the rows, which may be empty as long as not all are."""
    wide = "f32" if elem in NARROW else elem
    if name in ("max", "min"):
        rows = [i for i in range(n) if i + plus > 0]
        if not rows:
            raise Stopped("empty", f"`{name}` of nothing")
        return reduce(name, elem, (len(rows),), lambda j: reduce(name, elem, (rows[j] + plus,), lambda k: body(rows[j], k)))
    return narrow(elem, reduce(name, wide, (n,), lambda i: reduce(name, wide, (i + plus,), lambda k: body(i, k), chain)))


def fma(elem: str, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, exactly and then rounded once."""
    real = REALS[elem]
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return a * b + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return a * b + c
    try:
        near = real(float(exact))
    except OverflowError:
        near = real(np.inf if exact > 0 else -np.inf)
    if not np.isfinite(near):
        return near
    around = [near, np.nextafter(near, real(-np.inf)), np.nextafter(near, real(np.inf))]
    finite = [x for x in around if np.isfinite(x)]
    return min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.int32 if elem == "f32" else np.int64)) & 1))


# ---------------------------------------------------------------- whole tensors


def lift(f: Callable[..., Value], ranks: Sequence[int], like: Like, *args: Value) -> Value:
    """`f`, which takes values of these ranks and gives what is `like`, over the extra leading dimensions, aligned at the right."""
    counts = [len(a.shape) - r if isinstance(a, Tensor) else 0 for a, r in zip(args, ranks, strict=True)]
    most = max(counts)
    if not most:
        return f(*args)
    longest = args[counts.index(most)]

    def element(*index: int) -> Value:
        return f(*(at(a, *index[most - n :]) if n else a for a, n in zip(args, counts, strict=True)))

    return tabulate(longest.shape[:most], like, element)


def over_struct(f: Callable[..., Value], elems: Any, real: bool, *args: Value) -> Value:
    """`f(element type, leaves)` for each leaf; with `real`, a leaf that is not real passes through from the first struct."""
    if isinstance(elems, list):
        return tuple(over_struct(f, e, real, *(a[k] for a in args)) for k, e in enumerate(elems))
    return args[0] if real and elems not in REALS else f(elems, *args)


def reduce_all(name: str, elem: str, x: Tensor) -> Value:
    return reduce(name, elem, (len(x.items),), lambda k: x.items[k])


def reduce_axis(name: str, elem: str, x: Tensor, axis: int) -> Value:
    outer = (*x.shape[:axis], *x.shape[axis + 1 :])

    def row(*i: int) -> Value:
        return reduce(name, elem, (x.shape[axis],), lambda k: at(x, *i[:axis], k, *i[axis:]))

    return tabulate(outer, (), row) if outer else row()


def sliced(x: Value, lo: int, hi: int) -> Value:
    span(lo, hi, first_extent(x))
    return tabulate((hi - lo,), shape_like(x), lambda k: at(x, lo + k))


def gathered(x: Value, indices: Tensor) -> Value:
    return tabulate(indices.shape, shape_like(x), lambda *k: at(x, at(indices, *k)))


def first_extent(x: Value) -> int:
    return first_extent(x[0]) if isinstance(x, tuple) else x.shape[0]


def shape_like(x: Value) -> Like:
    """`Like` of an item of a tensor or struct array."""
    return [shape_like(part) for part in x] if isinstance(x, tuple) else x.shape[1:]


def transposed(x: Tensor) -> Tensor:
    return tabulate((*x.shape[:-2], x.shape[-1], x.shape[-2]), (), lambda *i: at(x, *i[:-2], i[-1], i[-2]))


def each(x: Value) -> list[Value]:
    """The rows that a `for` visits."""
    return [at(x, k) for k in range(first_extent(x))]


def store(
    x: Tensor, count: int, where: Callable[[int], Sequence[int]], value: Value, rank: int, combine: Callable[[Value, Value], Value] | None
) -> Tensor:
    """`x[items] = value` in order: at step k the indices `where(k)` lead to a part of this rank. The value may be smaller than all parts together."""
    steps = isinstance(value, Tensor) and len(value.shape) > rank
    for k in range(count):
        new = at(value, k) if steps else value
        old = at(x, *where(k))
        if combine is not None:
            new = lift(combine, (0, 0), (), old, new)
        elif isinstance(old, Tensor) and not isinstance(new, Tensor):
            new = Tensor(old.shape, (new,) * len(old.items))
        x = put(x, where(k), new)
    return x


def flip(elem: str, x: Tensor) -> Tensor:
    return Tensor(x.shape, x.items[::-1])


def sort(elem: str, x: Tensor) -> Tensor:
    return Tensor(x.shape, tuple(sorted(x.items, key=lambda v: (v != v, 0 if v != v else v))))


def cumsum(elem: str, x: Tensor) -> Tensor:
    out: list[Value] = []
    for v in x.items:
        out.append(op("add", elem, out[-1], v) if out else v)
    return Tensor(x.shape, tuple(out))


def concat(a: Tensor, b: Tensor) -> Tensor:
    return Tensor((a.shape[0] + b.shape[0], *a.shape[1:]), a.items + b.items)


# ---------------------------------------------------------------- the run

BUDGET = 200_000  # operations
_left = [BUDGET]


def tick() -> None:
    _left[0] -= 1
    if _left[0] < 0:
        raise TooLong


def assert_(condition: bool, message: str) -> None:
    if not condition:
        raise Stopped("assert", message)


def fail(message: str) -> Any:
    raise Stopped("fail", message)


def show(value: Value, elem: str, spec: str = "") -> str:
    """A scalar or tensor as `print` writes it."""
    if isinstance(value, Tensor):
        dtype = {"bool": np.bool_, **REALS}.get(elem, np.int64)
        array = np.array(value.items, dtype).reshape(value.shape)
        formatter: Any = {"all": lambda v: show(v, elem, spec)} if spec else None
        if elem == "bool" and not spec:
            width = 4 if array.all() else 5
            formatter = {"bool": lambda v: ("true" if v else "false").rjust(width)}
        return np.array2string(array, formatter=formatter)
    if elem == "bool":
        return format("true" if value else "false", spec)
    if elem in REALS:
        if spec:
            return format(float(value), spec)
        return repr(float(np.format_float_scientific(value, unique=True)))  # the digits of its own type, laid out as Python does
    return format(value, spec)


def run(program: str) -> tuple[list[str], str, str | None]:
    """What a program prints, and the kind and message of what stops it. Raises `TooLong`."""
    lines: list[str] = []
    _left[0] = BUDGET
    names = {**globals(), "emit": lines.append}
    with np.errstate(all="ignore"):
        try:
            exec(compile(program, "<meaning>", "exec"), names)
            names["main"]()
        except Stopped as stop:
            return lines, stop.kind, stop.message
    return lines, "", ""
