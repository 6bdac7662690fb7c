"""Random well-typed expressions, in TL and in Python at once.

What would stop the program (an index out of range, a division by zero) is mostly avoided by construction and now and then not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuzz_types import (
    BOOL,
    FLOATS,
    I64,
    INTS,
    Declaration,
    Dim,
    E,
    Function,
    Scope,
    Struct,
    Tensor,
    Tuple,
    Type,
    Var,
    leaves,
    like,
    match_dims,
    parts,
    stacked,
    substitute,
)
from meaning import NARROW, WIDTHS

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>", "power": "**",
}  # fmt: skip
INT_OPS = ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "shl", "shr", "max", "min")
REAL_OPS = ("add", "sub", "mul", "div", "max", "min", "add", "mul", "sub", "floordiv", "mod")
REAL_FUNCTIONS = ("abs", "sign", "sqrt", "floor", "ceil", "trunc", "round", "exp", "log", "sin", "cos", "tanh", "erf", "expm1", "log1p")
REDUCERS = ("sum", "prod", "max", "min")
REAL_LITERALS = ("0.0", "1.0", "2.0", "-1.5", "0.1", "3.25", "-0.7", "1e-3", "-2.0", "0.5", "7.0", "-0.0", "1e4", "inf", "nan")


GENERICS = {  # in TL and in Python; the type is the first argument there where it matters
    "either": ("fn either[P: any](a: P, b: P, c: bool) -> P = if c { a } else { b }", "def either(a, b, c):\n  return a if c else b"),
    "blend": (
        "fn blend[T: num](a: T, b: T) -> T {\n  let t = a * b\n  if t < a { t - b } else { max(t, a) + b }\n}",
        "def blend(e, a, b):\n  t = op('mul', e, a, b)\n  return op('sub', e, t, b) if t < a else op('add', e, op('max', e, t, a), b)",
    ),
    "around": (
        "fn around[T: num](x: T[n], step: i64) -> T[n] = for[i < n] x[(i + step) % n]",
        "def around(x, by):\n  n = x.shape[0]\n  return tabulate((n,), (), lambda i: at(x, op('mod', 'i64', op('add', 'i64', i, by), n)))",
    ),
    "through": (
        "fn through[T: num](f: fn(T) -> T, x: T[n]) -> T[n] {\n  var y = x\n  for i in 0..n { y[i] = f(y[n - 1 - i]) }\n  y\n}",
        "def through(f, x):\n  n = x.shape[0]\n  for i in range(n):\n    x = put(x, (i,), f(at(x, n - 1 - i)))\n  return x",
    ),
}


@dataclass(frozen=True)
class Profile:
    """What a program has. `unsafe` is the chance that an index or divisor is not made safe; `sums` allows sums of reals. Dimensions are
    `extents`; a piece of code runs no more than about `heavy` times. `code` is the chance that a comprehension's body has statements.
    """

    elems: tuple[str, ...] = ("i64", "f64", "bool")
    unsafe: float = 0.02
    sums: bool = True
    structs: bool = True
    elementary: bool = True
    extents: tuple[int, ...] = (0, 1, 2, 2, 3, 3, 4)
    heavy: int = 150
    code: float = 0.25


@dataclass(frozen=True)
class Range:
    """An index of a comprehension: its text in TL, its name in Python, where it counts from 0 in any case."""

    tl: str
    py: str
    dim: Dim
    start: int = 0


@dataclass
class Expressions:
    """The generator's lower half. `tl` and `py` are the lines written so far in the block at hand."""

    rng: random.Random
    profile: Profile
    tl: list[str] = field(default_factory=list)
    py: list[str] = field(default_factory=list)
    structs: list[Declaration] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    assigned: set[str] = field(default_factory=set)  # Python names that the code at hand assigns
    names: int = 0
    generics: set[str] = field(default_factory=set)
    indexing: bool = False  # in an index, where no more indices with indices in them are made

    # ------------------------------------------------------------ small things

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def pick(self, *choices: tuple[float, Callable[[], E | None]]) -> E:
        """One of the ways to make an expression, by weight; a way that gives None is not open."""
        left = [c for c in choices if c[0] > 0]
        while left:
            chosen = self.rng.choices(left, [w for w, _ in left])[0]
            made = chosen[1]()
            if made is not None:
                return made
            left.remove(chosen)
        raise AssertionError("no way is open")

    @property
    def middle(self) -> int:
        """A typical extent."""
        return sorted(self.profile.extents)[len(self.profile.extents) // 2]

    # ------------------------------------------------------------ types

    def dim(self, scope: Scope) -> Dim:
        if scope.dims and self.chance(0.4):
            return self.rng.choice(scope.dims) + self.rng.choice((0, 0, 0, 1))
        return Dim("", self.rng.choice(self.profile.extents))

    def scalar_type(self) -> Tensor:
        return Tensor(self.rng.choice(self.profile.elems))

    def tensor_type(self, scope: Scope, most: int = 3) -> Tensor:
        rank = self.rng.choice((1, 1, 1, 2, 2, 3)) if most > 2 else self.rng.randint(1, most)
        return Tensor(self.rng.choice(self.profile.elems), tuple(self.dim(scope) for _ in range(rank)))

    def type(self, scope: Scope, compound: float = 0.2) -> Type:
        if self.chance(compound):
            if self.structs and self.chance(0.6):
                declaration = self.rng.choice(self.structs)
                dims = (self.dim(scope),) if self.chance(0.3) else ()
                return Struct(declaration, self.dim(scope) if declaration.param else Dim(), dims)
            return Tuple(tuple(self.type(scope, 0) for _ in range(self.rng.randint(2, 3))))
        return self.scalar_type() if self.chance(0.5) else self.tensor_type(scope)

    # ------------------------------------------------------------ expressions

    def expr(self, scope: Scope, type: Type, depth: int) -> E:
        """An expression of this type."""
        if depth <= 0:
            return self.leaf(scope, type)
        common: list[tuple[float, Callable[[], E | None]]] = [
            (1.0, lambda: self.leaf(scope, type)),
            (0.7, lambda: self.path(scope, type)),
            (0.6, lambda: self.choice(scope, type, depth)),
            (0.8, lambda: self.call(scope, type, depth)),
            (0.25, lambda: self.block(scope, type, depth)),
        ]
        match type:
            case Tensor(dims=()):
                return self.scalar(scope, type, depth, common)
            case Tensor():
                return self.tensor(scope, type, depth, common)
            case _:
                return self.compound(scope, type, depth, common)

    def leaf(self, scope: Scope, type: Type) -> E:
        return self.pick((3, lambda: self.read(scope, type)), (1, lambda: self.path(scope, type)), (0.7, lambda: self.constant(scope, type)))

    def read(self, scope: Scope, type: Type) -> E | None:
        found = [v for v in scope.vars if v.type == type]
        if not found:
            return None
        v = self.rng.choice(found[-6:])
        return E(v.tl, v.py)

    def paths(self, scope: Scope, want: Callable[[Type], bool]) -> list[tuple[Var, E, Type]]:
        """Parts of variables reached by fields alone."""
        out: list[tuple[Var, E, Type]] = []

        def visit(v: Var, e: E, t: Type) -> None:
            if want(t):
                out.append((v, e, t))
            match t:
                case Tuple():
                    for k, item in enumerate(t.items):
                        visit(v, E(f"{e.tl}[{k}]", f"{e.py}[{k}]"), item)
                case Struct():
                    for k, (name, item) in enumerate(t.fields):
                        visit(v, E(f"{e.tl}.{name}", f"{e.py}[{k}]"), item)

        for v in scope.vars:
            visit(v, E(v.tl, v.py), v.type)
        return out

    def path(self, scope: Scope, type: Type) -> E | None:
        """A part of a variable: by fields and leading indices."""

        def want(t: Type) -> bool:
            if isinstance(t, Tuple) or isinstance(type, Tuple) or t.__class__ is not type.__class__ or len(t.dims) < len(type.dims):
                return t == type
            return bool(stacked(t.dims[: len(t.dims) - len(type.dims)], type) == t)

        found = self.paths(scope, want)
        if not found:
            return None
        _, e, t = self.rng.choice(found)
        if isinstance(t, Tuple) or isinstance(type, Tuple):
            return e
        return self.indexed(scope, e, t.dims[: len(t.dims) - len(type.dims)])

    def indexed(self, scope: Scope, base: E, dims: Sequence[Dim]) -> E | None:
        if not dims:
            return base
        if Dim() in dims:
            return None
        indices = [self.index(scope, d) for d in dims]
        return E(f"{base.tl}[{', '.join(i.tl for i in indices)}]", f"at({base.py}, {', '.join(i.py for i in indices)})")

    def index(self, scope: Scope, dim: Dim) -> E:
        """An index into a dimension."""
        alone = [v for v in scope.vars if v.bound == dim]
        if alone and self.chance(0.7):
            v = self.rng.choice(alone)
            return E(v.tl, v.py)
        if not dim.name and self.chance(0.4):
            k = self.rng.randrange(dim.plus)
            return E(f"{k}", f"{k}")
        if self.indexing:
            inner = self.read(scope, I64) or self.literal("i64")
        else:
            self.indexing = True
            inner = self.expr(scope, I64, 1)
            self.indexing = False
        if self.chance(self.profile.unsafe):
            return E(f"({inner.tl} % ({dim} + 1))", f"op('mod', 'i64', {inner.py}, op('add', 'i64', {dim}, 1))")
        e = E(f"({inner.tl} % ({dim}))", f"op('mod', 'i64', {inner.py}, {dim})")
        if self.chance(0.08):
            return E(f"i32{e.tl}", f"convert('i32', 'i64', {e.py})")
        return e

    def constant(self, scope: Scope, type: Type) -> E:
        """Literals and the plainest constructors."""
        match type:
            case Tensor(dims=()):
                return self.literal(type.elem)
            case Tensor(elem=elem, dims=dims):
                if len(dims) == 1 and not dims[0].name and 0 < dims[0].plus < 9 and self.chance(0.5):
                    items = [self.literal(elem) for _ in range(dims[0].plus)]
                    return E(f"[{', '.join(i.tl for i in items)}]", f"rows([{', '.join(i.py for i in items)}])")
                e = self.literal(elem)
                return E(f"full({e.tl}, {', '.join(map(str, dims))})", f"tabulate({like(type)}, (), lambda *_, v={e.py}: v)")
            case Tuple():
                return self.join(type, [self.leaf(scope, t) for t in type.items])
            case Struct(dims=()):
                return self.join(type, [self.leaf(scope, t) for _, t in type.fields])
            case Struct():
                return self.comprehension(scope, type, 1)

    def join(self, type: Type, values: Sequence[E]) -> E:
        """A tuple or struct of these."""
        py = f"({', '.join(v.py for v in values)},)"
        if isinstance(type, Struct):
            return E(f"{type.declaration.name}({', '.join(f'{n} = {v.tl}' for (n, _), v in zip(type.fields, values, strict=True))})", py)
        return E(f"({', '.join(v.tl for v in values)})", py)

    def literal(self, elem: str) -> E:
        if elem == "bool":
            value = self.chance(0.5)
            return E(str(value).lower(), str(value))
        if elem in FLOATS:
            text = self.rng.choice(REAL_LITERALS)
            if text in ("inf", "nan"):
                if self.chance(0.8):
                    return self.literal(elem)
                return E(f"{elem}({text})", f"number('{elem}', float('{text}'))")
            return E(f"({text}{elem})" if text[0] == "-" else f"{text}{elem}", f"number('{elem}', {text})")
        width, signed = WIDTHS[elem]
        least, most = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
        if self.chance(0.05):
            value = self.rng.choice((least, most, most - 1, least + 1))
        else:
            value = self.rng.randint(-9 if signed else 0, 12)
        suffix = "" if elem == "i64" and self.chance(0.7) else elem
        if value == least and signed:
            return E(f"({value + 1}{suffix} - 1{suffix})", str(value))
        return E(f"({value}{suffix})" if value < 0 else f"{value}{suffix}", str(value))

    def choice(self, scope: Scope, type: Type, depth: int) -> E:
        c = self.expr(scope, BOOL, depth - 1)
        a, b = self.expr(scope, type, depth - 1), self.expr(scope, type, depth - 1)
        return E(f"(if {c.tl} {{ {a.tl} }} else {{ {b.tl} }})", f"({a.py} if {c.py} else {b.py})")

    def fill(self, scope: Scope, depth: int) -> None:
        """Write some statements. The upper half of the generator makes them."""

    def block(self, scope: Scope, type: Type, depth: int) -> E | None:
        """`{ statements; value }`, which may assign variables around it."""
        if scope.weight > self.profile.heavy // 4:
            return None
        name = self.name("_b")
        outer_tl, outer_py, outer_assigned = self.tl, self.py, self.assigned
        self.tl, self.py, self.assigned = [], [], set()
        inner = scope.inner(loop=False, result=None)
        self.fill(inner, depth - 1)
        value = self.expr(inner, type, depth - 1)
        changed = sorted(self.assigned & {v.py for v in scope.vars})
        lines = [f"nonlocal {', '.join(changed)}"] if changed else []
        text = "\n".join(("{", *(f"  {line}" for line in self.tl), f"  {value.tl}", "}"))
        outer_py += [f"def {name}():", *(f"  {line}" for line in (*lines, *self.py, f"return {value.py}"))]
        self.tl, self.py, self.assigned = outer_tl, outer_py, outer_assigned | set(changed)
        return E(text, f"{name}()")

    def body(self, scope: Scope, type: Type, depth: int, params: Sequence[str], factors: bool = False) -> tuple[str, E]:
        """The value of a comprehension's body: the name of its Python function, and the expression. With `factors`, that function
        gives the two factors of a product.
        """
        name = self.name("_f")
        outer_tl, outer_py = self.tl, self.py
        self.tl, self.py = [], []
        if depth > 0 and self.chance(self.profile.code) and not (factors and leaves(type)[0].elem in NARROW):  # a product of narrow reals is not rounded
            self.fill(scope, depth - 1)
        value = self.expr(scope, type, depth)
        if self.tl:
            value = E("\n".join(("{", *(f"  {line}" for line in self.tl), f"  {value.tl}", "}")), value.py)
        returned = f"({', '.join(value.factors)})" if value.factors and factors else value.py
        outer_py += [f"def {name}({', '.join(params)}):", *(f"  {line}" for line in (*self.py, f"return {returned}"))]
        self.tl, self.py = outer_tl, outer_py
        return name, value

    # ------------------------------------------------------------ calls

    def call(self, scope: Scope, type: Type, depth: int) -> E | None:
        """A call of a function that gives this type, perhaps by lifting over leading dimensions."""
        fitting = []
        for f in (*self.functions, *scope.closures):
            if scope.weight * f.weight > self.profile.heavy or (scope.pure and not f.pure):
                continue
            found = match_dims(f.result, type, f.names)
            if found is not None:
                fitting.append((f, found, ()))
            if isinstance(type, Tensor) and isinstance(f.result, Tensor) and not f.sizes and f not in scope.closures and len(f.params) > len(f.counts) and f.pure:
                extra = type.dims[: len(type.dims) - len(f.result.dims)]
                if extra and all(isinstance(t, Tensor) for _, t in f.params):
                    lifted = match_dims(f.result, Tensor(type.elem, type.dims[len(extra) :]), f.names)
                    if lifted is not None:
                        fitting.append((f, lifted, extra))
        if not fitting:
            return None
        f, found, extra = self.rng.choice(fitting)
        table = {n: found.get(n) or self.dim(scope) for n in sorted(f.names)}
        args: list[E] = []
        values = [n for n, _ in f.params if n not in f.sizes | f.counts]
        whole = self.rng.choice(values) if values else ""  # this argument has all the extra dimensions
        for name, t in f.params:
            if name in f.sizes:
                args.append(E(str(table[name]), str(table[name])))
            elif name in f.counts:
                e = self.expr(scope, I64, 1)
                args.append(E(f"({e.tl} & 3)", f"op('and', 'i64', {e.py}, 3)"))
            else:
                own = extra if name == whole else extra[self.rng.randint(0, len(extra)) :]
                args.append(self.expr(scope, stacked(own, substitute(t, table)), depth - 1))
        tl = f"{f.name}({', '.join(a.tl for a in args)})"
        if not extra:
            return E(tl, f"{f.name}({', '.join(a.py for a in args)})")
        ranks = f"({''.join(f'{len(leaves(t)[0].dims)}, ' for _, t in f.params)})"
        inner = like(substitute(f.result, table))
        return E(tl, f"lift({f.name}, {ranks}, {inner}, {', '.join(a.py for a in args)})")

    # ------------------------------------------------------------ scalars

    def scalar(self, scope: Scope, type: Tensor, depth: int, common: list[tuple[float, Callable[[], E | None]]]) -> E:
        elem = type.elem
        if elem == "bool":
            return self.pick(
                *common,
                (3, lambda: self.comparison(scope, depth)),
                (1, lambda: self.logic(scope, depth)),
                (0.4, lambda: self.reduction(scope, self.rng.choice(("any", "all")), "bool", depth)),
                (0.2, lambda: self.conversion(scope, elem, depth)),
            )
        ways: list[tuple[float, Callable[[], E | None]]] = [
            *common,
            (3.0, lambda: self.operation(scope, elem, depth)),
            (0.6, lambda: self.unary(scope, elem, depth)),
            (0.6, lambda: self.conversion(scope, elem, depth)),
            (0.8, lambda: self.reduction(scope, self.rng.choice(REDUCERS), elem, depth)),
            (0.2, lambda: self.reduce_call(scope, elem, depth)),
            (0.15, lambda: self.ragged(scope, self.rng.choice(REDUCERS), elem, depth)),
        ]
        if elem == "i64":
            ways += [(0.2, lambda: self.reduction(scope, self.rng.choice(("argmax", "argmin")), "", depth)), (0.15, lambda: self.size(scope))]
        if elem in FLOATS and self.profile.sums:
            ways.append((0.2, lambda: self.reduction(scope, "mean", elem, depth)))
        return self.pick(*ways)

    def size(self, scope: Scope) -> E | None:
        """An extent as a value."""
        found = self.paths(scope, lambda t: isinstance(t, Tensor) and bool(t.dims))
        if not found:
            return None
        _, e, t = self.rng.choice(found)
        assert isinstance(t, Tensor)
        k = self.rng.randrange(len(t.dims))
        return E(f"{e.tl}.shape[{k}]", f"{e.py}.shape[{k}]") if self.chance(0.5) else E(f"len({e.tl})", f"{e.py}.shape[0]")

    def comparison(self, scope: Scope, depth: int) -> E:
        elem = self.rng.choice(self.profile.elems)
        symbol = self.rng.choice(("==", "!=") if elem == "bool" else ("==", "!=", "<", "<=", ">", ">="))
        a, b = self.expr(scope, Tensor(elem), depth - 1), self.expr(scope, Tensor(elem), depth - 1)
        return E(f"({a.tl} {symbol} {b.tl})", f"compare('{symbol}', {a.py}, {b.py})")

    def logic(self, scope: Scope, depth: int) -> E:
        a = self.expr(scope, BOOL, depth - 1)
        word = self.rng.choice(("and", "or", "not", "&", "|", "^"))
        if word == "not":
            return E(f"(not {a.tl})", f"(not {a.py})")
        b = self.expr(scope, BOOL, depth - 1)
        return E(f"({a.tl} {word} {b.tl})", f"({a.py} {word} {b.py})")

    def operation(self, scope: Scope, elem: str, depth: int) -> E:
        """A binary op of scalars."""
        if self.chance(0.06):
            return self.power(scope, elem, depth)
        name = self.rng.choice(REAL_OPS if elem in FLOATS else INT_OPS)
        a = self.expr(scope, Tensor(elem), depth - 1)
        b = self.divisor(self.expr(scope, Tensor(elem), depth - 1), elem, name)
        return self.binary(name, elem, a, b)

    def divisor(self, b: E, elem: str, name: str) -> E:
        """Mostly made odd, so not zero, where an integer is divided by it."""
        if name not in ("floordiv", "mod") or elem in FLOATS or self.chance(self.profile.unsafe * 2):
            return b
        return E(f"({b.tl} | 1{elem})", f"op('or', '{elem}', {b.py}, 1)")

    def binary(self, name: str, elem: str, a: E, b: E) -> E:
        py = f"op('{name}', '{elem}', {a.py}, {b.py})"
        if name in SYMBOLS:
            return E(f"({a.tl} {SYMBOLS[name]} {b.tl})", py, (a.py, b.py) if name == "mul" and elem in FLOATS else None)
        return E(f"{name}({a.tl}, {b.tl})", py)

    def power(self, scope: Scope, elem: str, depth: int) -> E:
        a = self.expr(scope, Tensor(elem), depth - 1)
        if self.chance(0.6):
            n = self.rng.choice((0, 1, 2, 3, 4, 5) if elem not in FLOATS else (0, 1, 2, 3, 4, -1, -2))
            return E(f"({a.tl} ** {n})", f"op('power', '{elem}', {a.py}, {n})" if n != 0 else f"op('power', '{elem}', {a.py}, 0)")
        b = self.expr(scope, I64, depth - 1)
        return E(f"({a.tl} ** ({b.tl} & 7))", f"op('power', '{elem}', {a.py}, op('and', 'i64', {b.py}, 7))")

    def unary(self, scope: Scope, elem: str, depth: int) -> E:
        a = self.expr(scope, Tensor(elem), depth - 1)
        if elem in FLOATS:
            names = ("neg", *(REAL_FUNCTIONS if self.profile.elementary else REAL_FUNCTIONS[:7]))
        else:
            names = ("neg", "not", "abs", "sign") if elem[0] == "i" or not a.tl[0].isdigit() else ("not", "abs", "sign")
        name = self.rng.choice(names)
        tl = {"neg": f"(-{a.tl})", "not": f"(~{a.tl})"}.get(name, f"{name}({a.tl})")
        return E(tl, f"op('{name}', '{elem}', {a.py})")

    def conversion(self, scope: Scope, elem: str, depth: int) -> E | None:
        others = [e for e in self.profile.elems if e != elem]
        if not others:
            return None
        source = self.rng.choice(others)
        a = self.expr(scope, Tensor(source), depth - 1)
        return E(f"{elem}({a.tl})", f"convert('{elem}', '{source}', {a.py})")

    # ------------------------------------------------------------ reductions

    def reduction(self, scope: Scope, name: str, elem: str, depth: int) -> E | None:
        """`sum[k < n] e` and the like."""
        if name in ("argmax", "argmin"):
            elem = self.rng.choice([e for e in self.profile.elems if e != "bool"] or ["i64"])
        if elem in FLOATS and name in ("sum", "prod", "mean") and not self.profile.sums:
            return None
        ranges, scope = self.ranges(scope, [self.dim(scope) for _ in range(1 if name[:3] == "arg" or self.chance(0.7) else 2)])
        if ranges is None:
            return None
        if name in ("max", "min", "mean", "argmax", "argmin") and any(r.dim == Dim() for r in ranges):
            return None
        f, value = self.body(scope, Tensor(elem), depth - 1, [r.py for r in ranges], name in ("sum", "mean"))
        extents = f"({''.join(f'{r.dim}, ' for r in ranges)})"
        chain = ", chain=True" if value.factors else ""
        start = f" + {ranges[0].start}" if name[:3] == "arg" else ""
        return E(f"({name}[{', '.join(r.tl for r in ranges)}] {value.tl})", f"(reduce('{name}', '{elem}', {extents}, {f}{chain}){start})")

    def ranges(self, scope: Scope, dims: Sequence[Dim], shifted: bool = True) -> tuple[list[Range] | None, Scope]:
        """Indices over these dimensions, and the scope of the body."""
        inner = scope.inner(level=scope.level + 1, loop=False, result=None, pure=True)
        out = []
        for d in dims:
            inner.weight *= d.plus if not d.name else self.middle
            if d.plus < 0 and d.name:
                return None, inner
            tl, py = self.name("k"), self.name("_k")
            if shifted and self.chance(0.1):
                start = self.rng.randint(1, 2)
                out.append(Range(f"{tl} in {start}..{d + start}", py, d, start))
                inner.vars.append(Var(tl, f"({py} + {start})", I64))
                inner.vars.append(Var(f"({tl} - {start})", py, I64, bound=d))
            else:
                out.append(Range(f"{tl} < {d}", py, d))
                inner.vars.append(Var(tl, py, I64, bound=d))
        if inner.weight > self.profile.heavy:
            return None, inner
        return out, inner

    def ragged(self, scope: Scope, name: str, elem: str, depth: int) -> E | None:
        """A reduction whose second range depends on the first index."""
        if elem in FLOATS and name in ("sum", "prod") and not self.profile.sums:
            return None
        ranges, inner = self.ranges(scope, [self.dim(scope)], shifted=False)
        if ranges is None or inner.weight * 3 > self.profile.heavy:
            return None
        (outer,) = ranges
        k, py = self.name("k"), self.name("_k")
        index = outer.tl.split()[0]
        inner.vars.append(Var(k, py, I64))
        inner.weight *= 3
        plus = self.rng.randint(0, 2)
        f, value = self.body(inner, Tensor(elem), depth - 1, [outer.py, py], name == "sum")
        chain = ", chain=True" if value.factors else ""
        tl = f"({name}[{outer.tl}, {k} < {index} + {plus}] {value.tl})"
        return E(tl, f"ragged('{name}', '{elem}', {outer.dim}, {plus}, {f}{chain})")

    def reduce_call(self, scope: Scope, elem: str, depth: int) -> E | None:
        """`sum(x)`"""
        name = self.rng.choice(REDUCERS)
        if elem in FLOATS and name in ("sum", "prod") and not self.profile.sums:
            return None
        type = Tensor(elem, self.tensor_type(scope, 2).dims)
        if name in ("max", "min") and Dim() in type.dims:
            return None
        x = self.expr(scope, type, depth - 1)
        return E(f"{name}({x.tl})", f"reduce_all('{name}', '{elem}', {x.py})")

    # ------------------------------------------------------------ tensors

    def tensor(self, scope: Scope, type: Tensor, depth: int, common: list[tuple[float, Callable[[], E | None]]]) -> E:
        return self.pick(
            *common,
            (2.0, lambda: self.comprehension(scope, type, depth)),
            (1.5, lambda: self.elementwise(scope, type, depth)),
            (0.4, lambda: self.rows(scope, type, depth)),
            (0.5, lambda: self.slice(scope, type)),
            (0.5, lambda: self.gather(scope, type, depth)),
            (0.3, lambda: self.transpose(scope, type, depth)),
            (0.3, lambda: self.convert_all(scope, type, depth)),
            (0.3, lambda: self.library(scope, type, depth)),
            (0.3, lambda: self.reduce_axis(scope, type, depth)),
            (0.3, lambda: self.generic_tensor(scope, type, depth)),
            (self.profile.unsafe, lambda: self.cast(scope, type)),
        )

    def generic_tensor(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        """Generic functions and functions of functions, on vectors."""
        if type.elem == "bool":
            return None
        if self.chance(0.3):
            a, b = self.expr(scope, type, depth - 1), self.expr(scope, Tensor(type.elem, type.dims[self.rng.randint(0, 1) :]), depth - 1)
            return E(f"{self.generic('blend')}({a.tl}, {b.tl})", f"lift(lambda a, b: blend('{type.elem}', a, b), (0, 0), (), {a.py}, {b.py})")
        if len(type.dims) > 1:
            return None
        x = self.expr(scope, type, depth - 1)
        if self.chance(0.4):
            by = self.expr(scope, I64, 1)
            return E(f"{self.generic('around')}({x.tl}, {by.tl})", f"around({x.py}, {by.py})")
        scalar = Tensor(type.elem)
        found = [f for f in (*self.functions, *scope.closures) if f.pure and f.result == scalar and [t for _, t in f.params] == [scalar]]
        if not found or scope.weight * 12 > self.profile.heavy:
            return None
        f = self.rng.choice(found)
        return E(f"{self.generic('through')}({f.name}, {x.tl})", f"through({f.name}, {x.py})") if not f.counts | f.sizes else None

    def cast(self, scope: Scope, type: Tensor) -> E | None:
        """`x as T`, which may stop the program."""

        def open(a: Dim, b: Dim) -> bool:
            return a == b or a.name != b.name

        def want(t: Type) -> bool:
            return isinstance(t, Tensor) and t.elem == type.elem and len(t.dims) == len(type.dims) and all(map(open, t.dims, type.dims))

        found = self.paths(scope, want)
        if not found:
            return None
        _, x, _ = self.rng.choice(found)
        return E(f"({x.tl} as {type})", f"cast({x.py}, {like(type)})")

    def comprehension(self, scope: Scope, type: Type, depth: int) -> E:
        assert isinstance(type, Tensor | Struct)
        count = self.rng.randint(1, len(type.dims))
        ranges, inner = self.ranges(scope, type.dims[:count])
        rest: Type = type.__class__(*(getattr(type, f) for f in type.__dataclass_fields__ if f != "dims"), type.dims[count:])  # type: ignore[arg-type]
        if ranges is None:
            if isinstance(type, Tensor):
                return self.constant(scope, type)
            inner.weight = scope.weight
            ranges, inner = self.ranges(inner, type.dims[:count], shifted=False)
            ranges = ranges or []
            depth = 0
        f, value = self.body(inner, rest, depth - 1, [r.py for r in ranges])
        extents = f"({''.join(f'{r.dim}, ' for r in ranges)})"
        tl = f"(for[{', '.join(r.tl for r in ranges)}] {value.tl})"
        return E(tl, f"tabulate({extents}, {like(rest)}, {f})")

    def elementwise(self, scope: Scope, type: Tensor, depth: int) -> E:
        """An operator on tensors; one operand may be smaller."""
        elem, dims = type.elem, type.dims
        small = Tensor(elem, dims[self.rng.randint(1, len(dims)) :])
        shapes = self.rng.choice(([type, type], [type, small], [small, type]))
        if elem == "bool":
            inner = self.rng.choice(self.profile.elems)
            symbol = self.rng.choice(("==", "!=", "and", "or") if inner == "bool" else ("==", "<", ">="))
            a, b = (self.expr(scope, Tensor(inner, t.dims), depth - 1) for t in shapes)
            f = f"lambda a, b: {f'a {symbol} b' if symbol in ('and', 'or') else f'compare({symbol!r}, a, b)'}"
            return E(f"({a.tl} {symbol} {b.tl})", f"lift({f}, (0, 0), (), {a.py}, {b.py})")
        if self.chance(0.2):
            a = self.expr(scope, type, depth - 1)
            name = self.rng.choice(("abs", "neg", "sign"))
            tl = f"(-({a.tl}))" if name == "neg" else f"{name}({a.tl})"
            return E(tl, f"lift(lambda a: op('{name}', '{elem}', a), (0,), (), {a.py})")
        name = self.rng.choice(REAL_OPS if elem in FLOATS else INT_OPS)
        a, b = (self.expr(scope, t, depth - 1) for t in shapes)
        if name in ("floordiv", "mod") and elem not in FLOATS and not self.chance(self.profile.unsafe * 2):
            b = E(f"({b.tl} | 1{elem})", f"lift(lambda a: op('or', '{elem}', a, 1), (0,), (), {b.py})")
        tl = f"({a.tl} {SYMBOLS[name]} {b.tl})" if name in SYMBOLS else f"{name}({a.tl}, {b.tl})"
        return E(tl, f"lift(lambda a, b: op('{name}', '{elem}', a, b), (0, 0), (), {a.py}, {b.py})")

    def rows(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        if type.dims[0].name or not 0 < type.dims[0].plus < 5:
            return None
        items = [self.expr(scope, Tensor(type.elem, type.dims[1:]), depth - 1) for _ in range(type.dims[0].plus)]
        return E(f"[{', '.join(i.tl for i in items)}]", f"rows([{', '.join(i.py for i in items)}])")

    def slice(self, scope: Scope, type: Tensor) -> E | None:
        """`x[a..b]` of a variable whose first dimension is longer or equal."""
        first = type.dims[0]

        def want(t: Type) -> bool:
            if not isinstance(t, Tensor) or t.elem != type.elem or len(t.dims) != len(type.dims) or t.dims[1:] != type.dims[1:]:
                return False
            return t.dims[0].name == first.name and t.dims[0].plus >= first.plus

        found = self.paths(scope, want)
        if not found:
            return None
        _, x, t = self.rng.choice(found)
        assert isinstance(t, Tensor)
        start = self.rng.randint(0, t.dims[0].plus - first.plus)
        end = first + start
        text = f"{start if start or self.chance(0.5) else ''}..{end}"
        return E(f"{x.tl}[{text}]", f"sliced({x.py}, {start}, {end})")

    def gather(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        """`x[idx]` by an integer tensor made of safe indices."""
        found = self.paths(scope, lambda t: isinstance(t, Tensor) and t.elem == type.elem and t.dims[1:] == type.dims[1:] and bool(t.dims))
        if not found:
            return None
        _, x, t = self.rng.choice(found)
        assert isinstance(t, Tensor)
        if t.dims[0] == Dim() or type.dims[0] == Dim():
            return None
        idx = self.expr(scope, Tensor("i64", type.dims[:1]), depth - 1)
        width = t.dims[0] + (1 if self.chance(self.profile.unsafe * 2) else 0)
        safe = E(f"(({idx.tl}) % ({width}))", f"lift(lambda a: op('mod', 'i64', a, {width}), (0,), (), {idx.py})")
        return E(f"{x.tl}[{safe.tl}]", f"gathered({x.py}, {safe.py})")

    def transpose(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        if len(type.dims) < 2:
            return None
        x = self.expr(scope, Tensor(type.elem, (*type.dims[:-2], type.dims[-1], type.dims[-2])), depth - 1)
        return E(f"({x.tl}).T", f"transposed({x.py})")

    def convert_all(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        others = [e for e in self.profile.elems if e != type.elem]
        if not others:
            return None
        source = self.rng.choice(others)
        x = self.expr(scope, Tensor(source, type.dims), depth - 1)
        return E(f"{type.elem}({x.tl})", f"lift(lambda a: convert('{type.elem}', '{source}', a), (0,), (), {x.py})")

    def library(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        """Functions of the prelude on rows, lifted over the rest; `where`, `concat`, `reshape`."""
        if type.elem == "bool":
            return None
        way = self.rng.choice(("where", "flip", "sort", "cumsum", "concat", "reshape"))
        if way == "where":
            c, a, b = self.expr(scope, Tensor("bool", type.dims), depth - 1), self.expr(scope, type, depth - 1), self.expr(scope, type, depth - 1)
            return E(f"where({c.tl}, {a.tl}, {b.tl})", f"lift(lambda c, a, b: a if c else b, (0, 0, 0), (), {c.py}, {a.py}, {b.py})")
        if way in ("flip", "sort", "cumsum"):
            x = self.expr(scope, type, depth - 1)
            return E(f"{way}({x.tl})", f"lift(lambda x: {way}('{type.elem}', x), (1,), ({type.dims[-1]},), {x.py})")
        if way == "concat":
            if type.dims[0].name or type.dims[0].plus < 2:
                return None
            cut = self.rng.randint(1, type.dims[0].plus - 1)
            a = self.expr(scope, Tensor(type.elem, (Dim("", cut), *type.dims[1:])), depth - 1)
            b = self.expr(scope, Tensor(type.elem, (Dim("", type.dims[0].plus - cut), *type.dims[1:])), depth - 1)
            return E(f"concat({a.tl}, {b.tl})", f"concat({a.py}, {b.py})")
        if len(type.dims) == 1:
            if type.dims[0].name or type.dims[0].plus not in (4, 2, 3):
                return None
            other = {4: (Dim("", 2), Dim("", 2)), 2: (Dim("", 1), Dim("", 2)), 3: (Dim("", 3), Dim("", 1))}[type.dims[0].plus]
        else:
            other = (*type.dims[:-2], type.dims[-1], type.dims[-2])
        x = self.expr(scope, Tensor(type.elem, other), depth - 1)
        dims = ", ".join(map(str, type.dims))
        return E(f"reshape({x.tl}, {dims})", f"reshape({x.py}, {dims})")

    def reduce_axis(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        """`sum(x, axis = k)`"""
        if type.elem == "bool" or len(type.dims) > 2:
            return None
        name = self.rng.choice(REDUCERS)
        extent = self.dim(scope)
        if type.elem in FLOATS and name in ("sum", "prod") and not self.profile.sums:
            return None
        if name in ("max", "min") and extent == Dim():
            return None
        axis = self.rng.randint(0, len(type.dims))
        x = self.expr(scope, Tensor(type.elem, (*type.dims[:axis], extent, *type.dims[axis:])), depth - 1)
        return E(f"{name}({x.tl}, axis = {axis})", f"reduce_axis('{name}', '{type.elem}', {x.py}, {axis})")

    # ------------------------------------------------------------ structs and tuples

    def compound(self, scope: Scope, type: Type, depth: int, common: list[tuple[float, Callable[[], E | None]]]) -> E:
        def built() -> E | None:
            if isinstance(type, Struct) and type.dims:
                return self.comprehension(scope, type, depth)
            return self.join(type, [self.expr(scope, t, depth - 1) for t in parts(type)])

        return self.pick(
            *common,
            (2, built),
            (0.6, lambda: self.struct_operation(scope, type, depth)),
            (0.6, lambda: self.struct_call(scope, type, depth)),
            (0.3, lambda: self.generic_choice(scope, type, depth)),
        )

    def struct_call(self, scope: Scope, type: Type, depth: int) -> E | None:
        """A function of scalars applied to structs, leaf by leaf."""
        kinds = {leaf.elem for leaf in leaves(type)}
        real = kinds & set(FLOATS)
        (elem, *others) = real or kinds
        if others or scope.weight * 8 > self.profile.heavy:
            return None
        scalar = Tensor(elem)
        found = [
            f for f in self.functions
            if f.result == scalar and f.pure and f.params and not f.counts | f.names and all(t == scalar for _, t in f.params)
        ]  # fmt: skip
        if not found:
            return None
        f = self.rng.choice(found)
        args = [self.expr(scope, type, depth - 1) for _ in f.params]
        py = f"over_struct(lambda e, *a: lift({f.name}, (0,) * {len(args)}, (), *a), {pattern(type)}, {bool(real)}, {', '.join(a.py for a in args)})"
        return E(f"{f.name}({', '.join(a.tl for a in args)})", py)

    def generic(self, name: str) -> str:
        """A generic function of the program, which is written where it is used."""
        self.generics.add(name)
        return name

    def generic_choice(self, scope: Scope, type: Type, depth: int) -> E:
        a, b, c = self.expr(scope, type, depth - 1), self.expr(scope, type, depth - 1), self.expr(scope, BOOL, 1)
        return E(f"{self.generic('either')}({a.tl}, {b.tl}, {c.tl})", f"either({a.py}, {b.py}, {c.py})")

    def struct_operation(self, scope: Scope, type: Type, depth: int) -> E | None:
        """`s + t`: leaf by leaf; beside real leaves the others pass through from the first."""
        kinds = {leaf.elem for leaf in leaves(type)}
        real = bool(kinds & set(FLOATS))
        if not real and "bool" in kinds:
            return None
        name = self.rng.choice(("add", "mul", "sub", "max"))
        a, b = self.expr(scope, type, depth - 1), self.expr(scope, type, depth - 1)
        tl = f"({a.tl} {SYMBOLS[name]} {b.tl})" if name in SYMBOLS else f"{name}({a.tl}, {b.tl})"
        f = f"lambda e, a, b: lift(lambda a, b: op('{name}', e, a, b), (0, 0), (), a, b)"
        return E(tl, f"over_struct({f}, {pattern(type)}, {real}, {a.py}, {b.py})")


def pattern(type: Type) -> str:
    """The element types of the leaves, as nested lists in Python text."""
    return repr(type.elem) if isinstance(type, Tensor) else f"[{', '.join(map(pattern, parts(type)))}]"


__all__ = ["BOOL", "INTS", "Expressions", "Profile", "pattern"]
