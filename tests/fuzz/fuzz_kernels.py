"""Random modules of comprehensions, for the tensor stage: `generate(seed)`.

A module has one function `f` over random parameters. It is a few statements, each a comprehension over what there is: maps with one or two results,
reductions of every kind (chains of products, lanes, `argmax`, extents that end at an index), chains of rows (softmax, layernorm), products in
every layout and batched, reads like those of a convolution, scatters, views. Element types are all that tensors have.

Every access is in range by the form of the text, whatever the sizes are, so that one module runs with many. An extent is a sum of
named dimensions and a constant; what may stand as a subscript of a dimension follows from its form (`_Subscripts`). Where nothing fits,
the load is guarded.

All chance is a list of numbers (`Choices`), and smaller numbers choose simpler things: a module is made smaller by making the list shorter and
its numbers smaller, with no knowledge of what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any, TypeVar

import numpy as np

from tlc.driver.options import Options
from tlc.driver.pipeline import optimized
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import INTS, Elem
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.ir import BOOL, I64, Function, Module, Type, Value, walk
from tlc.ssa.lower_reduce import NEEDS_ONE
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.derivative import differentiate

Array = np.ndarray[Any, Any]
T = TypeVar("T")

SIZES = (2, 1, 3, 0, 5, 7, 8, 15, 16, 17, 20, 33)
CONSTANTS = (2, 1, 3, 4, 5, 7, 8, 9, 10, 12, 16, 17, 20, 33, 0)
POINTS = 1200  # of one comprehension, at most
NESTED = 6  # elements that are indices of elements, at most
ELEMENTARY = ("exp", "tanh", "log", "sin")  # few: their arithmetic is long
MAIN = (Elem.F32, Elem.F32, Elem.F32, Elem.F64, Elem.I64, Elem.F16, Elem.BF16, Elem.I32, Elem.U8, Elem.I8, Elem.U32, Elem.BOOL)
OTHERS = (Elem.F32, Elem.I64, Elem.F64, Elem.BOOL, Elem.I8, Elem.F16, Elem.BF16)
F64 = Type(Elem.F64)
WIDE = (Elem.F32, Elem.F64)


@dataclass
class Choices:
    """Chance as a list: new numbers from `random`, or those that are `given` and then zeros."""

    random: Random | None = None
    given: Sequence[int] = ()
    made: list[int] = field(default_factory=list)

    def below(self, n: int) -> int:
        at = len(self.made)
        number = self.random.randrange(n) if self.random else self.given[at] % n if at < len(self.given) else 0
        self.made.append(number)
        return number

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent


@dataclass(frozen=True)
class Extent:
    """A sum of multiples of named dimensions, and a constant."""

    terms: tuple[tuple[str, int], ...]
    plus: int = 0

    def value(self, sizes: dict[str, int]) -> int:
        return sum(c * sizes[name] for name, c in self.terms) + self.plus

    @property
    def is_positive(self) -> bool:
        return self.plus > 0


@dataclass(frozen=True)
class Tensor:
    """A parameter or a result, with its extents. `into`: it holds indices of that extent."""

    value: Value
    shape: tuple[Extent, ...]
    into: Extent | None = None

    @property
    def elem(self) -> Elem:
        return self.value.type.elem


@dataclass(frozen=True)
class Axis:
    """An index in scope: it is below its extent."""

    index: Value
    extent: Extent


@dataclass(eq=False)
class Case:
    """A module and what it is run with. `points` are the extents of each comprehension."""

    choices: list[int]
    module: Module
    params: list[tuple[Elem, tuple[Extent, ...], Extent | None]]
    names: tuple[str, ...]
    points: list[tuple[Extent, ...]]
    primal: Module | None = None  # of a gradient: what is differentiated, as function `p`, and its gradient `f` before optimization

    def sizes(self, random: Random) -> dict[str, int]:
        """Sizes for which no comprehension has too many points."""
        sizes = {name: random.choice(SIZES) for name in self.names}
        while self.names and any(prod(max(e.value(sizes), 1) for e in p) > POINTS for p in self.points):
            largest = max(self.names, key=lambda name: sizes[name])
            if sizes[largest] <= 1:
                break
            sizes[largest] = random.choice([s for s in SIZES if s < sizes[largest]])
        return sizes

    def arguments(self, sizes: dict[str, int], seed: int) -> list[Array]:
        random = np.random.default_rng(seed)
        out = []
        for elem, shape, into in self.params:
            dims = tuple(e.value(sizes) for e in shape)
            out.append(numbers(random, elem, dims, self.primal is not None) if into is None else random.integers(0, into.value(sizes), dims).astype(DTYPES[elem]))
        return out


def numbers(random: np.random.Generator, elem: Elem, shape: tuple[int, ...], tame: bool = False) -> Array:
    """Numbers of every kind, as the interpreters hold them; or `tame`, those of which differences are taken."""
    if tame and elem.is_real:
        return random.standard_normal(shape).astype(DTYPES[elem])
    if elem is Elem.BOOL:
        return random.integers(0, 2, shape).astype(np.bool_)
    if elem.is_real:
        special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 65504.0, 1e-7, 0.5, 2.5, -3.5])
        rare = random.choice([0.0, 0.0, 0.05, 0.4])
        x = np.where(random.random(shape) < rare, random.choice(special, shape), random.standard_normal(shape) * 10.0 ** random.integers(-3, 3))
        with np.errstate(over="ignore", invalid="ignore"):
            x = x.astype(np.float32 if elem is not Elem.F64 else np.float64)
            return from_memory(to_memory(x)) if elem is Elem.BF16 else x.astype(DTYPES[elem])
    info = np.iinfo(DTYPES[elem])
    small = random.integers(-4 if info.min else 0, 9, shape)
    wide = random.integers(info.min, info.max, shape, DTYPES[elem], endpoint=True)
    return np.where(random.random(shape) < 0.6, small.astype(DTYPES[elem]), wide)


def generate(seed: int) -> Case:
    return _Generator(Choices(Random(seed))).run()


def again(choices: Sequence[int], gradient: bool = False) -> Case:
    """The case of given choices."""
    choice = Choices(given=choices)
    return _gradient(choice) if gradient else _Generator(choice).run()


def gradient(seed: int) -> Case:
    """A case whose function is the gradient of a weighted sum of what another one gives, by all of its real parameters."""
    return _gradient(Choices(Random(seed)))


def _gradient(choices: Choices) -> Case:
    generator = _Generator(choices)
    generator.main, generator.others = (Elem.F64,), (Elem.F64, Elem.F64, Elem.I64, Elem.BOOL)
    case = generator.run()
    module = case.module
    p = module.functions.pop("f")
    p.name = "p"
    module.add(p)
    _stop_at_nothing(p)
    terminator = p.body.entry.terminator
    results = [v for v in terminator.operands if v.type.elem.is_real]
    b = Builder(p.body.entry, module)
    total = b.const(0.0, F64)

    def weighted(x: Value) -> Callable[..., Value]:
        def term(t: Builder, *i: Value) -> Value:
            weight = t.const(1.0, F64)
            for k in i:
                weight = t.op("add", weight, t.convert(t.op("mod", k, t.i64(3)), F64))
            return t.op("mul", t.convert(t.index(x, *i), F64), weight)

        return term

    for x in results:
        part = b.reduce("sum", b.dims(x), weighted(x), "lanes") if x.type.rank else b.convert(x, F64)
        total = b.op("add", total, part)
    b.ret(total)
    p.results = (F64,)
    wrt = tuple(k for k, (elem, _, _) in enumerate(case.params) if elem is Elem.F64)
    f, g = new_function("f", [(f"x{k}", v.type) for k, v in enumerate(p.params)], (), module)
    found = g.emit("grad", f.params, [F64, *(p.params[k].type for k in wrt)], {"callee": "p", "wrt": wrt, "value": True}).results
    g.ret(*found)
    f.results = tuple(v.type for v in found)
    verify(module)
    case.primal = parse_module(print_module(module))
    differentiate(case.primal)
    verify(case.primal)
    case.module = next(value for name, _, value in optimized(module, Options(verify=True)) if name == "opt")
    return case


def _stop_at_nothing(function: Function) -> None:
    """The program stops where a reduction has nothing to choose from, as the language has it: its derivative relies on that."""
    for instr in [i for i in walk(function.body) if i.op == "reduce" and i.attrs["op"] in NEEDS_ONE]:
        b = Builder.before(instr)
        b.check(b.every(b.op("gt", n, b.i64(0)) for n in instr.operands), "empty", f"`{instr.attrs['op']}` of nothing")


class _Generator:
    def __init__(self, choices: Choices) -> None:
        self.draw = choices
        self.module = Module()
        self.names: tuple[str, ...] = ("n", "m")
        self.dims: dict[str, Value] = {}
        self.params: list[tuple[Elem, tuple[Extent, ...], Extent | None]] = []
        self.known: list[Tensor] = []
        self.made: list[Tensor] = []
        self.points: list[tuple[Extent, ...]] = []
        self.main: tuple[Elem, ...] = MAIN
        self.others: tuple[Elem, ...] = OTHERS
        self.nested = 0  # indices inside of indices

    def run(self) -> Case:
        draw = self.draw
        count = 1 + draw.below(4)
        self.names = ("n", "m") if draw.chance(70) else ("n", "m", "p")
        self.extents = [Extent(((name, 1),)) for name in self.names] + [Extent((), draw.pick(CONSTANTS)) for _ in range(draw.below(3))]
        main = draw.pick(self.main)
        self.elems = [main, main, draw.pick(self.others)]
        names = [Extent(((name, 1),)) for name in self.names]
        self.params.append((main, tuple(names[:2]), None))
        if len(names) > 2:
            self.params.append((main, (names[2],), None))
        for _ in range(draw.below(4)):
            self.params.append(self.parameter())
        hints = [(f"x{k}", Type(elem, len(shape))) for k, (elem, shape, _) in enumerate(self.params)]
        f, b = new_function("f", hints, (), self.module)
        carriers = iter(self.names)
        for k in range(1 + (len(names) > 2)):
            for axis in range(len(self.params[k][1])):
                self.dims[next(carriers)] = b.dim(f.params[k], axis)
        for p, (_, shape, into) in zip(f.params, self.params, strict=True):
            value = p
            if any(not e.terms or len(e.terms) > 1 or e.plus for e in shape) and not draw.chance(20):
                value = b.reshape(p, [self.extent(b, e) for e in shape])  # its extents are known by form
            self.known.append(Tensor(value, shape, into))
        for _ in range(count):
            self.statement(b)
        kept = [t.value for t in self.made[:-1] if draw.chance(40)] + [self.made[-1].value]
        b.ret(*kept)
        f.results = tuple(v.type for v in kept)
        verify(self.module)
        return Case(draw.made, self.module, self.params, self.names, self.points)

    @property
    def wide(self) -> tuple[Elem, ...]:
        """Types of what is accumulated."""
        return WIDE if self.main is MAIN else self.main

    # ------------------------------------------------------------ extents and parameters

    def some_extent(self) -> Extent:
        return self.draw.pick(self.extents)

    def shape_extent(self) -> Extent:
        """An extent of a tensor: also one that a convolution or a stride needs."""
        draw = self.draw
        if not draw.chance(35):
            return self.some_extent()
        a, b = self.some_extent(), self.some_extent()
        total: dict[str, int] = {}
        plus = draw.below(4)
        for e, c in ((a, 1 + draw.below(3)), (b, draw.below(3))):
            for name, k in e.terms:
                total[name] = total.get(name, 0) + c * k
            plus += c * e.plus
        return Extent(tuple((name, c) for name, c in total.items() if c), plus)

    def parameter(self) -> tuple[Elem, tuple[Extent, ...], Extent | None]:
        draw = self.draw
        if draw.chance(15):
            into = self.shape_extent()
            if into.is_positive:
                return draw.pick((Elem.I64, Elem.I32, Elem.I64)), (self.some_extent(),), into
        return draw.pick(self.elems), tuple(self.shape_extent() for _ in range(1 + draw.below(3))), None

    def extent(self, b: Builder, e: Extent) -> Value:
        total: Value | None = None
        for name, c in e.terms:
            term = self.dims[name] if c == 1 else b.op("mul", self.dims[name], b.i64(c))
            total = term if total is None else b.op("add", total, term)
        if total is None:
            return b.i64(e.plus)
        return b.op("add", total, b.i64(e.plus)) if e.plus else total

    def small(self, extents: Sequence[Extent]) -> bool:
        """No more points than allowed when all named dimensions are 1."""
        ones = dict.fromkeys(self.names, 1)
        return prod(max(e.value(ones), 1) for e in extents) <= POINTS

    # ------------------------------------------------------------ statements

    def statement(self, b: Builder) -> None:
        kinds = [self.map] * 9 + [self.reduction] * 16 + [self.rows] * 5 + [self.product] * 6 + [self.scatter] * 3 + [self.view] * 2 + [self.windows] * 4 + [self.attention] * 2 + [self.large]
        self.draw.pick(kinds)(b)

    def keep(self, value: Value, shape: Sequence[Extent]) -> None:
        tensor = Tensor(value, tuple(shape))
        self.made.append(tensor)
        if shape:
            self.known.append(tensor)

    def output_shape(self, least: int = 0, most: int = 3) -> list[Extent]:
        while True:
            shape = [self.some_extent() for _ in range(least + self.draw.below(most - least + 1))]
            if self.small(shape):
                return shape

    def axes(self, indices: Sequence[Value], shape: Sequence[Extent]) -> list[Axis]:
        return [Axis(i, e) for i, e in zip(indices, shape, strict=True)]

    def map(self, b: Builder) -> None:
        shape = self.output_shape(1)
        elems = [self.draw.pick(self.elems) for _ in range(1 + self.draw.chance(20))]
        depth = 1 + self.draw.below(2)

        def body(inner: Builder, *indices: Value) -> list[Value]:
            return [self.expr(inner, elem, self.axes(indices, shape), depth) for elem in elems]

        self.points.append(tuple(shape))
        for r in b.tabulate_many([self.extent(b, e) for e in shape], body).results:
            self.keep(r, shape)

    def reduction(self, b: Builder) -> None:
        shape = self.output_shape()
        while True:
            inner = [self.some_extent() for _ in range(1 + self.draw.below(3))]
            if self.small(shape + inner):
                break
        self.points.append((*shape, *inner))
        if not shape:
            for r in self.reduced(b, [], inner):
                self.keep(r, shape)
            return
        epilogue = self.draw.chance(40)

        def body(inside: Builder, *indices: Value) -> list[Value]:
            axes = self.axes(indices, shape)
            out = self.reduced(inside, axes, inner)
            if epilogue:
                out = [self.combined(inside, r, self.expr(inside, r.type.elem, axes, 1)) for r in out]
            return out

        for r in b.tabulate_many([self.extent(b, e) for e in shape], body).results:
            self.keep(r, shape)

    def combined(self, b: Builder, x: Value, y: Value) -> Value:
        return b.op("xor" if x.type.elem is Elem.BOOL else self.draw.pick(("add", "sub", "max")), x, y)

    def reduced(self, b: Builder, axes: list[Axis], inner: Sequence[Extent]) -> list[Value]:
        """A reduction at given indices; gives its results, several for `argmax` of several indices."""
        draw = self.draw
        op = draw.pick(("sum", "sum", "sum", "max", "min", "prod", "any", "all", "argmax", "argmin"))
        elem = Elem.BOOL if op in ("any", "all") else draw.pick(self.elems)
        if elem is Elem.BOOL and op not in ("any", "all"):
            elem = self.wide[0]
        if op in ("sum", "prod") and elem in (Elem.F16, Elem.BF16):
            elem = Elem.F32  # narrow reals accumulate in f32
        order = draw.pick(("lanes", "chain", "chain", "strict")) if op in ("sum", "prod") and elem.is_real else "lanes"
        product = order == "chain" and op == "sum" and not draw.chance(15)
        extents = [self.extent(b, e) for e in inner]
        triangular = [a for a in axes if a.extent == inner[0]]
        if triangular and draw.chance(30):  # the first ends at an index of the comprehension
            i = draw.pick(triangular).index
            extents[0] = b.op("add", i, b.i64(1)) if draw.chance(50) else i
        depth = draw.below(2)

        def term(t: Builder, *indices: Value) -> Value:
            here = axes + self.axes(indices, inner)
            if product:
                return t.op("mul", self.expr(t, elem, here, 0), self.expr(t, elem, here, 0))
            return self.expr(t, elem, here, depth)

        return list(b.reduce_many(op, extents, term, order).results)

    def rows(self, b: Builder) -> None:
        """Chains over rows: softmax, layernorm, and what is like them."""
        draw = self.draw
        elem = draw.pick(self.wide)
        shape = self.output_shape(2, 3)
        rows, (width,) = shape[:-1], shape[-1:]
        ext = [self.extent(b, e) for e in rows]
        n = self.extent(b, width)
        self.points.append(tuple(shape))
        if draw.chance(50):
            x = b.tabulate([*ext, n], lambda t, *i: self.expr(t, elem, self.axes(i, shape), 1))
        else:
            x = self.source(b, elem, shape)
        at = lambda t, y, i: t.index(y, *i)  # noqa: E731
        row = lambda op, f: b.tabulate(ext, lambda t, *i: t.reduce(op, [n], lambda u, k: f(u, i, k)))  # noqa: E731
        whole = lambda f: b.tabulate([*ext, n], f)  # noqa: E731
        kind = draw.below(3)
        if kind == 0:
            top = row("max", lambda u, i, k: u.index(x, *i, k))
            e = whole(lambda t, *i: t.op("exp", t.op("sub", at(t, x, i), at(t, top, i[:-1]))))
            s = row("sum", lambda u, i, k: u.index(e, *i, k))
            y = whole(lambda t, *i: t.op("div", at(t, e, i), at(t, s, i[:-1])))
        elif kind == 1:
            s = row("sum", lambda u, i, k: u.index(x, *i, k))
            centered = whole(lambda t, *i: t.op("sub", at(t, x, i), t.op("div", at(t, s, i[:-1]), t.convert(n, Type(elem)))))

            def square(u: Builder, i: Sequence[Value], k: Value) -> Value:
                c = u.index(centered, *i, k)
                return u.op("mul", c, c)

            v = row("sum", square)
            one = b.const(1.0, Type(elem))
            y = whole(lambda t, *i: t.op("div", at(t, centered, i), t.op("sqrt", t.op("add", at(t, v, i[:-1]), one))))
        else:
            a = row(draw.pick(("max", "min", "prod", "sum")), lambda u, i, k: u.index(x, *i, k))
            c = row("sum", lambda u, i, k: u.op("mul", u.index(x, *i, k), u.index(a, *i)))
            y = whole(lambda t, *i: t.op("add", t.op("mul", at(t, x, i), at(t, a, i[:-1])), at(t, c, i[:-1])))
            if draw.chance(50):
                self.keep(c, rows)
        self.keep(y, shape)

    def source(self, b: Builder, elem: Elem, shape: Sequence[Extent]) -> Value:
        """A tensor of this shape: a known one, or a new one."""
        fitting = [t for t in self.known if t.elem is elem and t.shape == tuple(shape)]
        if fitting:
            return self.draw.pick(fitting).value
        return b.tabulate([self.extent(b, e) for e in shape], lambda t, *i: self.load(t, elem, self.axes(i, shape)))

    def product(self, b: Builder) -> None:
        """C[h.., i, j] = sum[k] A[..] * B[..] with every order of the indices, plain, batched, by a vector, with a term of its own."""
        draw = self.draw
        elem = draw.pick(self.wide)
        letters = draw.pick(("ij", "ij", "ij", "hij", "i", "hgij"))
        size = {c: self.some_extent() for c in "hgijk"}
        if not self.small([size[c] for c in letters + "k"]):
            size = dict.fromkeys("hgijk", self.extents[0])
        batch = letters.replace("i", "").replace("j", "")
        left = self.shuffled(batch + "ik")
        right = self.shuffled((batch if draw.chance(70) else "") + ("jk" if "j" in letters else "k"))
        result = letters if draw.chance(70) else self.shuffled(letters)
        x = self.source(b, elem, [size[c] for c in left])
        y = self.source(b, elem, [size[c] for c in right])
        shape = [size[c] for c in result]
        self.points.append((*shape, size["k"]))
        ending = draw.below(3)

        def element(t: Builder, *indices: Value) -> Value:
            at = dict(zip(result, indices, strict=True))

            def term(u: Builder, k: Value) -> Value:
                here = at | {"k": k}
                return u.op("mul", u.index(x, *(here[c] for c in left)), u.index(y, *(here[c] for c in right)))

            total = t.reduce("sum", [self.extent(t, size["k"])], term, "chain")
            if ending:
                total = t.op("add", total, self.expr(t, elem, self.axes(indices, shape), 0))
            return t.op("max", total, t.const(0.0, Type(elem))) if ending == 2 else total

        self.keep(b.tabulate([self.extent(b, e) for e in shape], element), shape)

    def windows(self, b: Builder) -> None:
        """Convolutions and pooling: x[c, s i + d p - pad, ..] with strides, dilations, rims of zeros, in every layout."""
        draw = self.draw
        elem = draw.pick((*self.wide, self.wide[0], Elem.I32))
        rank = 1 + draw.below(2)
        batch = self.some_extent() if draw.chance(30) else None
        outer = [self.some_extent() for _ in range(rank)]
        window = [Extent((), 1 + draw.below(4)) for _ in range(rank)]
        channels, filters = Extent((), 1 + draw.below(4)), Extent((), 1 + draw.below(9))
        pooling = draw.chance(25)
        if not self.small([*outer, *window, channels, filters, *([batch] if batch else [])]):
            outer, batch = [self.extents[0]] * rank, None
        strides = [draw.pick((1, 1, 1, 2, 3)) for _ in range(rank)]
        dilations = [draw.pick((1, 1, 1, 2)) for _ in range(rank)]
        pads = [draw.below(3) for _ in range(rank)] if draw.chance(60) else [0] * rank
        size = [
            Extent(tuple((n, s * c) for n, c in e.terms), max(s * e.plus + d * w.plus - draw.below(3) * pad, 1))
            for e, w, s, d, pad in zip(outer, window, strides, dilations, pads, strict=True)
        ]
        letters = "yx"[:rank]
        extents = {"c": channels, "o": filters, **dict(zip(letters, size, strict=True)), **({"b": batch} if batch else {})}
        front = "b" if batch else ""
        layout = front + draw.pick(("c" + letters, letters + "c"))
        x = self.source(b, elem, [extents[k] for k in layout])
        kernel = self.shuffled("oc" + letters)
        places = dict(zip(letters, window, strict=True))
        w = self.source(b, elem, [places.get(k) or extents[k] for k in kernel])
        result = front + draw.pick(("o" + letters, letters + "o"))
        made = dict(zip(letters, outer, strict=True))
        shape = [made.get(k) or extents[k] for k in result]
        self.points.append((*shape, channels, *window))

        def element(t: Builder, *indices: Value) -> Value:
            at = dict(zip(result, indices, strict=True))

            def term(u: Builder, *inner: Value) -> Value:
                p = dict(zip(letters, inner[-rank:], strict=True))
                here = {"c": at["o"] if pooling else inner[0], "b": at.get("b")}
                guards = []
                for k, s, d, pad, e in zip(letters, strides, dilations, pads, size, strict=True):
                    i = u.op("add", u.op("mul", at[k], u.i64(s)) if s > 1 else at[k], u.op("mul", p[k], u.i64(d)) if d > 1 else p[k])
                    here[k] = u.op("sub", i, u.i64(pad)) if pad else i
                    if pad:
                        guards += [u.op("ge", here[k], u.i64(0)), u.op("lt", here[k], self.extent(u, e))]
                places = [v for v in (here[k] for k in layout) if v is not None]
                if guards:
                    inside = guards[0]
                    for g in guards[1:]:
                        inside = u.op("and", inside, g)
                    value = u.index_if(inside, x, *places)
                else:
                    value = u.index(x, *places)
                if pooling:
                    return value
                return u.op("mul", value, u.index(w, *((p.get(k) or {"o": at["o"], "c": inner[0]}[k]) for k in kernel)))

            inner = [*([] if pooling else [channels]), *window]
            op = draw.pick(("max", "sum", "min")) if pooling else "sum"
            return t.reduce(op, [self.extent(t, e) for e in inner], term, "lanes" if pooling or not elem.is_real else "chain")

        if pooling:
            extents["o"] = channels
            shape = [made.get(k) or extents[k] for k in result]
        self.keep(b.tabulate([self.extent(b, e) for e in shape], element), shape)

    def attention(self, b: Builder) -> None:
        """y = softmax(q @ k.T, with or without a mask) @ v, and what its derivative has: sums over the rows of the same matrix.

        What a mask hides may be left out, so all numbers are finite.
        """
        draw = self.draw
        elem = draw.pick(self.wide)
        type = Type(elem)
        heads = [self.some_extent()] if draw.chance(30) else []
        n, m, d = self.some_extent(), self.some_extent(), Extent((), 1 + draw.below(5))
        if draw.chance(50):
            m = n
        if not self.small([*heads, n, m, d]):
            heads, n, m = [], self.extents[0], self.extents[0]
        self.points.append((*heads, n, m, d))
        large = b.const(1e3, type)
        batch = [self.extent(b, e) for e in heads]
        rows, columns, width = (self.extent(b, e) for e in (n, m, d))

        def finite(shape: Sequence[Extent]) -> Value:
            def body(t: Builder, *i: Value) -> Value:
                x = self.load(t, elem, self.axes(i, shape))
                return t.op("select", t.op("lt", t.op("abs", x), large), x, t.const(0.5, type))

            return b.tabulate([self.extent(b, e) for e in shape], body)

        q, k, v, w = finite([*heads, n, d]), finite([*heads, m, d]), finite([*heads, m, d]), finite([*heads, n, d])
        mask, shift = draw.chance(60), draw.below(3) - 1

        def dot(t: Builder, x: Value, at: Sequence[Value], y: Value, other: Sequence[Value], extent: Value, order: str = "ik,jk") -> Value:
            def term(u: Builder, c: Value) -> Value:
                first, second = order.split(",")
                left = (*at, c) if first == "ik" else (*at[:-1], c, at[-1])
                right = (*other, c) if second == "jk" else (*other[:-1], c, other[-1])
                return u.op("mul", u.index(x, *left), u.index(y, *right))

            return t.reduce("sum", [extent], term, "chain")

        def score(t: Builder, *i: Value) -> Value:
            s = t.op("mul", dot(t, q, i[:-1], k, (*i[:-2], i[-1]), width), t.const(0.5, type))
            if not mask:
                return s
            return t.op("select", t.op("le", i[-1], t.op("add", i[-2], t.i64(shift))), s, t.const(float("-inf"), type))

        row = lambda op, f: b.tabulate([*batch, rows], lambda t, *i: t.reduce(op, [columns], lambda u, j: f(u, i, j)))  # noqa: E731
        whole = lambda f: b.tabulate([*batch, rows, columns], f)  # noqa: E731
        s = whole(score)
        top = row("max", lambda u, i, j: u.index(s, *i, j))
        e = whole(lambda t, *i: t.op("exp", t.op("sub", t.index(s, *i), t.index(top, *i[:-1]))))
        total = row("sum", lambda u, i, j: u.index(e, *i, j))
        a = whole(lambda t, *i: t.op("div", t.index(e, *i), t.index(total, *i[:-1])))
        y = b.tabulate([*batch, rows, width], lambda t, *i: dot(t, a, i[:-1], v, (*i[:-2], i[-1]), columns, "ik,kj"))
        self.keep(y, [*heads, n, d])
        if draw.chance(40):
            z = b.tabulate([*batch, columns, width], lambda t, *i: dot(t, a, i[:-1], w, (*i[:-2], i[-1]), rows, "ki,kj"))
            self.keep(z, [*heads, m, d])

    def large(self, b: Builder) -> None:
        """A product of known sizes that is large for a small cache, so that its operands are copied to panels."""
        draw = self.draw
        size = dict(zip("ijk", (draw.pick((64, 73, 96, 50)), draw.pick((64, 70, 65, 80)), 1 + draw.below(4)), strict=True))
        elem = draw.pick(self.wide)
        operands = [self.shuffled("ik"), self.shuffled("kj")]
        shapes = [[Extent((), size[c]) for c in letters] for letters in operands]
        x, y = (b.tabulate([b.i64(size[c]) for c in w], lambda t, *i, s=s: self.load(t, elem, self.axes(i, s))) for w, s in zip(operands, shapes, strict=True))

        def element(t: Builder, i: Value, j: Value) -> Value:
            def term(u: Builder, k: Value) -> Value:
                at = {"i": i, "j": j, "k": k}
                return u.op("mul", u.index(x, *(at[c] for c in operands[0])), u.index(y, *(at[c] for c in operands[1])))

            return t.reduce("sum", [t.i64(size["k"])], term, "chain")

        self.made.append(Tensor(b.tabulate([b.i64(size["i"]), b.i64(size["j"])], element), ()))

    def shuffled(self, letters: str) -> str:
        out = ""
        while letters:
            c = self.draw.pick(letters)
            out, letters = out + c, letters.replace(c, "", 1)
        return out

    def scatter(self, b: Builder) -> None:
        """A tensor with values added at computed places."""
        draw = self.draw
        elem = draw.pick([e for e in self.elems if e is not Elem.BOOL] or [Elem.F32])
        bases = [t for t in self.known if t.elem is elem and t.shape and all(e.is_positive for e in t.shape)]
        domain = self.output_shape(1, 2)
        if bases and draw.chance(70):
            base = draw.pick(bases)
        else:
            shape = [Extent((), 1 + draw.below(9)) for _ in range(1 + draw.below(2))]
            zero = lambda t, *i: t.const(0.0 if elem.is_real else 0, Type(elem))  # noqa: E731
            base = Tensor(b.tabulate([self.extent(b, e) for e in shape], zero), tuple(shape))

        def body(t: Builder, *indices: Value) -> list[Value]:
            axes = self.axes(indices, domain)
            return [*(self.wrapped(t, axes, e) for e in base.shape), self.expr(t, elem, axes, 1)]

        self.points.append(tuple(domain))
        self.keep(b.scatter(base.value, [self.extent(b, e) for e in domain], body), base.shape)

    def view(self, b: Builder) -> None:
        """A tensor in another shape: a dimension of a known extent joins its neighbour, or a dimension of 1 comes."""
        draw = self.draw
        x = draw.pick(self.known)
        shape = list(x.shape)
        joined = [k for k in range(len(shape) - 1) if not shape[k].terms or not shape[k + 1].terms]
        if joined and draw.chance(60):
            k = draw.pick(joined)
            one, other = shape[k : k + 2] if not shape[k].terms else shape[k : k + 2][::-1]
            shape[k : k + 2] = [Extent(tuple((name, c * one.plus) for name, c in other.terms if one.plus), other.plus * one.plus)]
        else:
            shape.insert(draw.below(len(shape) + 1), Extent((), 1))
        self.keep(b.reshape(x.value, [self.extent(b, e) for e in shape]), shape)

    # ------------------------------------------------------------ scalars

    def expr(self, b: Builder, elem: Elem, axes: list[Axis], depth: int) -> Value:
        """A scalar of a type at indices."""
        draw = self.draw
        kind = draw.below(12) if depth else draw.below(12) // 9
        more = lambda e=elem: self.expr(b, e, axes, depth - 1)  # noqa: E731
        if kind <= 2 or not depth:
            return self.leaf(b, elem, axes) if kind == 1 else self.load(b, elem, axes)
        if kind == 3:
            return b.op("select", more(Elem.BOOL), more(), more())
        if kind == 4:
            source = draw.pick(self.elems)
            if source is Elem.BOOL and elem is Elem.BOOL:
                return b.op("not", more())
            return b.convert(more(source), Type(elem)) if source is not elem and elem is not Elem.BOOL else more()
        if elem is Elem.BOOL:
            source = draw.pick(self.elems)
            if source is Elem.BOOL or kind < 7:
                return b.op(draw.pick(("and", "or", "xor")), more(), more())
            return b.op(draw.pick(("lt", "eq", "ge", "ne")), more(source), more(source))
        if elem.is_real:
            if kind == 5:
                return b.op(draw.pick(("neg", "abs", "sqrt", "floor", "round", "sign")) if draw.chance(85) else draw.pick(ELEMENTARY), more())
            return b.op(draw.pick(("add", "sub", "mul", "max", "div", "min")), more(), more())
        if kind == 5:
            return b.op(draw.pick(("neg", "abs", "not", "sign")) if elem.is_signed else "not", more())
        if kind == 6:
            return b.op(draw.pick(("floordiv", "mod", "shl", "shr")), more(), b.const(1 + draw.below(5), Type(elem)))
        return b.op(draw.pick(("add", "sub", "mul", "max", "min", "and", "xor")), more(), more())

    def leaf(self, b: Builder, elem: Elem, axes: list[Axis]) -> Value:
        """A constant, or an index."""
        if axes and self.draw.chance(50):
            i = self.draw.pick(axes).index
            return b.op("eq", b.op("mod", i, b.i64(3)), b.i64(0)) if elem is Elem.BOOL else b.convert(i, Type(elem))
        k = self.draw.below(4)
        if elem is Elem.BOOL:
            return b.const(k % 2 == 0, BOOL)
        return b.const((1.0, 0.5, -2.25, 0.0)[k] if elem.is_real else (1, 2, 7, 0)[k], Type(elem))

    def load(self, b: Builder, elem: Elem, axes: list[Axis]) -> Value:
        """An element of a known tensor of the type, or of another one, converted."""
        usable = [t for t in self.known if t.elem is elem and t.into is None]
        if not usable:
            others = [t for t in self.known if elem is not Elem.BOOL and t.into is None]
            if not others:
                return self.leaf(b, elem, axes)
            x = self.element(b, self.draw.pick(others), axes)
            return x if x.type.elem is elem else b.convert(x, Type(elem))
        return self.element(b, self.draw.pick(usable[::-1][:6]), axes)

    def element(self, b: Builder, x: Tensor, axes: list[Axis]) -> Value:
        subscripts = _Subscripts(self, b, axes)
        self.nested += 1
        indices = [subscripts.of(e) for e in x.shape]
        self.nested -= 1
        if subscripts.guards:
            cond = subscripts.guards[0]
            for g in subscripts.guards[1:]:
                cond = b.op("and", cond, g)
            return b.index_if(cond, x.value, *indices)
        return b.index(x.value, *indices)

    def wrapped(self, b: Builder, axes: list[Axis], extent: Extent) -> Value:
        """Any integer modulo an extent that is not 0."""
        assert extent.is_positive
        gathers = [t for t in self.known if t.into == extent]
        if gathers and self.nested < NESTED and self.draw.chance(60):
            return b.convert(self.element(b, self.draw.pick(gathers), axes), I64)
        return b.op("mod", self.integer(b, axes), self.extent(b, extent))

    def integer(self, b: Builder, axes: list[Axis]) -> Value:
        """Some integer: an affine form of indices, or what a tensor holds."""
        draw = self.draw
        tensors = [t for t in self.known if t.elem in INTS]
        if tensors and self.nested < NESTED and draw.chance(30):
            return b.convert(self.element(b, draw.pick(tensors), axes), I64)
        if not axes:
            return b.i64(draw.below(7))
        total = draw.pick(axes).index
        if draw.chance(40):
            total = b.op("mul", total, b.i64(1 + draw.below(4)))
        if draw.chance(40):
            total = b.op(draw.pick(("add", "sub")), total, draw.pick(axes).index)
        return b.op("add", total, b.i64(draw.below(9) - 4)) if draw.chance(60) else total


@dataclass
class _Subscripts:
    """Subscripts that are in range for an extent, given the indices in scope; `guards` are the conditions under which they are."""

    generator: _Generator
    b: Builder
    axes: list[Axis]
    guards: list[Value] = field(default_factory=list)

    def of(self, extent: Extent) -> Value:
        draw = self.generator.draw
        same = [a for a in self.axes if a.extent == extent]
        ways: list[Callable[[], Value]] = []
        if same:
            ways += [lambda: draw.pick(same).index] * 8
            ways += [lambda: self.turned(draw.pick(same), extent), lambda: self.clamped(draw.pick(same), extent), lambda: self.halved(draw.pick(same))]
        parts = [[a for a in self.axes if a.extent == Extent(((name, 1),))] for name, _ in extent.terms]
        if extent.terms and all(parts) and (len(extent.terms) > 1 or extent.terms[0][1] > 1 or extent.plus):
            ways += [lambda: self.affine(parts, extent)] * 6
        if extent.is_positive:
            ways += [lambda: self.generator.wrapped(self.b, self.axes, extent), lambda: self.b.i64(draw.below(extent.plus))]
        if not ways or draw.chance(15):
            return self.guarded(extent)
        return draw.pick(ways)()

    def turned(self, a: Axis, extent: Extent) -> Value:
        return self.b.op("sub", self.b.op("sub", self.generator.extent(self.b, extent), self.b.i64(1)), a.index)

    def clamped(self, a: Axis, extent: Extent) -> Value:
        by = self.b.i64(1 + self.generator.draw.below(3))
        if self.generator.draw.chance(50):
            return self.b.op("max", self.b.op("sub", a.index, by), self.b.i64(0))
        last = self.b.op("sub", self.generator.extent(self.b, extent), self.b.i64(1))
        return self.b.op("min", self.b.op("add", a.index, by), last)

    def halved(self, a: Axis) -> Value:
        return self.b.op("floordiv", a.index, self.b.i64(2 + self.generator.draw.below(3)))

    def affine(self, parts: list[list[Axis]], extent: Extent) -> Value:
        """The sum of c i for each term c n of the extent, i below n, and a constant."""
        draw = self.generator.draw
        total: Value | None = None
        room = extent.plus - 1
        for axes, (_, c) in zip(parts, extent.terms, strict=True):
            i = draw.pick(axes).index
            term = i if c == 1 else self.b.op("mul", i, self.b.i64(c))
            total = term if total is None else self.b.op("add", total, term)
            room += c
        assert total is not None
        more = draw.below(room + 1)
        return self.b.op("add", total, self.b.i64(more)) if more else total

    def guarded(self, extent: Extent) -> Value:
        """Any integer, under the condition that it is in range."""
        i = self.generator.integer(self.b, self.axes)
        self.guards += [self.b.op("ge", i, self.b.i64(0)), self.b.op("lt", i, self.generator.extent(self.b, extent))]
        if self.generator.draw.chance(15) and self.axes:
            even = self.b.op("and", self.generator.draw.pick(self.axes).index, self.b.i64(1))
            self.guards.append(self.b.op("eq", even, self.b.i64(0)))
        return i
