"""Random differentiable functions, and programs that print their derivatives beside what differences need.

    f            a scalar of f64 parameters (scalars, tensors, structs): loops, branches, recursion, comprehensions, updates, gathers, calls
    gradient     value_and_grad(f)(..., wrt = ...), by leaf of the parameters
    slope        for every element e of a leaf: f at x - H e, x - h e, x, x + h e, x + H e
    forward      jvp(f)(x, gradient) and the gradient's own square, which must be equal
    hessian      of a vector: the matrix
    turn         for every element of that vector: the gradient at the same five places

What is not smooth is rare enough not to matter: a comparison of two computed numbers, a maximum of two. `compare_gradients.py` sees from the five
values whether a function is smooth there; where it is not, nothing follows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuzz_expressions import GENERICS, Profile
from fuzz_programs import Generator, Program
from fuzz_types import Dim, E, Scope, Struct, Tensor, Tuple, Type, Var, leaves

STEPS = (4e-5, 1e-5)  # H and h
DIFFERENCES = "#"  # before a line of the generator: it belongs to differences
FEW = 3  # elements of a vector of which the second derivatives are asked for
SMOOTH = ("add", "sub", "mul", "add", "sub", "mul", "max", "min")
FUNCTIONS = {  # bounded, and with bounded derivatives
    "sin": "sin({})", "cos": "cos({})", "tanh": "tanh({})", "sigmoid": "sigmoid({})", "erf": "erf({})",
    "exp": "exp(tanh({}))", "root": "sqrt(1.5f64 + sin({}))", "log": "log(1.5f64 + sin({}))", "quotient": "({0} / (1.0f64 + {0} * {0}))",
    "abs": "abs({})", "neg": "(-({}))", "square": "(tanh({}) ** 2)", "cube": "(sin({}) ** 3)", "silu": "silu(tanh({}))",
    "floor": "floor(0.7f64 + {})",
}  # fmt: skip


@dataclass
class GradientGenerator(Generator):
    """Programs whose reals are differentiated. The Python that the upper classes write is not used."""

    all_params: list[tuple[str, Type]] = field(default_factory=list)
    active: list[tuple[str, Type]] = field(default_factory=list)  # of them, what is differentiated by
    size_name: str = ""

    # ------------------------------------------------------------ smooth expressions

    def literal(self, elem: str) -> E:
        if elem != "f64":
            return super().literal(elem)
        text = self.rng.choice(("0.5", "-1.5", "0.25", "2.0", "-0.75", "1.0", "0.0", "0.3"))
        return E(f"({text}f64)", text)

    def operation(self, scope: Scope, elem: str, depth: int) -> E:
        if elem != "f64":
            return super().operation(scope, elem, depth)
        a, b = self.expr(scope, Tensor(elem), depth - 1), self.expr(scope, Tensor(elem), depth - 1)
        return self.binary(self.rng.choice(SMOOTH), elem, a, b)

    def unary(self, scope: Scope, elem: str, depth: int) -> E:
        if elem != "f64":
            return super().unary(scope, elem, depth)
        a = self.expr(scope, Tensor(elem), depth - 1)
        return E(self.rng.choice(list(FUNCTIONS.values())).format(a.tl), "0")

    def power(self, scope: Scope, elem: str, depth: int) -> E:
        return super().power(scope, elem, depth) if elem != "f64" else self.unary(scope, elem, depth)

    def elementwise(self, scope: Scope, type: Tensor, depth: int) -> E:
        if type.elem != "f64":
            return super().elementwise(scope, type, depth)
        if self.chance(0.3):
            a = self.expr(scope, type, depth - 1)
            return E(self.rng.choice(list(FUNCTIONS.values())).format(f"({a.tl})"), "0")
        small = Tensor("f64", type.dims[self.rng.randint(1, len(type.dims)) :])
        shapes = self.rng.choice(([type, type], [type, small], [small, type]))
        a, b = (self.expr(scope, t, depth - 1) for t in shapes)
        return self.binary(self.rng.choice(SMOOTH), "f64", a, b)

    def library(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        way = self.rng.choice(("softmax", "log_softmax", "layernorm", "product", "outer", "", ""))
        if type.elem != "f64" or not way or type.dims[-1] == Dim():
            return super().library(scope, type, depth)
        if way in ("softmax", "log_softmax", "layernorm"):
            return E(f"{way}({self.expr(scope, type, depth - 1).tl})", "0")
        if way == "product" and len(type.dims) == 2:
            inner = Dim("", self.rng.randint(1, 3))
            a, b = self.expr(scope, Tensor("f64", (type.dims[0], inner)), depth - 1), self.expr(scope, Tensor("f64", (inner, type.dims[1])), depth - 1)
            return E(f"({a.tl} @ {b.tl})", "0")
        if way == "product" and len(type.dims) == 1:
            inner = Dim("", self.rng.randint(1, 3))
            a, b = self.expr(scope, Tensor("f64", (inner,)), depth - 1), self.expr(scope, Tensor("f64", (inner, type.dims[0])), depth - 1)
            return E(f"({a.tl} @ {b.tl})", "0")
        return None

    def compound_op(self, elem: str, e: E) -> tuple[str, E]:
        """Not `/=`, because 0 times an infinite derivative is no number."""
        return super().compound_op(elem, e) if elem != "f64" else (self.rng.choice(("add", "sub", "mul")), e)

    def conversion(self, scope: Scope, elem: str, depth: int) -> E | None:
        """Reals do not become integers: that is not smooth. Integers become small reals: beside large ones no difference is seen."""
        return small(super().conversion(scope, elem, depth)) if elem == "f64" else None

    def convert_all(self, scope: Scope, type: Tensor, depth: int) -> E | None:
        return small(super().convert_all(scope, type, depth)) if type.elem == "f64" else None

    # ------------------------------------------------------------ the program

    def gradient_program(self) -> Program:
        tl: list[str] = ["fn opaque(x: i64, depth: i64) -> i64 = if depth <= 0 { x } else { opaque(x, depth - 1) }"]
        if self.profile.structs:
            self.structs.append(self.declaration())
            tl.append(str(self.structs[-1]))
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            self.recursive() if self.chance(0.4) else self.function()
            tl += self.tl
            self.tl, self.py = [], []
        tl += self.objective()
        main = self.check_main()
        tl += [GENERICS[g][0] for g in sorted(self.generics)]
        return Program("\n".join([*tl, *(line for line, _ in main)]) + "\n", "\n".join([*tl, *(line for line, short in main if short)]) + "\n")

    def objective(self) -> list[str]:
        """`fn f(...) -> f64`"""
        scope = Scope(pure=True)
        params: list[tuple[str, Type]] = []
        n = ""
        if self.chance(0.3):
            n = self.name("n")
            scope.vars.append(Var(n, n, Tensor("i64"), size=True))
            params.append((self.name("x"), Tensor("f64", (Dim(n),))))
        for _ in range(self.rng.randint(1, 2)):
            params.append((self.name("x"), self.active_type()))
        if self.chance(0.3):
            params.append((self.name("x"), Tensor("i64", (Dim("", 3),))))
        scope.vars += [Var(x, x, t) for x, t in params]
        self.active = [(x, t) for x, t in params if any(leaf.elem == "f64" for leaf in leaves(t))]
        self.size_name = n
        self.all_params = params
        result = Tensor("f64")
        scope.result = result if self.chance(0.3) else None
        self.tl, self.py = [], []
        for _ in range(self.rng.randint(1, 3)):
            v = Var(self.name("v"), "", self.real_type(scope), mutable=True)
            self.line(f"var {v.tl} = {self.expr(scope, v.type, 2).tl}", "")
            scope.vars.append(replace(v, py=v.tl))
        self.statements(scope, self.rng.randint(2, 6), 2)
        value = self.expr(scope, result, 2)
        total = " + ".join([value.tl, *map(self.total, self.reals(scope))])
        self.define("f", params, result, E(total, "0"))
        return ["fn total(x: f64[m]) -> f64 = sum(sin(x))", *self.tl]

    def reals(self, scope: Scope) -> list[Var]:
        """Variables that the result uses, so that what was computed matters."""
        return [v for v in scope.vars if isinstance(v.type, Tensor) and v.type.elem == "f64" and v.bound is None][-8:]

    def total(self, v: Var) -> str:
        assert isinstance(v.type, Tensor)
        return v.tl if not v.type.dims else f"total({v.tl})" if len(v.type.dims) == 1 else f"sum(total({v.tl}))"

    def real_type(self, scope: Scope) -> Tensor:
        return Tensor("f64", tuple(self.dim(scope) for _ in range(self.rng.choice((0, 1, 1, 2)))))

    def statement(self, scope: Scope, depth: int) -> None:
        """More assignments than in other programs: they carry what was computed out of branches and loops."""
        if scope.level == 0 and self.chance(0.4) and any(v.mutable and v.level == 0 for v in scope.vars):
            self.rng.choice((self.assign, self.assign_part))(scope, depth)
        else:
            super().statement(scope, depth)

    def active_type(self) -> Type:
        if self.structs and self.chance(0.4):
            return Struct(self.structs[0], Dim("", self.rng.randint(1, 3)) if self.structs[0].param else Dim())
        if self.chance(0.15):
            return Tuple((Tensor("f64"), Tensor("f64", (Dim("", 2),))))
        return Tensor("f64", tuple(Dim("", self.rng.randint(1, 3)) for _ in range(self.rng.choice((0, 1, 1, 2)))))

    def value(self, type: Type) -> str:
        """Numbers without special meaning."""
        match type:
            case Tensor(elem="f64", dims=()):
                return f"({self.rng.uniform(-1.5, 1.5):.6f}f64)"
            case Tensor(dims=()):
                return self.literal(type.elem).tl
            case Tensor():
                if type.dims[0].name:
                    return f"(for[k < {type.dims[0]}] sin(1.0f64 + 2.0f64 * f64(k)))"
                if not type.dims[0].plus:
                    return f"full({self.value(Tensor(type.elem))}, {', '.join(map(str, type.dims))})"
                return f"[{', '.join(self.value(Tensor(type.elem, type.dims[1:])) for _ in range(type.dims[0].plus))}]"
            case Tuple():
                return f"({', '.join(map(self.value, type.items))})"
            case Struct():
                return f"{type.declaration.name}({', '.join(f'{n} = {self.value(t)}' for n, t in type.fields)})"

    def check_main(self) -> list[tuple[str, bool]]:
        """The lines, and which of them are there in the short form, which has no differences."""
        lines = [f"let {self.size_name} = opaque({self.rng.randint(1, 3)}, 1)"] if self.size_name else []
        lines += [f"let {x}: {t} = {self.value(t)}" for x, t in self.all_params]
        if not self.active:
            return [("fn main() { }", True)]
        names = ", ".join(x for x, _ in self.active)
        many = len(self.active) > 1
        objective = f"(fn({names}) => {self.at()})"
        lines.append(f"let (value, gradient) = value_and_grad(f)({', '.join(x for x, _ in self.all_params)}, wrt = {f'({names})' if many else names})")
        lines.append('print("value {value:.17g}")')
        for k, (x, t) in enumerate(self.active):
            gradient = f"gradient[{k}]" if many else "gradient"
            for path, leaf in real_leaves(t):
                lines.append(f'print("gradient {x}{path} {{{gradient}{path}:.17g}}")')
                lines += self.elements(x, path, leaf, "slope", lambda at: f"f({at})", "")
        lines.append(f"let (_, along) = jvp{objective}({f'({names})' if many else names}, gradient)")
        squares = [
            f"sum(square({gradient}))" if leaf.dims else f"square({gradient})"
            for k, (_, t) in enumerate(self.active)
            for path, leaf in real_leaves(t)
            for gradient in [f"gradient{f'[{k}]' if many else ''}{path}"]
        ]
        lines.append(f'print("forward {{along:.17g}} {{{" + ".join(squares)}:.17g}}")')
        vectors = [(x, t) for x, t in self.active if isinstance(t, Tensor) and len(t.dims) == 1 and not t.dims[0].name and t.dims[0].plus <= FEW]
        if vectors and self.chance(0.5):
            x, t = self.rng.choice(vectors)
            lines.append(f'print("hessian {x} {{hessian(fn({x}) => {self.at()})({x}):.17g}}")')
            lines += self.elements(x, "", t, "turn", lambda at: f"grad(fn({x}) => {self.at()})({at})", x)
        short = [not line.startswith(DIFFERENCES) for line in lines]
        main = [(f"  {line.removeprefix(DIFFERENCES)}", kept) for line, kept in zip(lines, short, strict=True)]
        return [("fn square(x: f64) -> f64 = x * x", True), ("fn main() {", True), *main, ("}", True)]

    def at(self, **other: str) -> str:
        """`f` of its parameters, some replaced by others."""
        return f"f({', '.join(other.get(x, x) for x, _ in self.all_params)})"

    def elements(self, x: str, path: str, leaf: Tensor, word: str, of: Callable[[str], str], only: str) -> list[str]:
        """For each element of a leaf, a line with values of `of` where it is less and more. With `only`, `of` takes that parameter alone."""
        indices = [self.name("k") for _ in leaf.dims]
        part = path + (f"[{', '.join(indices)}]" if indices else "")
        inner, holes = [], []
        for step in (-STEPS[0], -STEPS[1], 0.0, STEPS[1], STEPS[0]):
            y = self.name("y")
            inner += [f"var {y} = {x}", f"{y}{part} += {step!r}"]
            place = y if only else ", ".join(y if g == x else g for g, _ in self.all_params)
            holes.append(f"{{{of(place)}:.17g}}")
        inner.append(f'print("{word} {x}{path} {" ".join(holes)}")')
        lines = [f"{'  ' * depth}for {i} in 0..{n} {{" for depth, (i, n) in enumerate(zip(indices, leaf.dims, strict=True))]
        lines += ["  " * len(indices) + line for line in (inner if indices else ["if true {", *inner, "}"])]
        lines += ["  " * depth + "}" for depth in reversed(range(len(indices)))]
        return [DIFFERENCES + line for line in lines]


def small(e: E | None) -> E | None:
    return None if e is None else E(f"tanh({e.tl})", "0")


def real_leaves(type: Type, path: str = "") -> list[tuple[str, Tensor]]:
    """The paths of a value's real leaves."""
    match type:
        case Tensor():
            return [(path, type)] if type.elem == "f64" else []
        case Tuple():
            return [leaf for k, t in enumerate(type.items) for leaf in real_leaves(t, f"{path}[{k}]")]
        case Struct():
            return [leaf for n, t in type.fields for leaf in real_leaves(t, f"{path}.{n}")]


def generate_gradient(seed: int) -> Program:
    """A program, and as its `py` the same without differences."""
    rng = random.Random(seed)
    profile = Profile(elems=("f64", "f64", "f64", "f64", "f64", "i64", "bool"), unsafe=0.0, sums=True, structs=rng.random() < 0.5, elementary=True)
    return GradientGenerator(rng, profile).gradient_program()
