"""The algebraic rules of scalar ops, each under its equation. All are exact: for reals only what changes no bit.

A rule of reals must hold for -0.0, infinities and NaN (any NaN is as good as another). `tests/unit/test_opt_rules.py`
evaluates both sides of every rule on random and on special values.
"""

from __future__ import annotations

from tlc.frontend.types import INTS, REALS, Elem
from tlc.opt.rewrite import Lit, Pattern, Rule, Tree, Var, op

X, Y, Z, W = Var("x"), Var("y"), Var("z"), Var("w")
C, D = Var("c", constant=True), Var("d", constant=True)
P, I, J = Var("p", elems=(Elem.BOOL,)), Var("i", elems=INTS), Var("j", elems=INTS)  # where the op does not tell the type
INT, REAL, NUM, BOOLS, BITS = INTS, REALS, INTS + REALS, (Elem.BOOL,), (Elem.BOOL, *INTS)
SIGNED, UNSIGNED = (Elem.I8, Elem.I32, Elem.I64), (Elem.U8, Elem.U32)
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
    rule("x ^ x = 0",                   op("xor", X, X),                                Lit(0),                   INT),
    rule("x xor x = false",             op("xor", X, X),                                Lit(False),               BOOLS),
    rule("x % x = 0",                   op("mod", X, X),                                Lit(0),                   INT),
    # -- zero, one and minus one
    rule("0 // x = 0",                  op("floordiv", Lit(0), X),                      Lit(0),                   INT),
    rule("0 % x = 0",                   op("mod", Lit(0), X),                           Lit(0),                   INT),
    rule("0 - x = -x",                  op("sub", Lit(0), X),                           op("neg", X),             INT),
    rule("x * -1 = -x",                 op("mul", X, Lit(-1)),                          op("neg", X),             SIGNED),
    rule("x // -1 = -x",                op("floordiv", X, Lit(-1)),                     op("neg", X),             SIGNED),
    rule("x % -1 = 0",                  op("mod", X, Lit(-1)),                          Lit(0),                   SIGNED),
    rule("x & -1 = x",                  op("and", X, Lit(-1)),                          X,                        SIGNED),
    rule("x | -1 = -1",                 op("or", X, Lit(-1)),                           Lit(-1),                  SIGNED),
    rule("x ^ -1 = ~x",                 op("xor", X, Lit(-1)),                          op("not", X),             SIGNED),
    rule("0 << x = 0",                  op("shl", Lit(0), X),                           Lit(0),                   INT),
    rule("0 >> x = 0",                  op("shr", Lit(0), X),                           Lit(0),                   INT),
    rule("x < 0 = false, unsigned",     op("lt", X, Lit(0)),                            Lit(False),               UNSIGNED),
    rule("x >= 0 = true, unsigned",     op("ge", X, Lit(0)),                            Lit(True),                UNSIGNED),
    rule("x == false = not x",          op("eq", X, Lit(False)),                        op("not", X),             BOOLS),
    rule("x != true = not x",           op("ne", X, Lit(True)),                         op("not", X),             BOOLS),
    # -- one op undoes another
    rule("--x = x",                     op("neg", op("neg", X)),                        X,                        NUM),
    rule("~~x = x",                     op("not", op("not", X)),                        X,                        (Elem.BOOL, *INT)),
    rule("(x + y) - y = x",             op("sub", op("add", X, Y), Y),                  X,                        INT),
    rule("(x - y) + y = x",             op("add", op("sub", X, Y), Y),                  X,                        INT),
    rule("y + x - (y + z) = x - z",     op("sub", op("add", X, Y), op("add", Z, Y)),    op("sub", X, Z),          INT),
    rule("x - (x + y) = -y",            op("sub", X, op("add", X, Y)),                  op("neg", Y),             INT),
    rule("x - (x - y) = y",             op("sub", X, op("sub", X, Y)),                  Y,                        INT),
    rule("(x - y) - x = -y",            op("sub", op("sub", X, Y), X),                  op("neg", Y),             INT),
    rule("x + -y = x - y",              op("add", X, op("neg", Y)),                     op("sub", X, Y),          INT),
    rule("x - -y = x + y",              op("sub", X, op("neg", Y)),                     op("add", X, Y),          INT),
    rule("-(x - y) = y - x",            op("neg", op("sub", X, Y)),                     op("sub", Y, X),          INT),
    rule("-x * -y = x * y",             op("mul", op("neg", X), op("neg", Y)),          op("mul", X, Y),          NUM),
    rule("|-x| = |x|",                  op("abs", op("neg", X)),                        op("abs", X),             SIGNED + REAL),
    rule("(x ^ y) ^ y = x",             op("xor", op("xor", X, Y), Y),                  X,                        BITS),
    rule("x & ~x = 0",                  op("and", X, op("not", X)),                     Lit(0),                   INT),
    rule("x and not x = false",         op("and", X, op("not", X)),                     Lit(False),               BOOLS),
    rule("x | ~x = -1",                 op("or", X, op("not", X)),                      Lit(-1),                  SIGNED),
    rule("x or not x = true",           op("or", X, op("not", X)),                      Lit(True),                BOOLS),
    rule("x & (x | y) = x",             op("and", X, op("or", X, Y)),                   X,                        BITS),
    rule("x | (x & y) = x",             op("or", X, op("and", X, Y)),                   X,                        BITS),
    rule("~x & ~y = ~(x | y)",          op("and", op("not", X), op("not", Y)),          op("not", op("or", X, Y)), BITS),
    rule("~x | ~y = ~(x & y)",          op("or", op("not", X), op("not", Y)),           op("not", op("and", X, Y)), BITS),
    rule("max(x, min(x, y)) = x",       op("max", X, op("min", X, Y)),                  X,                        INT),
    rule("min(x, max(x, y)) = x",       op("min", X, op("max", X, Y)),                  X,                        INT),
    rule("(x % y) % y = x % y",         op("mod", op("mod", X, Y), Y),                  op("mod", X, Y),          INT),
    rule("||x|| = |x|",                 op("abs", op("abs", X)),                        op("abs", X),             NUM),
    # -- constants move outwards, so that they meet
    rule("x - c = x + -c",              op("sub", X, C),                                op("add", X, op("neg", C)), INT),
    rule("(x + c) + d = x + (c + d)",   op("add", op("add", X, C), D),                  op("add", X, op("add", C, D)), INT),
    rule("(x * c) * d = x * (c * d)",   op("mul", op("mul", X, C), D),                  op("mul", X, op("mul", C, D)), INT),
    rule("(x + c) * y - x * y = c * y", op("sub", op("mul", op("add", X, C), Y), op("mul", X, Y)), op("mul", C, Y), INT),
    rule("max(max(x, c), d) = max(x, max(c, d))", op("max", op("max", X, C), D),        op("max", X, op("max", C, D)), INT),
    rule("min(min(x, c), d) = min(x, min(c, d))", op("min", op("min", X, C), D),        op("min", X, op("min", C, D)), INT),
    rule("(x & c) & d = x & (c & d)",   op("and", op("and", X, C), D),                  op("and", X, op("and", C, D)), INT),
    rule("(x | c) | d = x | (c | d)",   op("or", op("or", X, C), D),                    op("or", X, op("or", C, D)), INT),
    rule("(x ^ c) ^ d = x ^ (c ^ d)",   op("xor", op("xor", X, C), D),                  op("xor", X, op("xor", C, D)), INT),
    # -- equality of sums: wrapping does not matter
    rule("x + c == d = x == d - c",     op("eq", op("add", X, C), D),                   op("eq", X, op("sub", D, C)), INT),
    rule("x + c != d = x != d - c",     op("ne", op("add", X, C), D),                   op("ne", X, op("sub", D, C)), INT),
    rule("x - y == 0 = x == y",         op("eq", op("sub", X, Y), Lit(0)),              op("eq", X, Y),           INT),
    rule("x - y != 0 = x != y",         op("ne", op("sub", X, Y), Lit(0)),              op("ne", X, Y),           INT),
    rule("x ^ y == 0 = x == y",         op("eq", op("xor", X, Y), Lit(0)),              op("eq", X, Y),           INT),
    rule("x ^ y != 0 = x != y",         op("ne", op("xor", X, Y), Lit(0)),              op("ne", X, Y),           INT),
    rule("x + z == y + z = x == y",     op("eq", op("add", X, Z), op("add", Y, Z)),     op("eq", X, Y),           INT),
    rule("x + z != y + z = x != y",     op("ne", op("add", X, Z), op("add", Y, Z)),     op("ne", X, Y),           INT),
    # -- comparisons and their opposites (of reals `not (x < y)` is not `x >= y`)
    rule("not (x != y) = x == y",       op("not", op("ne", X, Y)),                      op("eq", X, Y),           BOOLS),
    rule("not (i < j) = i >= j",        op("not", op("lt", I, J)),                      op("ge", I, J),           BOOLS),
    rule("not (i <= j) = i > j",        op("not", op("le", I, J)),                      op("gt", I, J),           BOOLS),
    rule("not (i > j) = i <= j",        op("not", op("gt", I, J)),                      op("le", I, J),           BOOLS),
    rule("not (i >= j) = i < j",        op("not", op("ge", I, J)),                      op("lt", I, J),           BOOLS),
    rule("x < y or x == y = x <= y",    op("or", op("lt", X, Y), op("eq", X, Y)),       op("le", X, Y),           BOOLS),
    rule("x > y or x == y = x >= y",    op("or", op("gt", X, Y), op("eq", X, Y)),       op("ge", X, Y),           BOOLS),
    rule("x <= y and x != y = x < y",   op("and", op("le", X, Y), op("ne", X, Y)),      op("lt", X, Y),           BOOLS),
    rule("x >= y and x != y = x > y",   op("and", op("ge", X, Y), op("ne", X, Y)),      op("gt", X, Y),           BOOLS),
    rule("select(p, 1, 0) != 0 = p",    op("ne", op("select", P, Lit(1), Lit(0)), Lit(0)), P,                     INT),
    rule("select(p, 1, 0) == 0 = not p", op("eq", op("select", P, Lit(1), Lit(0)), Lit(0)), op("not", P),         INT),
    rule("convert(p) != 0 = p",         op("ne", op("convert", P), Lit(0)),             P,                        INT),
    rule("convert(p) == 0 = not p",     op("eq", op("convert", P), Lit(0)),             op("not", P),             INT),
    # -- choices
    rule("select(true, x, y) = x",      op("select", Lit(True), X, Y),                  X,                        ANY),
    rule("select(false, x, y) = y",     op("select", Lit(False), X, Y),                 Y,                        ANY),
    rule("select(z, x, x) = x",         op("select", Z, X, X),                          X,                        ANY),
    rule("select(x, true, false) = x",  op("select", X, Lit(True), Lit(False)),         X,                        BOOLS),
    rule("select(x, y, false) = x and y", op("select", X, Y, Lit(False)),               op("and", X, Y),          BOOLS),
    rule("select(x, true, y) = x or y", op("select", X, Lit(True), Y),                  op("or", X, Y),           BOOLS),
    rule("select(x, false, true) = not x", op("select", X, Lit(False), Lit(True)),      op("not", X),             BOOLS),
    rule("select(not z, x, y) = select(z, y, x)", op("select", op("not", Z), X, Y),     op("select", Z, Y, X),    ANY),
    rule("select(z, select(z, x, y), w) = select(z, x, w)", op("select", Z, op("select", Z, X, Y), W), op("select", Z, X, W), ANY),
    rule("select(z, x, select(z, y, w)) = select(z, x, w)", op("select", Z, X, op("select", Z, Y, W)), op("select", Z, X, W), ANY),
    rule("select(x == y, x, y) = y",    op("select", op("eq", X, Y), X, Y),             Y,                        DISCRETE),
    rule("select(x != y, x, y) = x",    op("select", op("ne", X, Y), X, Y),             X,                        DISCRETE),
    rule("not (x == y) = x != y",       op("not", op("eq", X, Y)),                      op("ne", X, Y),           BOOLS),
)
# fmt: on
