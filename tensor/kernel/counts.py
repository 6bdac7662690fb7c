"""What a call of a kernel does, counted on its loops: operations, and the bytes that it has to read and write.

    kernel product(y: out f32[m, n], x: f32[m, k], w: f32[k, n], ..)
                                                        flops 2 * m * n * k    read 4 * (m * k + k * n)    written 4 * m * n

Operations. `flops` and `flops64` are arithmetic on reals of at most 32 and of 64 bits: an op is one, a fused multiply-add two, as in the
figures that processors are advertised with; comparisons, choices, conversions and moves of bits are none. `integers` are arithmetic
and logic on integers that are data (random numbers, products of bytes), without the arithmetic of indices. What an applied function
does is not counted.

Bytes. Each element of an input that is read, and each of an output that is written, counts once, however often it is: what a
cache of unlimited size would read and write. Distinct elements are counted as iterations of the loops on which an index depends, never
more than the buffer has: no fewer than there are, and more where several iterations mean one element (`x[i // 2]`, a guard that does not
hold). Loads at the same place but for a constant (stencils) are one and the rim. Outputs in which a kernel only works (`work`) are not
counted, nor is reading what it wrote itself.

An amount depends on the scalar parameters alone, so that it is code: `counting_kernel` adds the amounts of one call to five totals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import reduce
from math import prod

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.amount import NOTHING, ONE, Amount, Loop, Writer, atom, least, number, of_expr, total
from tlc.tensor.kernel.ir import (
    WARP,
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
    If,
    Kernel,
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
    const,
    op,
    subexpressions,
)
from tlc.tensor.kernel.matrices import FORMS, ROW_BYTES

TOTALS = ("flops", "flops64", "integers", "read", "written")

# operations on reals and on integers, a row an op
# fmt: off
_WEIGHTS = {
    "add": (1, 1), "sub": (1, 1), "mul": (1, 1), "div": (1, 0), "floordiv": (1, 1), "mod": (1, 1), "neg": (1, 1), "abs": (1, 1),
    "sign": (1, 1), "max": (1, 1), "min": (1, 1), "fma": (2, 0), "and": (0, 1), "or": (0, 1), "xor": (0, 1), "not": (0, 1),
    "shl": (0, 1), "shr": (0, 1), "floor": (1, 0), "ceil": (1, 0), "trunc": (1, 0), "round": (1, 0), "sqrt": (1, 0),
    "eq": (0, 0), "ne": (0, 0), "lt": (0, 0), "le": (0, 0), "gt": (0, 0), "ge": (0, 0), "select": (0, 0), "isnan": (0, 0),
    "convert": (0, 0), "bitcast": (0, 0), "key_make": (0, 0), "key_hi": (0, 0), "key_lo": (0, 0),
    "dot2": (0, 4), "dot4": (0, 8), "fma2": (4, 0), "fma2_normal": (4, 0), "ldexp": (1, 0),
}
# fmt: on
_INDEX_OPS = ("add", "sub", "mul", "min", "max")
_missing = [name for name, row in SCALAR_OPS.items() if name not in _WEIGHTS and (row.instruction or not row.elementary)]
assert not _missing, f"no weight for {_missing}"


@dataclass(frozen=True)
class Counts:
    """Of one call. `whole`: nothing is left out (no function is applied, and no loop's length is data)."""

    flops: Amount
    flops64: Amount
    integers: Amount
    read: Amount
    written: Amount
    whole: bool = True


def counts(kernel: Kernel) -> Counts:
    return _Counter(kernel).run()


def counting_kernel(kernel: Kernel, counted: Counts, name: str) -> Kernel:
    """A kernel that adds the amounts of a call with such scalars to `totals`, in the order of `TOTALS`."""
    scalars = tuple(p for p in kernel.inputs if isinstance(p, Var))
    writer = Writer(p.name for p in scalars)
    totals = Buffer(writer.fresh("totals"), Elem.I64, (const(len(TOTALS)),))
    for k, which in enumerate(TOTALS):
        value = writer.write(getattr(counted, which))
        if value != const(0):
            writer.body.append(Store(totals, (const(k),), op("add", Load(totals, (const(k),)), value)))
    return Kernel(name, (totals,), scalars, tuple(writer.body))


# ---------------------------------------------------------------- counting


@dataclass(frozen=True)
class _Access:
    """An access of a global buffer with the loops around it, outermost first."""

    buffer: Buffer
    indices: tuple[Amount, ...]
    needs: frozenset[str]  # the loops that an index moves with
    loops: tuple[Loop, ...]
    stores: bool


@dataclass
class _Counter:
    kernel: Kernel
    known: dict[str, Amount] = field(default_factory=dict)  # variables that are functions of scalars and loops
    needs: dict[str, frozenset[str]] = field(default_factory=dict)  # of others: the loops that they move with
    accesses: list[_Access] = field(default_factory=list)
    passed: dict[str, Buffer] = field(default_factory=dict)  # buffers that functions get as a whole
    whole: bool = True

    def run(self) -> Counts:
        done = self.body(self.kernel.body, ())
        outputs = {b.name for b in self.kernel.results}
        read, written = NOTHING, NOTHING
        for p in (*self.kernel.results, *self.kernel.inputs):
            if not isinstance(p, Buffer):
                continue
            size = reduce(lambda a, e: a * of_expr(e, {}), p.shape, ONE)
            stored = p.name in outputs
            found = [a for a in self.accesses if a.buffer.name == p.name and a.stores == stored]
            amount = size if p.name in self.passed else self.distinct(found, size)
            if stored:
                written += amount * number(p.elem.bytes)
            else:
                read += amount * number(p.elem.bytes)
        return Counts(*done, read, written, self.whole)

    def body(self, stmts: tuple[Stmt, ...], loops: tuple[Loop, ...]) -> tuple[Amount, Amount, Amount]:
        flops, flops64, integers = NOTHING, NOTHING, NOTHING
        for s in stmts:
            a, b, c = self.statement(s, loops)
            flops, flops64, integers = flops + a, flops64 + b, integers + c
        return flops, flops64, integers

    def statement(self, s: Stmt, loops: tuple[Loop, ...]) -> tuple[Amount, Amount, Amount]:
        match s:
            case For():
                loop = Loop(s.var.name, self.end(s.start), self.end(s.stop), s.step)
                a, b, c = (total(x, loop, loops) for x in self.body(s.body, (*loops, loop)))
                return a, b, c
            case If():
                return self.conditional(s, loops)
            case Let():
                done = self.expression(s.value, loops)
                if s.var.elem is Elem.I64 and self.is_known(s.value):
                    self.known[s.var.name] = of_expr(s.value, self.known)
                reads = any(isinstance(e, Load | Apply) for e in subexpressions(s.value))
                self.needs[s.var.name] = frozenset(loop.var for loop in loops) if reads else self.loops_of(s.value)
                return done
            case Store():
                if s.buffer.space is Space.GLOBAL:
                    self.access(s.buffer, s.indices, loops, stores=True)
                for e in s.indices:
                    self.expression(e, loops)
                return self.expression(s.value, loops)
            case Exchange():
                return self.expression(s.value, loops)
            case Mma():
                form = FORMS[s.a.elem]
                steps = prod(form.c.extents) * form.depth // WARP  # of a thread
                return number(_WEIGHTS["fma"][0] * steps), NOTHING, NOTHING
            case LoadMatrices() | CommitCopies() | WaitCopies():
                return NOTHING, NOTHING, NOTHING
            case CopyAsync():
                *outer, last = s.source.indices
                for k in range(ROW_BYTES // s.source.elem.bytes):
                    self.access(s.source.buffer, (*outer, op("add", last, const(k))), loops, stores=False)
                return NOTHING, NOTHING, NOTHING
            case Declare() | Barrier():
                return NOTHING, NOTHING, NOTHING

    def conditional(self, s: If, loops: tuple[Loop, ...]) -> tuple[Amount, Amount, Amount]:
        """A condition on extents and indices is evaluated; of one on data, the branch that does more counts."""
        self.expression(s.cond, loops)
        then, other = self.body(s.then, loops), self.body(s.other, loops)
        if self.is_known(s.cond):
            (((cond,), _),) = of_expr(s.cond, self.known).terms
            assert not isinstance(cond, Const)
            holds = atom(Op("select", Elem.I64, (cond, const(1), const(0))))  # type: ignore[arg-type]
            a, b, c = (o + holds * (t - o) if t != o else t for t, o in zip(then, other, strict=True))
            return a, b, c
        a, b, c = (t + o for t, o in zip(then, other, strict=True))
        return a, b, c

    def end(self, e: Expr) -> Amount:
        if not self.is_known(e):
            self.whole = False
            return ONE
        return of_expr(e, self.known)

    def is_known(self, e: Expr) -> bool:
        """Whether an expression is made of scalars and loop variables."""
        unknown = self.needs.keys() - self.known.keys()
        return not any(isinstance(x, Load | Apply) or (isinstance(x, Var) and x.name in unknown) for x in subexpressions(e))

    def expression(self, root: Expr, loops: tuple[Loop, ...]) -> tuple[Amount, Amount, Amount]:
        """The operations in an expression; what stands in it several times is computed once."""
        found = [0, 0, 0]
        seen: set[int] = set()
        for e, is_data in _with_role(root):
            if id(e) in seen:
                continue
            seen.add(id(e))
            match e:
                case Op() if is_data:
                    reals, integers = _WEIGHTS.get(e.op, (0, 0))
                    if e.elem.is_real:
                        found[1 if e.elem is Elem.F64 else 0] += reals
                    elif e.elem.is_int and not (e.elem is Elem.I64 and e.op in _INDEX_OPS):
                        found[2] += integers
                case Load() if e.buffer.space is Space.GLOBAL:
                    self.access(e.buffer, e.indices, loops, stores=False)
                case Apply():
                    self.whole = False
                    self.passed.update({a.name: a for a in e.args if isinstance(a, Buffer)})
                case _:
                    pass
        a, b, c = map(number, found)
        return a, b, c

    # ------------------------------------------------------------ elements

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], loops: tuple[Loop, ...], stores: bool) -> None:
        needs: frozenset[str] = frozenset().union(*map(self.loops_of, indices))
        if any(isinstance(e, Load | Apply) for i in indices for e in subexpressions(i)):
            needs = frozenset(loop.var for loop in loops)  # a gather: any element may be a new one
        self.accesses.append(_Access(buffer, tuple(of_expr(i, self.known) for i in indices), needs, loops, stores))

    def loops_of(self, e: Expr) -> frozenset[str]:
        """The loops that an expression moves with."""
        out: set[str] = set()
        for x in subexpressions(e):
            if isinstance(x, Var):
                out |= self.needs.get(x.name, {x.name})
        return frozenset(out)

    def distinct(self, accesses: list[_Access], size: Amount) -> Amount:
        """How many elements of a buffer are accessed at least once, nearly."""
        groups: dict[tuple[object, ...], list[_Access]] = {}
        for a in accesses:
            groups.setdefault(_shape_of(a), []).append(a)
        out = NOTHING
        for group in groups.values():
            amount = _iterations(group[0])
            offsets = list(dict.fromkeys(tuple(_constant(i) for i in a.indices) for a in group))
            if len(offsets) > 1:
                spread = sum(max(column) - min(column) for column in zip(*offsets, strict=True))
                amount = least(amount * number(len(offsets)), amount + number(spread))
            out += amount
        return least(out, size)


