"""The algebraic rules of scalar ops, each under its equation. All are exact: for reals only what changes no bit.

A rule of reals must hold for -0.0, infinities and NaN (any NaN is as good as another). `tests/unit/test_opt_rules.py`
evaluates both sides of every rule on random and on special values.
"""

from __future__ import annotations

from tlc.frontend.types import INTS, REALS, Elem
from tlc.opt.rewrite import Lit, Pattern, Rule, Tree, Var, op

X, Y, Z = Var("x"), Var("y"), Var("z")
C, D = Var("c", constant=True), Var("d", constant=True)
INT, REAL, NUM, BOOLS = INTS, REALS, INTS + REALS, (Elem.BOOL,)
DISCRETE = (Elem.BOOL, *INTS, Elem.STR, Elem.KEY)
ANY = tuple(Elem)


def rule(equation: str, left: Tree, right: Pattern, elems: tuple[Elem, ...]) -> Rule:
    return Rule(equation, left, right, elems)


# fmt: off
RULES: tuple[Rule, ...] = (
    # -- neutral and absorbing elements
    rule("x + 0 = x",                   op("add", X, Lit(0)),                           X,                        INT),
    rule("x + -0.0 = x",                op("add", X, Lit(-0.0)),                        X,                        REAL),
    rule("x - 0 = x",                   op("sub", X, Lit(0)),                           X,                        NUM),
    rule("x * 1 = x",                   op("mul", X, Lit(1)),                           X,                        NUM),
    rule("x * 0 = 0",                   op("mul", X, Lit(0)),                           Lit(0),                   INT),
    rule("x / 1 = x",                   op("div", X, Lit(1)),                           X,                        REAL),
    rule("x // 1 = x",                  op("floordiv", X, Lit(1)),                      X,                        INT),
    rule("x % 1 = 0",                   op("mod", X, Lit(1)),                           Lit(0),                   INT),
    rule("x and true = x",              op("and", X, Lit(True)),                        X,                        BOOLS),
    rule("x and false = false",         op("and", X, Lit(False)),                       Lit(False),               BOOLS),
    rule("x or false = x",              op("or", X, Lit(False)),                        X,                        BOOLS),
    rule("x or true = true",            op("or", X, Lit(True)),                         Lit(True),                BOOLS),
    rule("x & 0 = 0",                   op("and", X, Lit(0)),                           Lit(0),                   INT),
    rule("x | 0 = x",                   op("or", X, Lit(0)),                            X,                        INT),
    rule("x ^ 0 = x",                   op("xor", X, Lit(0)),                           X,                        INT),
    rule("x << 0 = x",                  op("shl", X, Lit(0)),                           X,                        INT),
    rule("x >> 0 = x",                  op("shr", X, Lit(0)),                           X,                        INT),
    rule("x == true = x",               op("eq", X, Lit(True)),                         X,                        BOOLS),
    rule("x != false = x",              op("ne", X, Lit(False)),                        X,                        BOOLS),
    # -- an operand twice
    rule("x - x = 0",                   op("sub", X, X),                                Lit(0),                   INT),
    rule("x & x = x",                   op("and", X, X),                                X,                        (Elem.BOOL, *INT)),
    rule("x | x = x",                   op("or", X, X),                                 X,                        (Elem.BOOL, *INT)),
    rule("max(x, x) = x",               op("max", X, X),                                X,                        NUM),
    rule("min(x, x) = x",               op("min", X, X),                                X,                        NUM),
    rule("x == x = true",               op("eq", X, X),                                 Lit(True),                DISCRETE),
    rule("x != x = false",              op("ne", X, X),                                 Lit(False),               DISCRETE),
    rule("x <= x = true",               op("le", X, X),                                 Lit(True),                INT),
    rule("x >= x = true",               op("ge", X, X),                                 Lit(True),                INT),
    rule("x < x = false",               op("lt", X, X),                                 Lit(False),               NUM),
    rule("x > x = false",               op("gt", X, X),                                 Lit(False),               NUM),
    # -- one op undoes another
    rule("--x = x",                     op("neg", op("neg", X)),                        X,                        NUM),
    rule("~~x = x",                     op("not", op("not", X)),                        X,                        (Elem.BOOL, *INT)),
    rule("(x + y) - y = x",             op("sub", op("add", X, Y), Y),                  X,                        INT),
    rule("(x - y) + y = x",             op("add", op("sub", X, Y), Y),                  X,                        INT),
    rule("y + x - (y + z) = x - z",     op("sub", op("add", X, Y), op("add", Z, Y)),    op("sub", X, Z),          INT),
    rule("||x|| = |x|",                 op("abs", op("abs", X)),                        op("abs", X),             NUM),
    # -- constants move outwards, so that they meet
    rule("x - c = x + -c",              op("sub", X, C),                                op("add", X, op("neg", C)), INT),
    rule("(x + c) + d = x + (c + d)",   op("add", op("add", X, C), D),                  op("add", X, op("add", C, D)), INT),
    rule("(x * c) * d = x * (c * d)",   op("mul", op("mul", X, C), D),                  op("mul", X, op("mul", C, D)), INT),
    rule("(x + c) * y - x * y = c * y", op("sub", op("mul", op("add", X, C), Y), op("mul", X, Y)), op("mul", C, Y), INT),
    rule("max(max(x, c), d) = max(x, max(c, d))", op("max", op("max", X, C), D),        op("max", X, op("max", C, D)), INT),
    rule("min(min(x, c), d) = min(x, min(c, d))", op("min", op("min", X, C), D),        op("min", X, op("min", C, D)), INT),
    # -- choices
    rule("select(true, x, y) = x",      op("select", Lit(True), X, Y),                  X,                        ANY),
    rule("select(false, x, y) = y",     op("select", Lit(False), X, Y),                 Y,                        ANY),
    rule("select(z, x, x) = x",         op("select", Z, X, X),                          X,                        ANY),
    rule("select(x, true, false) = x",  op("select", X, Lit(True), Lit(False)),         X,                        BOOLS),
    rule("select(x, y, false) = x and y", op("select", X, Y, Lit(False)),               op("and", X, Y),          BOOLS),
    rule("select(x, true, y) = x or y", op("select", X, Lit(True), Y),                  op("or", X, Y),           BOOLS),
    rule("not (x == y) = x != y",       op("not", op("eq", X, Y)),                      op("ne", X, Y),           BOOLS),
)
# fmt: on
