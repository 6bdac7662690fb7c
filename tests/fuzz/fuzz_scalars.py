"""Random scalar programs: loops, branches, calls, recursion and arrays, over all integer and real types.

    batch = generate(seed)         # some programs in one text
    batch.text                     # its `main` asks `clock` which of them to run, and for the numbers that it is given
    batch.runs                     # which program a run is of, and the answers of `clock`

A program is a function `p0`, `p1`, ... with the functions that it calls. They stand in one text because the time of a comparison is that of
compiling, and because kernels, which fill the arrays at the start, are then the same in every batch. What runs is chosen at run time, so the
optimizer knows neither the arguments nor which program it is.

Most divisors are not zero and most indices in range by construction; now and then one is not, or an assertion fails, and the run
stops with a message at a place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

INTS = {"i8": (8, True), "i32": (32, True), "i64": (64, True), "u8": (8, False), "u32": (32, False)}
REALS = ("f16", "bf16", "f32", "f64")
ELEMS = (*INTS, *REALS, "bool")
Dims = tuple[int | str, ...]  # a name is a dimension that only the run knows

ARRAYS: tuple[tuple[str, Dims], ...] = tuple((elem, dims) for elem in ELEMS for dims in ((5,), (3, 4), ("n",), ("n", 3)))  # what `main` makes
PROGRAMS = 40  # in a batch
RUNS = 3  # of each program
LOOPS = 3  # nested
WEIGHT = 100  # how often a statement may run, about

REAL_LITERALS = ("0.0", "1.0", "2.0", "0.1", "3.25", "1e-3", "0.5", "7.0", "1e4", "100.0", "0.3333333333", "65504.0", "1e30")
REAL_FUNCTIONS = ("abs", "sign", "sqrt", "floor", "ceil", "round", "trunc")
ELEMENTARY = ("exp", "log", "sin", "cos", "tanh")


@dataclass(frozen=True)
class Var:
    """A variable. `below`: it is known to lie in 0..below."""

    name: str
    elem: str
    dims: Dims = ()
    mutable: bool = False
    below: int | str = 0

    @property
    def type(self) -> str:
        return self.elem + (f"[{', '.join(map(str, self.dims))}]" if self.dims else "")


@dataclass(frozen=True)
class Function:
    name: str
    params: tuple[Var, ...]
    results: tuple[tuple[str, Dims], ...]
    recursive: bool
    weight: int


@dataclass
class Scope:
    vars: list[Var]
    results: tuple[tuple[str, Dims], ...]
    loops: int = 0
    weight: int = 1
    itself: Function | None = None  # a function that may call itself here

    def inner(self, **changes: object) -> Scope:
        return replace(self, vars=list(self.vars), **changes)  # type: ignore[arg-type]

    def scalars(self, elem: str) -> list[Var]:
        return [v for v in self.vars if v.elem == elem and not v.dims]


@dataclass(frozen=True)
class Program:
    """Its functions, what `main` does to call it, and the numbers that it is given: of each run `s`, `t` and `r`."""

    text: str
    case: str
    numbers: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Batch:
    programs: tuple[Program, ...]

    @property
    def text(self) -> str:
        """The programs in one text."""
        parts = ["fn opaque(b: bool) -> bool = if clock() < -1.0 { not b } else { b }\n", *(p.text for p in self.programs)]
        parts.append("fn main() {\n  let which = i64(clock())\n  let s = i64(clock())\n  let t = i64(clock())\n  let r = clock()\n")
        parts += [f"  {line}\n" for line in arrays()]
        parts += [f"  if which == {k} {{\n{p.case}  }}\n" for k, p in enumerate(self.programs)]
        return "".join([*parts, "}\n"])

    @property
    def runs(self) -> list[tuple[int, tuple[float, ...]]]:
        """The number of the program that runs, and the answers of `clock`."""
        return [(k, (float(k), *numbers)) for k, p in enumerate(self.programs) for numbers in p.numbers]


@dataclass
class Generator:
    rng: random.Random
    elems: tuple[str, ...] = ELEMS
    unsafe: float = 0.01
    lines: list[str] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    names: int = 0
    cost: int = 0  # of the function at hand
    depth: int = 3  # how deep statements of the program at hand nest

    # ------------------------------------------------------------ small things

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def elem(self) -> str:
        return self.rng.choice(self.elems)

    def some_int(self) -> str:
        return self.rng.choice([e for e in self.elems if e in INTS])

    # ------------------------------------------------------------ expressions

    def literal(self, elem: str) -> str:
        if elem == "bool":
            return self.rng.choice(("true", "false"))
        if elem in REALS:
            text = self.rng.choice(REAL_LITERALS[: -1 if elem == "f16" else None]) + elem
            return f"(-{text})" if self.chance(0.3) else text
        width, signed = INTS[elem]
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
        if self.chance(0.12):
            value = self.rng.choice((low, high, high - 1, low + 1, high // 2, high // 3))
        elif self.chance(0.2):
            value = self.rng.choice([v for k in range(width) for v in ((1 << k) - 1, 1 << k, (1 << k) + 1) if v <= high])
        else:
            value = self.rng.randint(-9 if signed else 0, 12)
        if value == low and signed:
            return f"({value + 1}{elem} - 1{elem})"
        return f"({value}{elem})" if value < 0 else f"{value}{elem}"

    def leaf(self, scope: Scope, elem: str) -> str:
        found = scope.scalars(elem)
        arrays = [v for v in scope.vars if v.elem == elem and v.dims]
        if arrays and self.chance(0.25):
            return self.element(scope, self.rng.choice(arrays))
        if found and self.chance(0.8):
            return self.rng.choice(found[-8:]).name
        others = [v for v in scope.vars if not v.dims and v.elem != elem]
        if others and elem != "bool" and self.chance(0.4):
            return f"{elem}({self.rng.choice(others).name})"
        return self.literal(elem)

    def element(self, scope: Scope, array: Var) -> str:
        return f"{array.name}[{', '.join(self.index(scope, n) for n in array.dims)}]"

    def index(self, scope: Scope, extent: int | str) -> str:
        """An index into a dimension."""
        known = [v.name for v in scope.vars if v.below and (v.below == extent or (isinstance(v.below, int) and isinstance(extent, int) and v.below <= extent))]
        if known and self.chance(0.6):
            return self.rng.choice(known)
        if self.chance(0.4):
            return str(self.rng.randrange(extent)) if isinstance(extent, int) else self.rng.choice(("0", f"{extent} - 1"))
        inner = self.leaf(scope, "i64")
        if inner.isidentifier() and inner != extent and self.chance(self.unsafe):  # the extent itself is beyond its end, which is no program
            return self.rng.choice((inner, f"({inner} % ({extent} + 1))"))
        return f"({inner} % {extent})"

    def expr(self, scope: Scope, elem: str, depth: int) -> str:
        if depth <= 0 or self.chance(0.15):
            return self.leaf(scope, elem)
        if self.chance(0.06):
            a, b = (self.expr(scope, elem, depth - 1) for _ in range(2))
            return f"(if {self.expr(scope, 'bool', depth - 1)} {{ {a} }} else {{ {b} }})"
        if self.chance(0.05) and self.functions:
            made = self.call_of(scope, elem)
            if made:
                return made
        if elem == "bool":
            return self.condition(scope, depth)
        if self.chance(0.12):
            source = self.elem()
            return f"{elem}({self.expr(scope, source, depth - 1)})"
        return self.real(scope, elem, depth) if elem in REALS else self.integer(scope, elem, depth)

    def condition(self, scope: Scope, depth: int) -> str:
        if self.chance(0.65):
            elem = self.elem()
            a, b = self.expr(scope, elem, depth - 1), self.expr(scope, elem, depth - 1)
            symbols = ("==", "!=") if elem == "bool" else ("==", "!=", "<", "<=", ">", ">=")
            return f"({a} {self.rng.choice(symbols)} {b})"
        if self.chance(0.3):
            return f"(not {self.expr(scope, 'bool', depth - 1)})"
        return f"({self.expr(scope, 'bool', depth - 1)} {self.rng.choice(('and', 'or'))} {self.expr(scope, 'bool', depth - 1)})"

    def integer(self, scope: Scope, elem: str, depth: int) -> str:
        a = self.expr(scope, elem, depth - 1)
        way = self.rng.choice(("+", "+", "-", "-", "*", "*", "//", "//", "%", "%", "&", "|", "^", "<<", ">>", "max", "min", "abs", "neg", "**"))
        match way:
            case "max" | "min":
                return f"{way}({a}, {self.expr(scope, elem, depth - 1)})"
            case "abs":
                return f"{'abs' if INTS[elem][1] else 'max'}({a}{'' if INTS[elem][1] else f', {self.leaf(scope, elem)}'})"
            case "neg":
                return f"({'-' if INTS[elem][1] and self.chance(0.6) else '~'}{a})"
            case "**":
                return f"({a} ** {self.rng.randint(0, 4)})"
            case "//" | "%":
                return f"({a} {way} {self.divisor(scope, elem, depth - 1)})"
            case "<<" | ">>" if self.chance(0.5):
                return f"({a} {way} {self.rng.randrange(INTS[elem][0])}{elem})"
            case _:
                return f"({a} {way} {self.expr(scope, elem, depth - 1)})"

    def divisor(self, scope: Scope, elem: str, depth: int) -> str:
        if self.chance(0.5):
            text = self.literal(elem)
            return text if text != f"0{elem}" else f"3{elem}"
        b = self.expr(scope, elem, depth)
        return b if self.chance(self.unsafe * 3) else f"({b} | 1{elem})"

    def real(self, scope: Scope, elem: str, depth: int) -> str:
        a = self.expr(scope, elem, depth - 1)
        way = self.rng.choice(("+", "+", "-", "*", "*", "/", "+", "-", "*", "%", "//", "max", "min", "f", "f", "neg", "**", "where"))
        match way:
            case "max" | "min":
                return f"{way}({a}, {self.expr(scope, elem, depth - 1)})"
            case "f":
                name = self.rng.choice(ELEMENTARY if self.chance(0.06) else REAL_FUNCTIONS)
                return f"{name}({a})"
            case "neg":
                return f"(-{a})"
            case "**":
                return f"({a} ** {self.rng.randint(-1, 3)})".replace("** -1", "** (-1)")
            case "where":
                return f"(if {self.condition(scope, 1)} {{ {a} }} else {{ {self.leaf(scope, elem)} }})"
            case _:
                return f"({a} {way} {self.expr(scope, elem, depth - 1)})"

    # ------------------------------------------------------------ calls

    def callable(self, scope: Scope) -> list[Function]:
        room = WEIGHT // scope.weight
        found = [f for f in self.functions if f.weight <= room]
        return [*found, scope.itself] if scope.itself is not None and not scope.loops else found

    def arguments(self, scope: Scope, f: Function) -> tuple[str, dict[int | str, int | str]] | None:
        """Arguments for a call, and the dimensions that its dimension names stand for."""
        args: list[str] = []
        names: dict[int | str, int | str] = {}
        for p in f.params:
            if p.name == "depth":
                args.append("depth - 1" if f is scope.itself else str(self.rng.randint(0, 3)))
            elif p.dims:
                arrays = [v for v in scope.vars if v.elem == p.elem and fits(v.dims, p.dims)]
                if not arrays:
                    return None
                v = self.rng.choice(arrays)
                names.update((d, e) for d, e in zip(p.dims, v.dims, strict=True) if isinstance(d, str))
                args.append(v.name)
            else:
                args.append(self.expr(scope, p.elem, 1))
        self.cost += f.weight * scope.weight
        return ", ".join(args), names

    def call_of(self, scope: Scope, elem: str) -> str | None:
        """A call as an expression: of a function with one result that is this scalar."""
        found = [f for f in self.callable(scope) if f.results == ((elem, ()),) and f is not scope.itself]
        if not found:
            return None
        f = self.rng.choice(found[-3:])
        made = self.arguments(scope, f)
        return f"{f.name}({made[0]})" if made is not None else None

    # ------------------------------------------------------------ statements

    def line(self, text: str) -> None:
        self.lines.append(text)

    def block(self, scope: Scope, count: int, depth: int) -> list[str]:
        outer, self.lines = self.lines, []
        for _ in range(count):
            self.statement(scope, depth)
        inner, self.lines = [f"  {line}" for line in self.lines], outer
        return inner

    def statement(self, scope: Scope, depth: int) -> None:
        self.cost += scope.weight
        mutable = [v for v in scope.vars if v.mutable]
        ways: list[tuple[float, object]] = [
            (2.0, self.declare), (3.0 if mutable else 0, self.assign), (1.5 if self.callable(scope) else 0, self.call),
            (0.25, self.check), (0.7 if scope.loops else 0.3, self.leave),
        ]  # fmt: skip
        if depth > 0:
            ways += [(1.6, self.branch)]
            if scope.loops < LOOPS and scope.weight * 5 <= WEIGHT:
                ways += [(1.6, self.for_), (0.9, self.while_)]
        way = self.rng.choices(ways, [w for w, _ in ways])[0][1]
        way(scope, depth)  # type: ignore[operator]

    def declare(self, scope: Scope, depth: int) -> None:
        arrays = [v for v in scope.vars if v.dims]
        mutable = self.chance(0.7)
        if arrays and self.chance(0.15):
            source = self.rng.choice(arrays)
            v = replace(source, name=self.name("a"), mutable=mutable)
            self.line(f"{'var' if mutable else 'let'} {v.name} = {source.name}")
        else:
            v = Var(self.name("v"), self.elem(), (), mutable)
            self.line(f"{'var' if mutable else 'let'} {v.name} = {self.expr(scope, v.elem, 3)}")
        scope.vars.append(v)

    def assign(self, scope: Scope, depth: int) -> None:
        v = self.rng.choice([v for v in scope.vars if v.mutable][-10:])
        target = self.element(scope, v) if v.dims else v.name
        if v.elem in INTS and self.chance(0.4):
            symbol = self.rng.choice(("+", "-", "*", "^"))
            self.line(f"{target} {symbol}= {self.expr(scope, v.elem, 2)}")
        elif v.elem in REALS and self.chance(0.4):
            self.line(f"{target} {self.rng.choice(('+', '-', '*', '/'))}= {self.expr(scope, v.elem, 2)}")
        else:
            same = [o for o in scope.vars if o.mutable and o.elem == v.elem and not o.dims]
            if not v.dims and len(same) > 1 and self.chance(0.3):
                other = self.rng.choice([o for o in same if o is not v])
                self.line(f"({v.name}, {other.name}) = ({other.name}, {self.expr(scope, v.elem, 2)})")
            else:
                self.line(f"{target} = {self.expr(scope, v.elem, 3)}")

    def call(self, scope: Scope, depth: int) -> None:
        f = self.rng.choice(self.callable(scope)[-4:])
        made = self.arguments(scope, f)
        if made is None:
            return
        args, names = made
        mutable = self.chance(0.5)
        new = [Var(self.name("r"), elem, tuple(names.get(d, d) for d in dims), mutable) for elem, dims in f.results]
        head, lines = f"{'var' if mutable else 'let'} {self.names_of(new)} = {f.name}({args})", []
        if f is scope.itself:  # only where there is depth left; without a value there are others
            self.line("if depth > 0 {")
            self.line(f"  let {self.names_of(new)} = {f.name}({args})")
            for r in new:
                same = [v for v in scope.vars if v.mutable and (v.elem, v.dims) == (r.elem, r.dims)]
                if same:
                    self.line(f"  {self.rng.choice(same).name} = {r.name}")
            self.line("}")
        else:
            lines.append(head)
            scope.vars += new
        self.lines += lines

    def names_of(self, new: Sequence[Var]) -> str:
        return new[0].name if len(new) == 1 else f"({', '.join(v.name for v in new)})"

    def check(self, scope: Scope, depth: int) -> None:
        v = self.rng.choice([v for v in scope.vars if not v.dims and v.elem in INTS] or [Var("7", "i64")])
        never = not self.chance(self.unsafe * 4)
        c = self.expr(scope, "bool", 2)
        if self.chance(0.5):
            self.line(f'assert {c}{" or opaque(true)" if never else ""}, "assertion {{{v.name}}}"')
        else:
            self.line(f'if {c}{" and opaque(false)" if never else ""} {{ fail("failure {{{v.name}}}") }}')

    def leave(self, scope: Scope, depth: int) -> None:
        c = self.expr(scope, "bool", 2)
        if scope.loops and self.chance(0.75):
            self.line(f"if {c} {{ {self.rng.choice(('break', 'continue'))} }}")
        elif self.chance(0.5):
            self.line(f"if {c} {{ return {self.result(scope)} }}")

    def result(self, scope: Scope) -> str:
        values: list[str] = []
        for elem, dims in scope.results:
            if dims:
                values.append(self.rng.choice([v.name for v in scope.vars if (v.elem, v.dims) == (elem, dims)]))
            else:
                values.append(self.expr(scope, elem, 2))
        return values[0] if len(values) == 1 else f"({', '.join(values)})"

    def branch(self, scope: Scope, depth: int) -> None:
        self.line(f"if {self.expr(scope, 'bool', 2)} {{")
        self.lines += self.block(scope.inner(), self.rng.randint(1, 3), depth - 1)
        while self.chance(0.2):
            self.line(f"}} else if {self.expr(scope, 'bool', 2)} {{")
            self.lines += self.block(scope.inner(), self.rng.randint(1, 2), depth - 1)
        if self.chance(0.5):
            self.line("} else {")
            self.lines += self.block(scope.inner(), self.rng.randint(1, 3), depth - 1)
        self.line("}")

    def for_(self, scope: Scope, depth: int) -> None:
        i = self.name("k")
        below: int | str = 0
        if self.chance(0.5):
            below = self.rng.choice((3, 4, 5, *dict.fromkeys(d for v in scope.vars for d in v.dims if isinstance(d, str))))
            head = f"0..{below}"
        else:
            low, high = self.rng.choice(("0", "1", "-3", "2")), f"({self.leaf(scope, 'i64')} % {self.rng.randint(2, 7)})"
            step = self.rng.choice((1, 1, 2, 3, -1, -2))
            head = f"{low}..{high}" if step == 1 else f"{high}..{low} by {step}" if step < 0 else f"{low}..{high} by {step}"
        inner = scope.inner(loops=scope.loops + 1, weight=scope.weight * 4)
        inner.vars.append(Var(i, "i64", below=below))
        body = self.block(inner, self.rng.randint(1, 4), depth - 1)
        self.lines += [f"for {i} in {head} {{", *body, "}"]

    def while_(self, scope: Scope, depth: int) -> None:
        elem, fuel = self.some_int(), self.name("w")
        most = self.rng.randint(2, 6)
        up = self.chance(0.5)
        self.line(f"var {fuel} = {0 if up else most}{elem}")
        inner = scope.inner(loops=scope.loops + 1, weight=scope.weight * 4)
        inner.vars.append(Var(fuel, elem, below=most if up and elem == "i64" else 0))
        test = f"{fuel} < {most}{elem}" if up else f"{fuel} > 0{elem}"
        if self.chance(0.4):
            extra = self.expr(scope, "bool", 2)
            test = f"{test} and {extra}" if self.chance(0.7) else f"{extra} and {test}"
        late = self.chance(0.4)  # the counter changes at the end, so `continue` must not skip it
        if late:
            inner.loops = 0
        body = self.block(inner, self.rng.randint(1, 4), depth - 1)
        count = f"  {fuel} {'+' if up else '-'}= 1{elem}"
        if not late:
            inner.vars = [replace(v, below=0) if v.name == fuel else v for v in inner.vars]
        self.lines += [f"while {test} {{", *([*body, count] if late else [count, *body]), "}"]

    # ------------------------------------------------------------ functions

    def function(self, name: str, recursive: bool, entry: bool) -> Function:
        params = [Var(self.name("x"), self.elem()) for _ in range(self.rng.choice((0, 1, 2, 2, 3, 3, 5, 8, 14)))]
        sizes: list[Var] = []
        for elem, dims in self.rng.sample([a for a in ARRAYS if a[0] in self.elems], self.rng.choice((0, 1, 1, 2))):
            if "n" in dims:
                sizes.append(Var(self.name("n"), "i64"))
            params.append(Var(self.name("x"), elem, tuple(sizes[-1].name if d == "n" else d for d in dims)))
        self.rng.shuffle(params)
        if recursive:
            params.insert(self.rng.randint(0, len(params)), Var("depth", "i64"))
        arrays = [p for p in params if p.dims]
        results: list[tuple[str, Dims]] = [(self.elem(), ()) for _ in range(self.rng.choice((1, 1, 1, 1, 2, 2, 3, 5, 11)))]
        if arrays and self.chance(0.5):
            p = self.rng.choice(arrays)
            results.insert(self.rng.randint(0, len(results)), (p.elem, p.dims))
        f = Function(name, tuple(params), tuple(results), recursive, 0)
        scope = Scope([*params, *sizes], f.results, itself=f if recursive else None)
        self.cost, self.lines = 0, []
        for p in arrays:
            if self.chance(0.6):
                v = replace(p, name=self.name("a"), mutable=True)
                self.line(f"var {v.name} = {p.name}")
                scope.vars.append(v)
        for p in params:
            if not p.dims and self.chance(0.3):
                v = replace(p, name=self.name("v"), mutable=True)
                self.line(f"var {v.name} = {p.name}")
                scope.vars.append(v)
        for _ in range(self.rng.randint(1, 4) if entry else self.rng.randint(1, 3)):
            self.statement(scope, self.depth if entry else min(self.depth, 2))
        value = self.result(scope)
        types = [elem + (f"[{', '.join(map(str, dims))}]" if dims else "") for elem, dims in results]
        type = types[0] if len(types) == 1 else f"({', '.join(types)})"
        head = f"fn {name}({', '.join(f'{p.name}: {p.type}' for p in params)}) -> {type} {{"
        self.lines = [head, *(f"  {line}" for line in self.lines), f"  {value}", "}"]
        return replace(f, weight=max(1, self.cost) * (9 if recursive else 1))

    def program(self, number: int) -> Program:
        """A function `p` and its helpers."""
        text: list[str] = []
        self.functions = []
        self.depth = self.rng.choice((0, 1, 1, 2, 3))
        for _ in range(self.rng.choice((0, 0, 0, 1, 2))):
            f = self.function(self.name("g"), self.chance(0.5), False)
            text += self.lines
            self.functions.append(f)
        p = self.function(f"p{number}", False, True)
        text += self.lines
        case = self.main_case(p)
        return Program("".join(f"{line}\n" for line in text), case, tuple(self.numbers() for _ in range(RUNS)))

    def numbers(self) -> tuple[float, float, float]:
        pick, some = self.rng.choice, self.rng.randint
        s = pick((0, 1, -1, 7, 100, -100, some(-300, 300), some(-(2**50), 2**50)))
        t = pick((0, 1, 2, 5, -3, 127, 255, some(-50, 50), some(-(2**33), 2**33)))
        r = pick((0.0, 1.0, -1.0, 0.5, 3.7, -2.25, 1e-3, 1e10, float("inf"), float("nan"), self.rng.uniform(-10, 10)))
        return float(s), float(t), r

    def main_case(self, p: Function) -> str:
        """What `main` does for a program: give it arguments that are made of the numbers that it was given, and print what it gives."""
        args: list[str] = []
        fills: list[str] = []
        for q in p.params:
            if q.dims:
                dims: Dims = tuple("n" if isinstance(d, str) else d for d in q.dims)
                args.append(array_name(q.elem, dims))
                fills.append(filled(q.elem, dims))
            elif q.elem == "bool":
                args.append(self.rng.choice(("s > t", "s == t", "r < 0.5", "s % 2 == 0")))
            elif q.elem in REALS:
                args.append(self.rng.choice((f"{q.elem}(r)", f"{q.elem}(s)", f"{q.elem}(r) * {q.elem}(t)")))
            else:
                args.append(self.rng.choice((f"{q.elem}(s)", f"{q.elem}(t)", f"{q.elem}(s * {self.rng.randint(2, 99)} + t)")))
        results = [Var(f"r{k}", elem, dims) for k, (elem, dims) in enumerate(p.results)]
        shown: list[str] = []
        for r in results:
            spec = ":.17g" if r.elem in REALS else ""
            places = ["[0]", "[2]"] if r.dims == (5,) else ["[0, 0]", "[2, 1]"] if r.dims == (3, 4) else ["[0]", "[n - 1]"]
            places = [""] if not r.dims else places if len(r.dims) == 1 or isinstance(r.dims[0], int) else ["[0, 2]", "[n - 1, 0]"]
            shown += [f"{{{r.name}{place}{spec}}}" for place in places]
        fill = "".join(f"    {line}\n" for line in dict.fromkeys(fills))
        return f"{fill}    let {self.names_of(results)} = {p.name}({', '.join(args)})\n    print(\"{' '.join(shown)}\")\n"


def fits(dims: Dims, wanted: Dims) -> bool:
    """Whether an array of these dimensions may be given where those are declared: a name takes any."""
    return len(dims) == len(wanted) and all(isinstance(w, str) or d == w for d, w in zip(dims, wanted, strict=True))


def array_name(elem: str, dims: Dims) -> str:
    return f"{elem}_{'_'.join(map(str, dims))}"


def arrays() -> list[str]:
    """Every array of `ARRAYS`. The same in every batch, so the kernels are."""
    out = ["let n = 1 + t % 6"]
    for elem, dims in ARRAYS:
        item = "false" if elem == "bool" else f"0{'.0' if elem in REALS else ''}{elem}"
        out.append(f"var {array_name(elem, dims)} = full({item}, {', '.join(map(str, dims))})")
    return out


def filled(elem: str, dims: Dims) -> str:
    """A line that fills an array with numbers made of `s`, `t` and `r`."""
    indices = ("i", "j")[: len(dims)]
    heads = " ".join(f"for {i} in 0..{d} {{" for i, d in zip(indices, dims, strict=True))
    k = "i" if len(dims) == 1 else "(i * 4 + j)"
    value = f"s % ({k} + 2) == 0" if elem == "bool" else f"{elem}(r * f64({k} - 1))" if elem in REALS else f"{elem}(s * {k} + t)"
    return f"{heads} {array_name(elem, dims)}[{', '.join(indices)}] = {value} {'}' * len(dims)}"


def generate(seed: int, programs: int = PROGRAMS) -> Batch:
    rng = random.Random(seed)
    out: list[Program] = []
    for number in range(programs):
        few = rng.random() < 0.5
        elems = ("i64", *rng.sample(ELEMS, rng.randint(1, 4))) if few else ELEMS
        generator = Generator(rng, tuple(dict.fromkeys(elems)), rng.choice((0.0, 0.0, 0.01, 0.03, 0.1)), names=1000 * number)
        out.append(generator.program(number))
    return Batch(tuple(out))


__all__ = ["Batch", "Program", "generate"]