def _iterations(a: _Access) -> Amount:
    """How often the loops run on which an access depends, by an index or by the ends of such a loop: `for i in b..b + 8` is elsewhere for
    each b.
    """
    amount = ONE
    needs = set(a.needs)
    for k in reversed(range(len(a.loops))):
        loop = a.loops[k]
        if loop.var in needs:
            amount = total(amount, loop, a.loops[:k])
            needs |= {o.var for o in a.loops[:k] if loop.start.depends(o.var) or loop.stop.depends(o.var)}
    return amount


def _constant(a: Amount) -> int:
    return next((c for m, c in a.terms if not m), 0)


def _shape_of(a: _Access) -> tuple[object, ...]:
    """The indices of an access without their constants, loops named by how they run: so equal accesses of two loops are found. An index
    that is a constant alone stays: rows that no loop moves over have no element in common.
    """
    names: dict[str, Var] = {}
    for loop in a.loops:
        ends = " ".join(_named(e, names) for e in (loop.start, loop.stop))
        names[loop.var] = Var(f"<{ends} {loop.step}>")
    return tuple(_named(i - number(_constant(i)) if any(m for m, _ in i.terms) else i, names) for i in a.indices)


def _named(a: Amount, names: Mapping[str, Var]) -> str:
    text = str(a)
    for name, var in names.items():
        text = _word(name, var.name, text)
    return text


def _word(name: str, by: str, text: str) -> str:
    return re.sub(rf"(?<![\w.<]){re.escape(name)}(?![\w.])", lambda _: by, text)


def _with_role(root: Expr, is_data: bool = True) -> Iterator[tuple[Expr, bool]]:
    """Every expression in one, with whether it is data (and not an index or a guard)."""
    yield root, is_data
    match root:
        case Op():
            for a in root.args:
                yield from _with_role(a, is_data)
        case Load():
            for a in (*root.indices, *(() if root.guard is None else (root.guard,))):
                yield from _with_role(a, False)
        case Apply():
            for x in root.args:
                if not isinstance(x, Buffer):
                    yield from _with_role(x, is_data)
        case _:
            pass
