"""Random programs: statements, functions, structs and a `main` that prints all it has.

    program = Generator(random.Random(seed)).program()
    program.tl     the source
    program.py     the same in Python over `meaning`, for `meaning.run`
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from fuzz_expressions import GENERICS, SYMBOLS, Expressions, Profile
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
    parts,
)
from meaning import NARROW

DEPTH = 3  # of expressions


@dataclass(frozen=True)
class Program:
    tl: str
    py: str


def profile(rng: random.Random) -> Profile:
    """What kind of program: a few element types, with or without what makes results differ by rounding."""
    elems = ["i64", "bool", *rng.sample((*INTS, *FLOATS), rng.randint(1, 2))]
    if rng.random() < 0.6:
        elems.append(rng.choice(FLOATS))
    return Profile(
        elems=tuple(dict.fromkeys(elems)),
        unsafe=rng.choice((0.0, 0.01, 0.03, 0.1)),
        sums=rng.random() < 0.5,
        structs=rng.random() < 0.5,
        elementary=rng.random() < 0.5,
    )


@dataclass
class Generator(Expressions):
    """The generator's upper half."""

    def program(self) -> Program:
        tl: list[str] = []
        py: list[str] = []
        if self.profile.structs:
            for _ in range(self.rng.randint(1, 2)):
                self.structs.append(self.declaration())
                tl.append(str(self.structs[-1]))
        for _ in range(self.rng.choice((0, 1, 1, 2, 3))):
            self.recursive() if self.chance(0.3) else self.function()
            tl += self.tl
            py += self.py
            self.tl, self.py = [], []
        self.main()
        opaque = "fn opaque(x: i64, depth: i64) -> i64 = if depth <= 0 { x } else { opaque(x, depth - 1) }"
        extra = [GENERICS[g] for g in sorted(self.generics)]
        tl = [opaque, *(g[0] for g in extra), *tl, *self.tl]
        py = ["def opaque(x, depth):", "  return x", *(g[1] for g in extra), *py, *self.py]
        return Program("\n".join(tl) + "\n", "\n".join(py) + "\n")

    # ------------------------------------------------------------ definitions

    def declaration(self) -> Declaration:
        param = "N" if self.chance(0.4) else ""
        fields: list[tuple[str, Type]] = []
        for k in range(self.rng.randint(1, 3)):
            t: Type = self.scalar_type() if self.chance(0.4) else self.tensor_type(Scope(), 2)
            fields.append((f"f{k}", t))
        if self.structs and not self.structs[0].param and self.chance(0.5):
            fields.append(("inner", Struct(self.structs[0])))
        if self.chance(0.2):
            fields.append(("pair", Tuple((self.scalar_type(), self.tensor_type(Scope(), 1)))))
        if param:
            fields.append(("w", Tensor(self.rng.choice(self.profile.elems), (Dim(param),))))
            if self.chance(0.5):
                fields.append(("v", Tensor(self.rng.choice(self.profile.elems), (Dim("", 2), Dim(param)))))
        return Declaration(f"S{len(self.structs)}", param, tuple(fields))

    def signature(self) -> tuple[Scope, list[tuple[str, Type]], frozenset[str], frozenset[str], list[str]]:
        """A scope with parameters, their types, the dimension variables, the dimension parameters, and Python that finds the dimensions."""
        names = [self.name("n") for _ in range(self.rng.choice((0, 0, 1, 1, 2)))]
        scope = Scope(pure=self.chance(0.8))
        params: list[tuple[str, Type]] = []
        sizes: set[str] = set()
        found: list[str] = []
        for n in names:
            if self.chance(0.3):
                params.append((n, I64))
                sizes.add(n)
            else:
                x, t = self.name("x"), Tensor(self.rng.choice(self.profile.elems), (*self.some_dims(), Dim(n)))
                params.append((x, t))
                found.append(f"{n} = {x}.shape[{len(t.dims) - 1}]")
            scope.vars.append(Var(n, n, I64, size=True))
        for _ in range(self.rng.randint(0 if params else 1, 2)):
            params.append((self.name("x"), self.type(scope) if self.chance(0.6) else self.scalar_type()))
        scope.vars += [Var(x, x, t) for x, t in params if x not in sizes]
        return scope, params, frozenset(names), frozenset(sizes), found

    def some_dims(self) -> tuple[Dim, ...]:
        return (Dim("", self.rng.randint(1, 3)),) if self.chance(0.2) else ()

    def function(self) -> None:
        scope, params, names, sizes, found = self.signature()
        result = self.type(scope) if self.chance(0.6) else self.scalar_type()
        f = self.name("g")
        scope.result = result
        self.py += found
        if self.chance(0.3):
            scope.result = None
            value = self.expr(scope, result, DEPTH)
        else:
            self.statements(scope, self.rng.randint(1, 5), DEPTH - 1)
            value = self.expr(scope, result, 2)
        self.define(f, params, result, value)
        self.functions.append(Function(f, names, tuple(params), result, scope.pure, sizes, weight=4))

    def define(self, f: str, params: list[tuple[str, Type]], result: Type, value: E) -> None:
        """A definition of the lines so far, with a value at the end."""
        head = f"fn {f}({', '.join(f'{n}: {t}' for n, t in params)}) -> {result}"
        self.tl = [f"{head} = {value.tl}"] if not self.tl else [f"{head} {{", *(f"  {line}" for line in self.tl), f"  {value.tl}", "}"]
        self.py = [f"def {f}({', '.join(n for n, _ in params)}):", *(f"  {line}" for line in (*self.py, f"return {value.py}"))]

    def recursive(self) -> None:
        """Recursion by a parameter that counts down."""
        scope, params, names, sizes, found = self.signature()
        scope.pure = True
        result = self.type(scope) if self.chance(0.4) else self.scalar_type()
        f, depth = self.name("rec"), self.name("depth")
        base = self.expr(scope, result, 1)
        self.py += [*found, f"if {depth} <= 0:", f"  return {base.py}"]
        self.tl += [f"if {depth} <= 0 {{ return {base.tl} }}"]
        for _ in range(self.rng.choice((1, 1, 2))):
            args = [E(n, n) if n in sizes else self.expr(scope, t, 1) for n, t in params]
            r = self.name("r")
            self.tl.append(f"let {r} = {f}({', '.join((f'{depth} - 1', *(a.tl for a in args)))})")
            self.py.append(f"{r} = {f}({', '.join((f'{depth} - 1', *(a.py for a in args)))})")
            scope.vars.append(Var(r, r, result))
        value = self.expr(scope, result, 2)
        all_params = [(depth, I64), *params]
        self.define(f, all_params, result, value)
        self.functions.append(Function(f, names, tuple(all_params), result, True, sizes, frozenset({depth}), weight=12))

    def main(self) -> None:
        scope = Scope()
        flags = []
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            n, value = self.name("n"), self.rng.choice(self.profile.extents)
            if self.chance(0.3):
                flags.append(f"{n}: i64 = {value}")
                self.py.append(f"{n} = {value}")
            else:
                self.tl.append(f"let {n} = opaque({value}, 1)")
                self.py.append(f"{n} = {value}")
            scope.vars.append(Var(n, n, I64, size=True))
        self.statements(scope, self.rng.randint(4, 10), DEPTH)
        for v in scope.vars:
            if not v.size:
                self.print(v)
        self.tl = [f"fn main({', '.join(flags)}) {{", *(f"  {line}" for line in self.tl), "}"]
        self.py = ["def main():", "  pass", *(f"  {line}" for line in self.py)]

    # ------------------------------------------------------------ statements

    def statements(self, scope: Scope, count: int, depth: int) -> None:
        for _ in range(count):
            self.statement(scope, depth)

    def statement(self, scope: Scope, depth: int) -> None:
        mutable = [v for v in scope.vars if v.mutable and v.level == scope.level]
        ways = [
            (3.0, self.let), (2.0, self.var),
            (2.5 if mutable else 0, self.assign), (2.5 if mutable else 0, self.assign_part), (0.4 if mutable else 0, self.swap),
            (0.5, self.destructure), (0.4, self.fresh), (0.3, self.closure),
            (0.3, self.check), (0.5 if not scope.pure else 0, self.show),
        ]  # fmt: skip
        if depth > 0:
            ways += [(1.2, self.branch), (1.2, self.loop), (0.6, self.while_), (0.5, self.each), (0.5, self.let_branch)]
        if scope.loop or scope.result is not None:
            ways.append((0.6, self.leave))
        way = self.rng.choices(ways, [w for w, _ in ways])[0][1]
        way(scope, depth)

    def line(self, tl: str, py: str) -> None:
        self.tl.append(tl)
        self.py.append(py)

    def bind(self, scope: Scope, type: Type, mutable: bool = False, shadow: bool = True) -> Var:
        """A new variable; now and then it shadows another."""
        v = self.name("v")
        tl = v
        named = {o.tl.split()[0].lstrip("(") for o in scope.vars if not o.tl.isidentifier()}  # `(k - 1)` speaks of k
        others = [o for o in scope.vars if o.bound is None and not o.size and o.tl.isidentifier() and o.tl not in named]
        if shadow and others and self.chance(0.1):
            hidden = self.rng.choice(others)
            tl = hidden.tl
            scope.vars[:] = [o for o in scope.vars if o.tl != tl]
        return Var(tl, v, type, mutable, scope.level)

    def let(self, scope: Scope, depth: int) -> None:
        self.binding(scope, "let", depth)

    def var(self, scope: Scope, depth: int) -> None:
        self.binding(scope, "var", depth)

    def binding(self, scope: Scope, word: str, depth: int) -> None:
        type = self.type(scope)
        e = self.expr(scope, type, min(depth + 1, DEPTH))
        v = self.bind(scope, type, word == "var")
        self.line(f"{word} {v.tl}{f': {type}' if self.chance(0.3) else ''} = {e.tl}", f"{v.py} = {e.py}")
        scope.vars.append(v)

    def destructure(self, scope: Scope, depth: int) -> None:
        type = Tuple(tuple(self.type(scope, 0) for _ in range(2)))
        e = self.expr(scope, type, depth)
        word = self.rng.choice(("let", "var"))
        new = [self.bind(scope, t, word == "var", shadow=False) for t in type.items]
        self.line(f"{word} ({', '.join(v.tl for v in new)}) = {e.tl}", f"({', '.join(v.py for v in new)}) = {e.py}")
        scope.vars += new

    def fresh(self, scope: Scope, depth: int) -> None:
        """A slice whose length only the run knows, and a name for it."""
        found = self.paths(scope, lambda t: isinstance(t, Tensor | Struct) and bool(t.dims))
        if not found:
            return
        _, x, t = self.rng.choice(found)
        assert not isinstance(t, Tuple)
        d = t.dims[0]
        e = self.expr(scope, I64, 2)
        end, q, y = self.name("end"), self.name("q"), self.name("y")
        self.line(f"var {end} = min(max({e.tl}, 0), {d})", f"{end} = min(max({e.py}, 0), {d})")
        type = replace(t, dims=(Dim(q), *t.dims[1:]))
        if self.chance(0.5):
            self.line(f"let {y}: {type} = {x.tl}[..{end}]", f"{y} = sliced({x.py}, 0, {end})")
        else:
            self.line(f"let {y}: {type} = {x.tl}[{end}..]", f"{y} = sliced({x.py}, {end}, {d})")
        self.py.append(f"{q} = first_extent({y})")
        scope.vars += [Var(q, q, I64, size=True), Var(y, y, type)]

    def closure(self, scope: Scope, depth: int) -> None:
        """`let f = fn(x) => e`, which keeps the values that variables have now."""
        elem = self.rng.choice(self.profile.elems)
        params = [self.name("a") for _ in range(self.rng.randint(1, 2))]
        f, make, result = self.name("h"), self.name("_make"), Tensor(self.rng.choice((elem, self.rng.choice(self.profile.elems))))
        inner = scope.inner(level=scope.level + 1, loop=False, result=None, pure=True)
        inner.vars += [Var(a, a, Tensor(elem)) for a in params]
        outer, self.py = self.py, []
        value = self.expr(inner, result, 2)
        kept = [v.py for v in scope.vars if v.mutable and v.py.isidentifier()]
        lines = [f"def {make}({', '.join(kept)}):", f"  def {f}({', '.join(params)}):", *(f"    {line}" for line in self.py)]
        self.py = [*outer, *lines, f"    return {value.py}", f"  return {f}", f"{f} = {make}({', '.join(kept)})"]
        self.tl.append(f"let {f} = fn({', '.join(params)}) => {value.tl}")
        scope.closures.append(Function(f, frozenset(), tuple((a, Tensor(elem)) for a in params), result, True))

    # ------------------------------------------------------------ assignments

    def mutable(self, scope: Scope) -> Var | None:
        found = [v for v in scope.vars if v.mutable and v.level == scope.level]
        v = self.rng.choice(found) if found else None
        if v is not None:
            self.assigned.add(v.py)
        return v

    def assign(self, scope: Scope, depth: int) -> None:
        v = self.mutable(scope)
        if v is None:
            return
        if isinstance(v.type, Tensor) and not v.type.dims and v.type.elem != "bool" and self.chance(0.6):
            e = self.expr(scope, v.type, depth)
            name, e = self.compound_op(v.type.elem, e)
            self.line(f"{v.tl} {SYMBOLS[name]}= {e.tl}", f"{v.py} = op('{name}', '{v.type.elem}', {v.py}, {e.py})")
            return
        e = self.expr(scope, v.type, depth)
        self.line(f"{v.tl} = {e.tl}", f"{v.py} = {e.py}")

    def compound_op(self, elem: str, e: E) -> tuple[str, E]:
        names = ("add", "sub", "mul", "div") if elem in FLOATS else ("add", "sub", "mul", "mod", "floordiv", "xor", "shl", "shr")
        name = self.rng.choice(names)
        return name, self.divisor(e, elem, name)

    def swap(self, scope: Scope, depth: int) -> None:
        """`(a, b) = (b, a)`"""
        a = self.mutable(scope)
        if a is None:
            return
        same = [v for v in scope.vars if v.mutable and v.level == scope.level and v.type == a.type]
        b = self.rng.choice(same)
        if b.py == a.py:
            return
        self.assigned.add(b.py)
        e = self.expr(scope, a.type, 1)
        self.line(f"({a.tl}, {b.tl}) = ({b.tl}, {e.tl})", f"({a.py}, {b.py}) = ({b.py}, {e.py})")

    def assign_part(self, scope: Scope, depth: int) -> None:
        """`m.w[i, j] = e`: any path of fields and indices; at its end perhaps a slice or a gather."""
        v = self.mutable(scope)
        if v is None:
            return
        steps: list[int | list[str]] = []
        tl, type = v.tl, v.type
        while True:
            if isinstance(type, Tuple | Struct) and (isinstance(type, Tuple) or not type.dims or self.chance(0.5)):
                k = self.rng.randrange(len(parts(type)))
                tl += f"[{k}]" if isinstance(type, Tuple) else f".{type.fields[k][0]}"
                type = parts(type)[k]
                steps.append(k)
            elif not isinstance(type, Tuple) and type.dims and Dim() not in type.dims and (not steps or self.chance(0.8)):
                if isinstance(type, Tensor) and self.chance(0.3):
                    self.assign_items(scope, v, steps, tl, type, depth)
                    return
                count = self.rng.randint(1, len(type.dims))
                indices = [self.index(scope, d) for d in type.dims[:count]]
                names = [self.name("_at") for _ in indices]
                for n, i in zip(names, indices, strict=True):
                    self.py.append(f"{n} = {i.py}")
                tl += f"[{', '.join(i.tl for i in indices)}]"
                steps.append(names)
                type = replace(type, dims=type.dims[count:])
            else:
                break
            if isinstance(type, Tensor) and not type.dims:
                break
        if not steps:
            return
        e = self.expr(scope, type, depth)
        old = get(v.py, steps)
        if isinstance(type, Tensor) and not type.dims and type.elem != "bool" and self.chance(0.4):
            name, e = self.compound_op(type.elem, e)
            self.py.append(f"_new = op('{name}', '{type.elem}', {old}, {e.py})")
            self.line(f"{tl} {SYMBOLS[name]}= {e.tl}", f"{v.py} = {put(v.py, steps, '_new')}")
        else:
            self.py.append(f"_new = {e.py}")
            self.line(f"{tl} = {e.tl}", f"{v.py} = {put(v.py, steps, '_new')}")

    def assign_items(self, scope: Scope, v: Var, steps: list[int | list[str]], tl: str, type: Tensor, depth: int) -> None:
        """`x[a..b] = e`, `x[:, j] = e`, `x[idx] += e`."""
        elem = type.elem
        name = self.rng.choice(("", "", "add", "sub") if elem != "bool" else ("",))
        way = self.rng.choice(("slice", "column", "gather") if len(type.dims) > 1 else ("slice", "gather"))
        d = type.dims[0]
        if way == "slice":
            first = self.rng.randint(0, d.plus) if not d.name else 0
            last = self.rng.randint(first, d.plus) if not d.name else 0
            end = Dim("", last) if not d.name else d
            subscript = f"{first}..{end}" if not d.name else self.rng.choice((":", f"0..{d}", ".."))
            where, extents = f"lambda k: ({first} + k,)", [end + -first]
            if subscript == "..":
                subscript = "0.."
        elif way == "column":
            j = self.index(scope, type.dims[1])
            self.py.append(f"_j = {j.py}")
            subscript, where, extents = f":, {j.tl}", "lambda k, j=_j: (k, j)", [d]
        else:
            count = self.rng.randint(1, 4)
            idx = self.expr(scope, Tensor("i64", (Dim("", count),)), 1)
            self.py.append(f"_idx = lift(lambda a: op('mod', 'i64', a, {d}), (0,), (), {idx.py})")
            subscript, where, extents = f"(({idx.tl}) % ({d}))", "lambda k, i=_idx: (at(i, k),)", [Dim("", count)]
        rest = type.dims[2:] if way == "column" else type.dims[1:]
        shape = (*extents, *rest)
        value = Tensor(elem, shape[self.rng.choice((0, 0, len(shape))) :])
        e = self.expr(scope, value, depth)
        self.py.append(f"_new = {e.py}")
        f = f"lambda a, b: op('{name}', '{elem}', a, b)" if name else "None"
        base = get(v.py, steps)
        rank = len(rest)
        py = f"store({base}, {extents[0]}, {where}, _new, {rank}, {f})"
        self.line(f"{tl}[{subscript}] {SYMBOLS.get(name, '')}= {e.tl}", f"{v.py} = {put(v.py, steps, py)}")

    # ------------------------------------------------------------ control

    def indented(self, scope: Scope, count: int, depth: int) -> tuple[list[str], list[str]]:
        """The lines of a block of statements."""
        tl, py = self.tl, self.py
        self.tl, self.py = [], []
        self.statements(scope, count, depth)
        inner = [f"  {line}" for line in self.tl], [f"  {line}" for line in self.py or ["pass"]]
        self.tl, self.py = tl, py
        return inner

    def fill(self, scope: Scope, depth: int) -> None:
        self.statements(scope, self.count(), depth)

    def count(self) -> int:
        return self.rng.choice((1, 1, 2, 3))

    def branch(self, scope: Scope, depth: int) -> None:
        c = self.expr(scope, BOOL, 2)
        tl, py = self.indented(scope.inner(), self.count(), depth - 1)
        self.tl += [f"if {c.tl} {{", *tl]
        self.py += [f"if {c.py}:", *py]
        if self.chance(0.5):
            tl, py = self.indented(scope.inner(), self.count(), depth - 1)
            self.tl += ["} else {", *tl]
            self.py += ["else:", *py]
        self.tl.append("}")

    def loop(self, scope: Scope, depth: int) -> None:
        if scope.weight > 30:
            return
        i = self.name("k")
        inner = scope.inner(loop=True, weight=scope.weight * 3)
        if self.chance(0.5):
            d = self.dim(scope)
            self.for_(f"for {i} in 0..{d}", f"for {i} in range({d})", inner, [Var(i, i, I64, bound=d, size=True)], depth)
            return
        lo = self.rng.choice(("0", "1", "-2", "3"))
        hi = self.expr(scope, I64, 1)
        step = self.rng.choice((1, 1, 2, 3, -1, -2))
        by = "" if step == 1 else f" by {step}"
        head = f"for {i} in {lo}..(({hi.tl}) % 6){by}", f"for {i} in range({lo}, op('mod', 'i64', {hi.py}, 6), {step})"
        self.for_(*head, inner, [Var(i, i, I64)], depth)

    def for_(self, tl: str, py: str, inner: Scope, new: list[Var], depth: int) -> None:
        inner.vars += new
        body_tl, body_py = self.indented(inner, self.count(), depth - 1)
        self.tl += [f"{tl} {{", *body_tl, "}"]
        self.py += [f"{py}:", *body_py]

    def each(self, scope: Scope, depth: int) -> None:
        """`for row in x { }`"""
        if scope.weight > 30:
            return
        found = self.paths(scope, lambda t: isinstance(t, Tensor | Struct) and bool(t.dims))
        if not found:
            return
        _, x, t = self.rng.choice(found)
        assert not isinstance(t, Tuple)
        row = self.name("row")
        inner = scope.inner(loop=True, weight=scope.weight * 3)
        self.for_(f"for {row} in {x.tl}", f"for {row} in each({x.py})", inner, [Var(row, row, replace(t, dims=t.dims[1:]))], depth)

    def while_(self, scope: Scope, depth: int) -> None:
        if scope.weight > 30:
            return
        fuel = self.name("fuel")
        self.line(f"var {fuel} = {self.rng.randint(1, 4)}", f"{fuel} = {self.rng.randint(1, 4)}")
        start = self.rng.randint(1, 4)
        self.tl[-1], self.py[-1] = f"var {fuel} = {start}", f"{fuel} = {start}"
        c = self.expr(scope, BOOL, 2)
        body_tl, body_py = self.indented(scope.inner(loop=True, weight=scope.weight * 3), self.count(), depth - 1)
        order = self.chance(0.5)
        head_tl = f"while {fuel} > 0 and {c.tl} {{" if order else f"while {c.tl} and {fuel} > 0 {{"
        head_py = f"while {fuel} > 0 and {c.py}:" if order else f"while {c.py} and {fuel} > 0:"
        self.tl += [head_tl, f"  {fuel} -= 1", *body_tl, "}"]
        self.py += [head_py, f"  {fuel} -= 1", *body_py]
        self.assigned.add(fuel)

    def let_branch(self, scope: Scope, depth: int) -> None:
        """`let v = if c { ...; a } else { ...; b }`"""
        type = self.type(scope)
        c = self.expr(scope, BOOL, 2)
        v = self.bind(scope, type, shadow=False)
        tl, py = [f"let {v.tl} = if {c.tl} {{"], [f"if {c.py}:"]
        for end in ("else", ""):
            outer_tl, outer_py = self.tl, self.py
            self.tl, self.py = [], []
            inner = scope.inner()
            self.statements(inner, self.count(), depth - 1)
            e = self.expr(inner, type, 2)
            self.line(e.tl, f"{v.py} = {e.py}")
            tl += [*(f"  {line}" for line in self.tl), "} else {" if end else "}"]
            py += [*(f"  {line}" for line in self.py), *(["else:"] if end else [])]
            self.tl, self.py = outer_tl, outer_py
        self.tl += tl
        self.py += py
        scope.vars.append(v)

    def leave(self, scope: Scope, depth: int) -> None:
        """`break`, `continue` or `return` under a condition."""
        c = self.expr(scope, BOOL, 2)
        words = [*(("break", "continue") if scope.loop else ()), *(("return",) if scope.result is not None else ())]
        word = self.rng.choice(words)
        if word == "return":
            assert scope.result is not None
            e = self.expr(scope, scope.result, 1)
            self.tl.append(f"if {c.tl} {{ return {e.tl} }}")
            self.py += [f"if {c.py}:", f"  return {e.py}"]
        else:
            self.tl.append(f"if {c.tl} {{ {word} }}")
            self.py += [f"if {c.py}:", f"  {word}"]

    def check(self, scope: Scope, depth: int) -> None:
        """`assert` and `fail`, which rarely stop."""
        c = self.expr(scope, BOOL, 2)
        v = self.bind(scope, self.scalar_type_shown(), shadow=False)
        e = self.expr(scope, v.type, 1)
        self.line(f"let {v.tl} = {e.tl}", f"{v.py} = {e.py}")
        certain = not self.chance(self.profile.unsafe * 2)
        message = f"message {{{v.tl}}}"
        text = f"'message ' + show({v.py}, '{self.shown}')"
        if self.chance(0.5):
            self.tl.append(f'assert {c.tl}{" or true" * certain}, "{message}"')
            self.py += [f"if not ({c.py}{' or True' if certain else ''}):", f"  assert_(False, {text})"]
        else:
            self.tl.append(f'if {c.tl}{" and false" * certain} {{ fail("{message}") }}')
            self.py += [f"if {c.py}{' and False' if certain else ''}:", f"  fail({text})"]

    shown: str = ""

    def scalar_type_shown(self) -> Tensor:
        """An integer type, to be shown in a message."""
        self.shown = self.rng.choice([e for e in self.profile.elems if e in INTS])
        return Tensor(self.shown)

    # ------------------------------------------------------------ output

    def show(self, scope: Scope, depth: int) -> None:
        found = [v for v in scope.vars if not v.size]
        if found:
            self.print(self.rng.choice(found))

    def print(self, v: Var) -> None:
        """A variable: its reals with all their digits, or as it prints by itself."""
        kinds = {leaf.elem for leaf in leaves(v.type)}
        if len(kinds) > 1 and (kinds & set(NARROW) or self.chance(0.7)):
            for k, t in enumerate(parts(v.type)):
                name = f".{v.type.fields[k][0]}" if isinstance(v.type, Struct) else f"[{k}]"
                self.print(Var(f"{v.tl}{name}", f"{v.py}[{k}]", t))
            return
        spec = ".17g" if kinds <= set(FLOATS) else ""
        hole = f"{{{v.tl}:{spec}}}" if spec else f"{{{v.tl}}}"
        label = v.py.split("[")[0]
        self.line(f'print("{label} {hole}")', f"emit('{label} ' + {shown(v.type, v.py, spec)})")


