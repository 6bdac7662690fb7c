"""Products of narrow numbers: neighbours along the reduction lie in one word, and one instruction adds all their products.

    y[i, j] = sum[k] i32(a[i, k]) * i32(b[k, j])                        a and b of `i8` or `u8`

becomes, with four bytes a word (`dot4`),

    p[i, q] = the bytes a[i, 4 q .. 4 q + 4]                            0 behind the last
    r[q, j] = the bytes b[4 q .. 4 q + 4, j], each + 128
    c[i]    = 128 * sum[q] ones . p[i, q]
    y[i, j] = (sum[q] p[i, q] . r[q, j]) - c[i]

since `dot4` wants signed bytes in one word and unsigned ones in the other: of two signed factors one is moved up by 128, of two unsigned
ones one down. Sums of `i32` wrap, so all of this is exact. Words of two halves (`dot2`) are signed on both sides and need no such care.

    y[i, j] = sum[k] f32(a[i, k]) * f32(b[k, j])                        a and b of `bf16`

is a chain of fused multiply-adds, and so is `fma2` on words of two, the earlier one in the higher half, as the instruction takes them. But
that takes subnormal numbers for 0. None comes up where the factors are normal, or 0, and their least exponents m and n have m + n >= -112:
they are multiples of 2 ** (m - 7) and of 2 ** (n - 7), so products and, rounded or not, sums of those are multiples of 2 ** -126, the least
normal number. So the least size of each factor is found first, and the loop over k exists twice.

The words are a copy, so it pays where each element is read a few times, by different elements of the result.

Requires: a fused graph. Preserves: every result to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.graph.ir import Expr, Node, Reduction, Tensor, acc, axes_of, axis, const, load, op, substitute
from tlc.tensor.rims import is_repeated

SHORT = 8  # a reduction over fewer numbers does not pay for copies
ONES = const(0x01010101, Elem.I32)
TOP = const(-0x7F7F7F80, Elem.I32)  # the highest bit of each byte: to flip them adds 128, or subtracts it
BIAS = 127  # of the exponent of an f32
SAFE = 2 * BIAS - 112  # of two exponents as they are stored


@dataclass(frozen=True)
class Form:
    """How factors lie in words of an element type: `count` of them, of narrow types, and the op that adds their products. A copy pays if
    each number is read `worth` times.
    """

    step: str
    count: int
    narrow: tuple[Elem, ...]
    word: Elem
    worth: int


DOT4 = Form("dot4", 4, (Elem.I8, Elem.U8), Elem.I32, 4)
DOT2 = Form("dot2", 2, (Elem.I8, Elem.U8), Elem.I32, 4)
PAIR = Form("fma2", 2, (Elem.BF16,), Elem.F32, 8)


@dataclass(frozen=True)
class Factor:
    """A load of narrow numbers, and the axes that it moves with, in the order of its indices. `moves`: its bytes are moved by 128."""

    load: Expr
    order: tuple[int, ...]
    moves: bool = False

    @property
    def name(self) -> str:
        tensor: Tensor = self.load.data.tensor
        return tensor.name


def in_words(node: Node, dots: int, pairs: bool) -> tuple[list[Node], Node]:
    """Nodes that put the factors of a product into words, and the node that reads those. `dots`, `pairs`: what the target has."""
    for form in (*(f for f in (DOT4, DOT2) if f.count == dots), *([PAIR] if pairs else [])):
        factors = _factors(node, form)
        last = len(node.domain) - 1
        for k in (last,) if form is PAIR else range(last, node.rank - 1, -1):  # a chain of reals keeps its order
            if factors and all(k in f.order for f in factors) and (node.domain[k].value or SHORT) >= SHORT:
                return _Words(node, form, k).made(*factors)
    return [], node


def _factors(node: Node, form: Form) -> tuple[Factor, Factor] | None:
    """The two factors, if the node sums products of converted narrow numbers that each are read often enough."""
    r = node.reduction
    if r is None or r.op != "sum" or node.scatter or axes_of(r.extents) or r.terms[0].elem is not form.word:
        return None
    term = r.terms[0]
    factors = r.terms if len(r.terms) == 2 else term.args if term.op == "mul" and form.word is Elem.I32 else ()
    if len(factors) != 2 or factors[0] is factors[1]:
        return None
    found = []
    for e in factors:
        narrow = e.args[0] if e.op == "convert" else e
        if narrow.op != "load" or narrow.elem not in form.narrow or narrow.guard is not None or not is_repeated(node, narrow, form.worth):
            return None
        own = [axes_of([i]) for i in narrow.indices]
        order = tuple(k for axes in own for k in axes)
        if any(len(axes) > 1 for axes in own) or len(set(order)) < len(order):
            return None
        found.append(Factor(narrow, order))
    return found[0], found[1]


@dataclass
class _Words:
    """The rewriting of one node. `along` is the reduced axis whose neighbours share words."""

    node: Node
    form: Form
    along: int

    def __post_init__(self) -> None:
        self.before: list[Node] = []
        r = self.node.reduction
        assert r is not None
        count = self.form.count
        self.words = op("floordiv", op("add", self.node.domain[self.along], const(count - 1)), const(count))
        extents = tuple(self.words if self.node.rank + k == self.along else n for k, n in enumerate(r.extents))
        self.reduction = replace(r, extents=extents, order="chain", step=self.form.step)

    def made(self, a: Factor, b: Factor) -> tuple[list[Node], Node]:
        if self.form is DOT4:
            a, b = self.signed_first(a, b)
        loads = [self.factor(a, 0), self.factor(b, 1)]
        outputs, quick = self.node.outputs, None
        if a.moves or b.moves:
            rest = (ONES, loads[1]) if a.moves else (loads[0], ONES)
            total = op("add" if a.moves else "sub", acc(0, Elem.I32), self.sums(b if a.moves else a, rest))
            outputs = tuple(substitute(e, {}, [total]) for e in outputs)
        if self.form is PAIR:
            m, n = (_moved("shr", self.least(e), 23) for e in loads)
            normal = op("and", *(op("gt", e, const(0, Elem.U32)) for e in (m, n)))
            quick = ("fma2_normal", op("and", normal, op("ge", op("add", m, n), const(SAFE, Elem.U32))))
        reduction = replace(self.reduction, terms=tuple(loads), quick=quick)
        return self.before, replace(self.node, outputs=outputs, reduction=reduction)

    def signed_first(self, a: Factor, b: Factor) -> tuple[Factor, Factor]:
        """The factor that is to have signed bytes, and the one with unsigned bytes. What is moved, if anything, goes along the last axis of
        the result: the sums that are due for that go along the others.
        """
        signed, other = a.load.elem.is_signed, b.load.elem.is_signed
        if signed != other:
            return (a, b) if signed else (b, a)
        still, moving = (a, b) if self.node.rank - 1 in b.order else (b, a)
        moving = replace(moving, moves=True)
        return (still, moving) if signed else (moving, still)

    def factor(self, f: Factor, number: int) -> Expr:
        """The words of a factor, as the node reads them: along the last axis of the result, or else each row of it from end to end."""
        expr = self.word(f, number)
        name = f"{f.name}.words{number}"
        read = self.node_of(name, f.order, expr, f"{f.name} is put into words")
        if self.node.rank - 1 in f.order or f.order[-1] == self.along:
            return read
        return self.node_of(f"{name}.rows", [*(k for k in f.order if k != self.along), self.along], read, f"{f.name} is put into words")

    def word(self, f: Factor, number: int) -> Expr:
        """A word of a factor, at its axes. Behind the last number there are zeros, in the second of two reals negative ones, so that their
        product leaves every sum as it is.
        """
        count, total = self.form.count, self.node.domain[self.along]
        whole = total.value is not None and total.value % count == 0
        parts = []
        for part in range(count):
            k = op("add", op("mul", axis(self.along), const(count)), const(part))
            e = substitute(f.load, {self.along: k})
            there = op("lt", k, total)
            filled = part > 0 and not whole
            if filled:
                e = load(e.data.tensor, e.indices, e.data.shape, there)
            if self.form is PAIR:
                bits = op("bitcast", op("convert", e, elem=Elem.F32), elem=Elem.U32)
                if number and filled:
                    bits = op("select", there, bits, const(1 << 31, Elem.U32))
                parts.append(_moved("shr", bits, 16 * part))
            else:
                parts.append(_moved("shl", _low(e, count) if part + 1 < count else op("convert", e, elem=Elem.I32), 32 // count * part))
        word = parts[0]
        for p in parts[1:]:
            word = op("or", word, p)
        if self.form is PAIR:
            return op("bitcast", word, elem=Elem.F32)
        return op("xor", word, TOP) if f.moves else word

    def sums(self, f: Factor, terms: tuple[Expr, ...]) -> Expr:
        """The sums of a factor over all reduced axes, times 128."""
        own = sorted(k for k in f.order if k < self.node.rank)
        total, r = op("mul", acc(0, Elem.I32), const(128, Elem.I32)), replace(self.reduction, terms=terms)
        return self.node_of(f"{f.name}.sums", own, total, f"{f.name} is summed", r, range(self.node.rank, len(self.node.domain)))

    def least(self, words: Expr) -> Expr:
        """One less than the bits of the least size of a `bf16` in some words, zeros aside: at first along the last axis."""
        bits = op("bitcast", words, elem=Elem.U32)
        sizes = [op("and", x, const(0x7FFF0000, Elem.U32)) for x in (bits, _moved("shl", bits, 16))]
        least = op("min", *(op("sub", x, const(1, Elem.U32)) for x in sizes))  # of 0 that is the greatest number
        *outer, last = (i.data for i in words.indices)
        for kept, reduced in ((outer, [last]), ([], outer)):
            if reduced:
                name = f"{words.data.tensor.name}.{'rows.' if kept else ''}least"
                r = Reduction("min", "chain", tuple(self.extent(k) for k in reduced), (least,))
                least = self.node_of(name, kept, acc(0, Elem.U32), "its least size is found", r, reduced)
        return least

    # ------------------------------------------------------------ nodes

    def extent(self, k: int) -> Expr:
        return self.words if k == self.along else self.node.domain[k]

    def node_of(
        self, name: str, order: Sequence[int], value: Expr, why: str, r: Reduction | None = None, reduced: Sequence[int] = ()
    ) -> Expr:
        """A node that stores a value along axes of ours in some order, and the load that reads it there. Its reduction, if it has one, is
        over `reduced` axes of ours. A single number has a dimension of extent 1: what kernels hand on to each other lies in memory.
        """
        places = {k: axis(at) for at, k in enumerate([*order, *reduced], start=not order)}
        shape = tuple(self.extent(k) for k in order) or (const(1),)
        tensor = Tensor(name, value.elem, shape)
        r = r and replace(r, terms=tuple(substitute(e, places) for e in r.terms))
        notes = (f"{why} for {self.node.results[0].name}",)
        self.before.append(Node((tensor,), shape, (substitute(value, places),), r, span=self.node.span, notes=notes))
        return load(tensor, [axis(k) for k in order] or [const(0)])


def _low(e: Expr, count: int) -> Expr:
    """A number in the lowest bits of a word, zeros above."""
    if count == 4:
        return op("convert", op("convert", e, elem=Elem.U8), elem=Elem.I32)
    return op("and", op("convert", e, elem=Elem.I32), const(0xFFFF, Elem.I32))


def _moved(how: str, e: Expr, by: int) -> Expr:
    return op(how, e, const(by, e.elem)) if by else e
