"""Random host SSA for properties: structured code over integers, reals, bools and arrays, with loops, branches, checks and calls.

`module(seed)` has a function `f(n: i64, a: f64, x: i64[_], y: f64[_]) -> i64, f64, i64[_], f64[_]` and one that it calls. Its code is built
statement by statement: an environment says which value each variable has; a branch or a loop gets a parameter for each
variable that it changes. Positions are taken modulo the length of an array, or left as they are under a check.
"""

from __future__ import annotations

import random

from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.ir import BOOL, I64, Module, Type, Value

F64, INTS, REALS = Type(Elem.F64), Type(Elem.I64, 1), Type(Elem.F64, 1)
Environment = dict[str, Value]

_INT_OPS = ("add", "sub", "mul", "min", "max", "mod", "floordiv", "and", "or", "xor", "shl", "shr")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def module(seed: int) -> Module:
    """The module of a seed, the same every time."""
    rng = random.Random(seed)
    out = Module()
    for name, callee in (("g", None), ("f", "g")):
        _, b = new_function(name, [("n", I64), ("a", F64), ("x", INTS), ("y", REALS)], [I64, F64, INTS, REALS], out)
        code = _Code(rng, b, callee)
        n, a, x, y = b.block.params
        env = {"i": n, "j": b.i64(rng.randint(-3, 3)), "k": b.i64(1), "a": a, "b": b.const(0.5, F64), "p": b.const(True, BOOL), "x": x, "y": y}
        env = code.statements(env, 3, rng.randint(4, 10) if callee else 3)
        b.ret(env["i"], env["a"], env["x"], env["y"])
    return out


class _Code:
    def __init__(self, rng: random.Random, b: Builder, callee: str | None) -> None:
        self.rng, self.b, self.callee = rng, b, callee

    def pick(self, env: Environment, type: Type) -> Value:
        if type.rank == 0 and self.rng.random() < 0.2:
            value = {BOOL: self.rng.random() < 0.5, I64: self.rng.randint(-2, 5), F64: self.rng.choice([0.0, -0.0, 1.0, 2.5])}[type]
            return self.b.const(value, type)
        return self.rng.choice([v for v in env.values() if v.type == type])

    def statements(self, env: Environment, depth: int, count: int) -> Environment:
        for _ in range(count):
            kinds = [self.integer, self.integer, self.real, self.condition, self.load, self.load, self.store, self.store, self.check]
            if depth:
                kinds += [self.branch, self.branch, self.loop, self.loop]
            if self.callee and depth == 3:
                kinds.append(self.call)
            env = {**env, **self.rng.choice(kinds)(env, depth)}
        return env

    # ------------------------------------------------------------ one statement: the variables that it changes

    def integer(self, env: Environment, depth: int) -> Environment:
        value = self.b.op(self.rng.choice(_INT_OPS), self.pick(env, I64), self.pick(env, I64))
        if self.rng.random() < 0.2:
            value = self.b.op("select", self.pick(env, BOOL), value, self.pick(env, I64))
        return {self.rng.choice("ijk"): value}

    def real(self, env: Environment, depth: int) -> Environment:
        op = self.rng.choice(("add", "sub", "mul", "min", "max", "div"))
        return {self.rng.choice("ab"): self.b.op(op, self.pick(env, F64), self.pick(env, F64))}

    def condition(self, env: Environment, depth: int) -> Environment:
        return {"p": self.test(env)}

    def test(self, env: Environment) -> Value:
        type = self.rng.choice((I64, I64, F64))
        first = self.b.op(self.rng.choice(_COMPARISONS), self.pick(env, type), self.pick(env, type))
        match self.rng.randrange(5):
            case 0:
                return self.b.op(self.rng.choice(("and", "or")), first, env["p"])
            case 1:
                return self.b.op("not", first)
            case 2:
                return env["p"]
        return first

    def place(self, env: Environment, x: Value) -> Value:
        n = self.b.dim(x, 0)
        at = self.pick(env, I64)
        if self.rng.random() < 0.3:
            at = self.b.op("add", at, self.b.i64(self.rng.choice((1, -1))))
        if self.rng.random() < 0.7:
            return self.b.op("mod", at, n)
        low, high = self.b.op("ge", at, self.b.i64(0)), self.b.op("lt", at, n)
        self.b.check(self.b.op("and", low, high), "index", "index {0} of {1}", at, n)
        return at

    def load(self, env: Environment, depth: int) -> Environment:
        x, names = (env["x"], "ijk") if self.rng.random() < 0.6 else (env["y"], "ab")
        return {self.rng.choice(names): self.b.emit("load", (x, self.place(env, x))).result}

    def store(self, env: Environment, depth: int) -> Environment:
        name, type = ("x", I64) if self.rng.random() < 0.6 else ("y", F64)
        at = self.place(env, env[name])
        return {name: self.b.emit("store", (env[name], at, self.pick(env, type))).result}

    def check(self, env: Environment, depth: int) -> Environment:
        if self.rng.random() < 0.3:
            self.b.check(self.b.op("or", self.test(env), self.b.op("ne", env["i"], self.b.i64(3))), "assert", "i is {0}", env["i"])
        return {}

    def call(self, env: Environment, depth: int) -> Environment:
        assert self.callee is not None
        i, a, x, y = self.b.call(self.callee, [self.pick(env, I64), self.pick(env, F64), env["x"], env["y"]])
        return {"i": i, "a": a, "x": x, "y": y} if self.rng.random() < 0.5 else {"j": i, "b": a}

    def branch(self, env: Environment, depth: int) -> Environment:
        then, other = self.b.new_block("then"), self.b.new_block("other")
        self.b.branch(self.test(env), then, other)
        ends = []
        for block in (then, other):
            self.b.move_to(block)
            after = self.statements(env, depth - 1, self.rng.randint(0, 3))
            ends.append((self.b.block, after))
        changed = [name for name in env if any(after[name] is not env[name] for _, after in ends)]
        join = self.b.new_block("join", [env[name].type for name in changed])
        for block, after in ends:
            self.b.move_to(block)
            self.b.jump(join, *(after[name] for name in changed))
        self.b.move_to(join)
        return dict(zip(changed, join.params, strict=True))

    def loop(self, env: Environment, depth: int) -> Environment:
        """At most a few turns: a counter that nobody else sees, and perhaps a condition."""
        names = list(env)
        head = self.b.new_block("head", [I64, *(env[name].type for name in names)])
        body, exit = self.b.new_block("body"), self.b.new_block("exit")
        self.b.jump(head, self.b.i64(0), *(env[name] for name in names))
        self.b.move_to(head)
        counter, *params = head.params
        inside = dict(zip(names, params, strict=True))
        go = self.b.op("lt", counter, self.b.i64(self.rng.randint(0, 3)))
        if self.rng.random() < 0.4:
            go = self.b.op("and", go, self.test(inside))
        self.b.branch(go, body, exit)
        self.b.move_to(body)
        if self.rng.random() < 0.5:
            inside["k"] = counter
        after = self.statements(inside, depth - 1, self.rng.randint(1, 4))
        self.b.jump(head, self.b.op("add", counter, self.b.i64(1)), *(after[name] for name in names))
        self.b.move_to(exit)
        return dict(zip(names, params, strict=True))