def get(base: str, steps: list[int | list[str]]) -> str:
    """Python that reads a part."""
    for step in steps:
        base = f"{base}[{step}]" if isinstance(step, int) else f"at({base}, {', '.join(step)})"
    return base


def put(base: str, steps: list[int | list[str]], value: str) -> str:
    """Python that gives the whole with another part."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        return f"with_item({base}, {step}, {put(f'{base}[{step}]', rest, value)})"
    inner = put(f"at({base}, {', '.join(step)})", rest, value)
    return f"put({base}, ({', '.join(step)},), {inner})"


def shown(type: Type, py: str, spec: str) -> str:
    """Python that makes the text of a value."""
    match type:
        case Tensor():
            return f"show({py}, '{type.elem}', '{spec}')"
        case Tuple():
            items = [shown(t, f"{py}[{k}]", spec) for k, t in enumerate(type.items)]
            return "'(' + " + " + ', ' + ".join(items) + " + ')'"
        case Struct():
            fields = [f"'{n} = ' + {shown(t, f'{py}[{k}]', spec)}" for k, (n, t) in enumerate(type.fields)]
            return f"'{type.declaration.name}(' + " + " + ', ' + ".join(fields) + " + ')'"


def generate_wide(seed: int) -> Program:
    """Whole-array code over extents that fill vectors, tiles and lanes, with and without a rest. Too much for `meaning`."""
    rng = random.Random(seed)
    elems = ("i64", *rng.sample(("f32", "f64", "f32", "f64", "i32", "u8", "f16", "bf16", "bool"), 2))
    wide = Profile(
        elems=tuple(dict.fromkeys(elems)), unsafe=rng.choice((0.0, 0.0, 0.003)), structs=rng.random() < 0.3, elementary=rng.random() < 0.5,
        extents=(1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40, 65), heavy=5_000, code=0.03,
    )  # fmt: skip
    return Generator(rng, wide).program()


def generate(seed: int) -> Program:
    rng = random.Random(seed)
    return Generator(rng, profile(rng)).program()


__all__ = ["Generator", "Program", "generate"]
