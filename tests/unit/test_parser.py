"""The parser: precedence, newlines, documentation, spans, recovery. Larger trees are in tests/golden/ast, messages in tests/ui."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tlc.frontend import ast
from tlc.frontend.ast_text import dump, expression
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.nesting import LIMIT, children
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.frontend.tokens import ARITHMETIC, COMPARISONS

ROOT = Path(__file__).resolve().parents[2]


def module(text: str) -> ast.Module:
    return parse(Source("test.tl", text))


def value(text: str) -> ast.Expr:
    definition = module(f"const X = {text}").definitions[0]
    assert isinstance(definition, ast.ConstDef)
    return definition.value


def mistakes(text: str) -> list[Diagnostic]:
    with pytest.raises(CompileError) as caught:
        module(text)
    return caught.value.diagnostics


def codes(text: str) -> list[str]:
    return [d.code for d in mistakes(text)]


# ---------------------------------------------------------------- expressions

PRECEDENCE = [
    ("a + b * c", "(a + (b * c))"),
    ("a - b - c", "((a - b) - c)"),
    ("a / b * c // d % e @ f", "(((((a / b) * c) // d) % e) @ f)"),
    ("-x ** 2", "(-(x ** 2))"),
    ("2 ** -x", "(2 ** (-x))"),
    ("2 ** -x ** 2", "(2 ** (-(x ** 2)))"),
    ("a ** b ** c", "(a ** (b ** c))"),
    ("~a & b", "((~a) & b)"),
    ("-x as f64", "((-x) as f64)"),
    ("a * b as f64", "(a * (b as f64))"),
    ("a as f64 * b", "((a as f64) * b)"),
    ("a as f32[n, 4] + b", "((a as f32[n, 4]) + b)"),
    ("a as i64 as f64", "((a as i64) as f64)"),
    ("a + b << c", "((a + b) << c)"),
    ("a << b & c", "((a << b) & c)"),
    ("a & b ^ c | d", "(((a & b) ^ c) | d)"),
    ("a | b == c", "((a | b) == c)"),
    ("not a == b", "(not (a == b))"),
    ("not a and b or c", "(((not a) and b) or c)"),
    ("a or b and c", "(a or (b and c))"),
    ("a and not b", "(a and (not b))"),
    ("not not a", "(not (not a))"),
    ("-f(x)[0].T", "(-f(x)[0].T)"),
    ("(a + b) * c", "((a + b) * c)"),
    # reductions end before + and -
    ("sum[k] a[k] * b[k] + c", "((sum[k] (a[k] * b[k])) + c)"),
    ("sum[k] a[k] - b", "((sum[k] a[k]) - b)"),
    ("sum[k] -a[k] - b", "((sum[k] (-a[k])) - b)"),
    ("c + sum[k] a[k] * 2 + d", "((c + (sum[k] (a[k] * 2))) + d)"),
    ("2.0 * sum[k] x[k]", "(2.0 * (sum[k] x[k]))"),
    ("2.0 * sum[k] x[k] * y", "(2.0 * (sum[k] (x[k] * y)))"),
    ("-sum[k] a[k] * b", "(-(sum[k] (a[k] * b)))"),
    ("sum[i] sum[j] a[i, j] + 1", "((sum[i] (sum[j] a[i, j])) + 1)"),
    ("max[k] a[k] == b", "((max[k] a[k]) == b)"),
    ("x ** sum[k] a * b", "(x ** (sum[k] (a * b)))"),
    # any and all hold comparisons
    ("any[k] a[k] == b + 1 and c", "((any[k] (a[k] == (b + 1))) and c)"),
    ("all[i] not a[i]", "(all[i] (not a[i]))"),
    ("not any[k] a[k] > 0", "(not (any[k] (a[k] > 0)))"),
    # for and => go as far right as they can
    ("x + for[i] e + f", "(x + (for[i] (e + f)))"),
    ("for[i] a == b and c", "(for[i] ((a == b) and c))"),
    ("for[i, j] sum[k] a[i, k] * b[k, j]", "(for[i, j] (sum[k] (a[i, k] * b[k, j])))"),
    ("fn(x) => x or y", "(fn(x) => (x or y))"),
    ("fn(x, y: f32) => for[i] x", "(fn(x, y: f32) => (for[i] x))"),
    ("a * fn() => b + c", "(a * (fn() => (b + c)))"),
    # ranges
    ("x[a + 1..b * 2]", "x[(a + 1)..(b * 2)]"),
    ("x[..]", "x[:]"),
    ("x[a..]", "x[a..]"),
    ("x[..b]", "x[..b]"),
    ("x[..., -1, :]", "x[..., (-1), :]"),
    ("x[0..sum[k] y[k], 1..]", "x[0..(sum[k] y[k]), 1..]"),
    ("for[i < n + 1, k in 2..m] e", "(for[i < (n + 1), k in 2..m] e)"),
    ("sum[k < i,] e", "(sum[k < i] e)"),
    # conditionals
    ("if a { b } else if c { d } else { e }", "if a {\n  b\n} else if c {\n  d\n} else {\n  e\n}"),
    ("1 + if a { b } else { c } * 2", "(1 + (if a {\n  b\n} else {\n  c\n} * 2))"),
    ("for[i] if i < 2 { a } else { -inf }", "(for[i] if (i < 2) {\n  a\n} else {\n  (-inf)\n})"),
    # values
    ("(a, b)", "(a, b)"),
    ("(a,)", "(a,)"),
    ("(a, b,)", "(a, b)"),
    ("[[1, 2], [3, 4],]", "[[1, 2], [3, 4]]"),
    ("[]", "[]"),
    ("f(a, k = 1, label = b)(c)", "f(a, k = 1, label = b)(c)"),
    ("{ a }", "{\n  a\n}"),
    ("{}", "{}"),
    ("(((a)))", "a"),
    # numbers
    ("0xff + 0b101 + 0o17", "((255 + 5) + 15)"),
    ("1_000.5e-3f64", "1.0005f64"),
    ("7f32", "7f32"),
    ("1e5", "100000.0"),
    ("1e300", "1.0e+300"),
    # reducers are ordinary names elsewhere
    ("sum(x) + max + x.mean[0] + sum [0]", "(((sum(x) + max) + x.mean[0]) + sum [0])"),
    ("min(a, b)[0]", "min(a, b)[0]"),
]


@pytest.mark.parametrize(("text", "expected"), PRECEDENCE, ids=[text for text, _ in PRECEDENCE])
def test_expression(text: str, expected: str) -> None:
    assert expression(value(text)) == expected


@pytest.mark.parametrize("text", ["a < b < c", "a == b != c", "for[i] a < b == c", "(a < b) + c < d < e"])
def test_comparisons_do_not_chain(text: str) -> None:
    assert codes(f"const X = {text}") == ["E0109"]


def test_parentheses_make_comparisons_operands() -> None:
    assert expression(value("(a < b) == (c < d)")) == "((a < b) == (c < d))"


@pytest.mark.parametrize("text", ["a + not b", "a == not b", "-not b", "~not b"])
def test_not_is_no_tight_operand(text: str) -> None:
    assert codes(f"const X = {text}") == ["E0101"]
    assert value(text.replace("not b", "(not b)"))


@pytest.mark.parametrize("text", ["x[a < b..c]", "x[..a and b]", "x[not a..]", "for[i < a == b] e", "for[i in 0..a or b] e"])
def test_ends_of_a_range_are_arithmetic(text: str) -> None:
    assert codes(f"const X = {text}") == ["E0111"]


@pytest.mark.parametrize(
    "text", ["f(0..n)", "progress(0..n)", "progress(x, 0..n)", "f(a, b..c)", "progress(0..n, 'x', y)".replace("'", '"')]
)
def test_a_range_is_not_a_value(text: str) -> None:
    assert codes(f"const X = {text}") == ["E0111"]


def test_a_wild_is_not_a_value() -> None:
    assert codes("const X = f(?) + ?n") == ["E0112", "E0112"]


def test_a_wild_in_a_type_that_was_an_expression() -> None:
    text = "fn f(m: Adam(Linear(?, ?n)[?], (f32[?], P))) -> u8[?] = m\n"
    assert "Adam(Linear(?, ?n)[?], (f32[?], P))" in dump(module(text))


def test_type_arguments() -> None:
    function = module("fn f(a: A(P, nn.Q, 3, 2 * n, B(x)[k], layer.I + 1)) -> f32 = 1").definitions[0]
    assert isinstance(function, ast.Function)
    kind = function.params[0].type
    assert isinstance(kind, ast.TypeName) and kind.args is not None
    assert [type(arg).__name__ for arg in kind.args] == ["TypeName", "TypeName", "Number", "Binary", "TypeName", "Binary"]


# ---------------------------------------------------------------- newlines


def body(text: str) -> list[str]:
    """The statements of a function, each in one line."""
    function = module("fn f() {\n" + text + "\n}\n").definitions[0]
    assert isinstance(function, ast.Function) and isinstance(function.body, ast.Block)
    lines = dump(ast.Module(function.span.source, (), function.body.stmts, "")).splitlines()
    return [re.sub(r"\s+", " ", line) for line in lines]


CONTINUED = [
    "a +\nb",
    "a and\nb",
    "a as\nf32",
    "not\na",
    "f(a,\nb)",
    "f(\na\n)",
    "f(a\n, b)",
    "x[\n0\n]",
    "(a\n+ b)",
    "a\n.b\n.c(d)",
    "(\n- a)",
    "a @\nb",
]


@pytest.mark.parametrize("text", CONTINUED)
def test_a_statement_goes_on(text: str) -> None:
    assert len(body(text)) == 1
    assert body(text) == body(text.replace("\n", " # why\n\n  "))


def test_words_that_wait_for_more() -> None:
    assert body("let x:\ni64 =\n1\nx +=\n2\nfor i in\n0..\nn by\n2 { }") == ["let x: i64 = 1", "x += 2", "for i in 0..n by 2 {}"]
    assert dump(module("fn f(x: f32) ->\nf32 =\n\n  fn(y) =>\n  y\n"))


@pytest.mark.parametrize("text", ["a\n[b]", "a\n(b)", "a\n-b", "a;b", "a;;\n\n;b", "a\n~b", "f(a)\n\n# c\n\nb"])
def test_a_statement_ends(text: str) -> None:
    assert len(body(text)) == 2


def test_a_block_inside_parentheses_has_statements() -> None:
    assert len(body("f({ let a = 1\nlet b =\n2\n(a\n+ b) }\n, c)")) == 5


def test_else_on_the_next_line() -> None:
    assert body("if a { b }\nelse\nif c { d }\nelse { e }".replace("else\nif", "else if")) == body("if a { b } else if c { d } else { e }")


OPERATORS_FIRST = [*COMPARISONS, *ARITHMETIC, "and", "or", "as", "=", "+=", "->", "=>", ",", "..", "in", "by"]


@pytest.mark.parametrize("operator", OPERATORS_FIRST)
def test_a_line_cannot_start_with_an_operator(operator: str) -> None:
    (mistake,) = mistakes(f"fn f() {{\n  let x = a\n    {operator} b\n}}\n")
    assert mistake.code == "E0105"
    assert mistake.message == f"a line cannot start with `{operator}`"
    assert f"end the line above with `{operator}`" in mistake.help
    assert str(mistake.span) == "test.tl:3:5"


def test_the_operator_is_reported_at_the_top_level_too() -> None:
    assert codes("fn f(x: f32) -> f32 = x\n  @ x\n") == ["E0105"]


def test_windows_lines_and_a_byte_order_mark() -> None:
    text = "fn f(x: f32) -> f32 {\n  let y = x\n  y\n}\n"
    assert dump(module("\ufeff" + text.replace("\n", "\r\n"))) == dump(module(text))


# ---------------------------------------------------------------- documentation

DOCUMENTED = """## About the file,
## in two lines.

## About f.
##
##   - indented
fn f(
  ## about x
  x: f32,
  # not about y
  y: f32,
) -> f32 = x

## Not about g: a line is between.

fn g() { }

## About h.
@vjp(g)
## inside
extern fn h(x: f32) -> f32

## About S.
struct S {
  ## about a
  a: f32,
  b: f32, ## not about c
  c: f32,
}

## About N.
const N = 1
"""


def test_a_file_may_begin_with_an_attribute() -> None:
    (f,) = module("@vjp(g)\nfn f(x: f32) -> f32 = x\n").definitions
    assert isinstance(f, ast.Function)
    assert f.rule is not None


def test_documentation() -> None:
    m = module(DOCUMENTED)
    f, g, h, s, n = m.definitions
    assert m.doc == "About the file,\nin two lines."
    assert isinstance(f, ast.Function) and isinstance(g, ast.Function) and isinstance(h, ast.Function)
    assert isinstance(s, ast.StructDef) and isinstance(n, ast.ConstDef)
    assert f.doc == "About f.\n\n  - indented"
    assert [p.doc for p in f.params] == ["about x", ""]
    assert (g.doc, h.doc, s.doc, n.doc) == ("", "About h.", "About S.", "About N.")
    assert [p.doc for p in s.fields] == ["about a", "", ""]


def test_documentation_at_the_top_belongs_to_the_definition_below() -> None:
    m = module("## About f.\nfn f() { }\n")
    assert m.doc == ""
    assert isinstance(m.definitions[0], ast.Function) and m.definitions[0].doc == "About f."


# ---------------------------------------------------------------- strings


def pieces(text: str) -> tuple[object, ...]:
    node = value(text)
    assert isinstance(node, ast.Str)
    return tuple(p if isinstance(p, str) else (expression(p.expr), p.spec) for p in node.pieces)


STRINGS = [
    ('""', ()),
    ('"plain"', ("plain",)),
    (r'"a\n\t\\\"\x41\u00e9\U0001f600"', ('a\n\t\\"A\u00e9\U0001f600',)),
    ('"{{x}} 100%"', ("{x} 100%",)),
    ('"loss {l:.4f}!"', ("loss ", ("l", ".4f"), "!")),
    ('"{a}{b}"', (("a", ""), ("b", ""))),
    ('"{f(x[1..2], k = 3)[:, 0]:>8}"', (("f(x[1..2], k = 3)[:, 0]", ">8"),)),
    ('"{f("in {g("deep")}")} out"', (('f("in {g("deep")}")', ""), " out")),
    ('"{if c { "yes" } else { "no" }:>5}"', (('if c {\n  "yes"\n} else {\n  "no"\n}', ">5"),)),
    ('"{(fn(x: f32) => x)(1):e}"', (("(fn(x: f32) => x)(1)", "e"),)),
    ('"# no comment"', ("# no comment",)),
    ('"{x:}"', (("x", ""),)),
    ('"{ x }"', (("x", ""),)),
]


@pytest.mark.parametrize(("text", "expected"), STRINGS, ids=[text for text, _ in STRINGS])
def test_string(text: str, expected: tuple[object, ...]) -> None:
    assert pieces(text) == expected


# ---------------------------------------------------------------- spans


def test_spans_are_exact() -> None:
    text = "fn f(x: f32[n, 2]) -> f32 {\n  let y = (x + 1.0) * g(x)[0, :]  # c\n  y as f32\n}\n"
    m = module(text)

    def texts(node: ast.Node) -> list[str]:
        return [text[node.span.start : node.span.end]] + [t for child in children(node) for t in texts(child)]

    assert texts(m.definitions[0]) == [
        text.rstrip(),
        "x: f32[n, 2]", "f32[n, 2]", "n", "2",
        "f32",
        text[text.index("{") : text.rindex("}") + 1],
        "let y = (x + 1.0) * g(x)[0, :]", "y",
        "(x + 1.0) * g(x)[0, :]", "(x + 1.0)", "x", "1.0",
        "g(x)[0, :]", "g(x)", "g", "x", "x", "0", ":",
        "y as f32", "y as f32", "y", "f32",
    ]  # fmt: skip


def test_a_child_lies_inside_its_parent() -> None:
    for path in sorted((ROOT / "tests" / "golden" / "ast").glob("*.tl")):
        m = module(path.read_text().split("----\n")[0])

        pending: list[ast.Node] = [*m.definitions, *m.stmts]
        while pending:
            node = pending.pop()
            for child in children(node):
                assert node.span.start <= child.span.start <= child.span.end <= node.span.end, (path, node)
                pending.append(child)


# ---------------------------------------------------------------- recovery


def test_several_mistakes_in_one_run() -> None:
    text = "fn a() = 1 +\n\nfn b() { let = 3 }\n\nfn good() { }\n\nstruct S { a f32 }\n\nconst C 4\n"
    assert [(str(d.span), d.code) for d in mistakes(text)] == [
        ("test.tl:1:13", "E0101"),
        ("test.tl:3:14", "E0101"),
        ("test.tl:7:14", "E0101"),
        ("test.tl:9:9", "E0101"),
    ]


def test_an_unclosed_brace_does_not_hide_the_next_definition() -> None:
    found = mistakes("fn a() {\n  let x = f(1\n\nfn b() { let = 3 }\n")
    assert [(str(d.span), d.code) for d in found] == [("test.tl:2:12", "E0103"), ("test.tl:4:14", "E0101")]


def test_a_brace_at_another_indentation_is_suspected() -> None:
    (found,) = mistakes("fn a() {\n  if c {\n    x\n}\n\nfn b() { }\n")
    assert (str(found.span), found.code) == ("test.tl:2:8", "E0103")


def test_nothing_follows_from_a_broken_word() -> None:
    assert codes('fn a() {\n  print("x)\n  let y = $\n}\nfn b() { }\n') == ["E0106", "E0102"]


def test_deep_nesting_is_a_diagnostic() -> None:
    assert codes("const X = " + "-" * (LIMIT + 100) + "1") == ["E0114"]
    assert codes("const X = " + " + ".join("a" * (LIMIT + 100))) == ["E0114"]
    assert codes("const X = " + "[" * 5000 + "]" * 5000) == ["E0114"]
    assert value("(" * 5000 + "1" + ")" * 5000)
    assert value(" + ".join("a" * (LIMIT - 20)))


def test_the_library_and_the_programs_parse() -> None:
    for path in (*ROOT.glob("stdlib/*.tl"), *ROOT.glob("programs/*.tl")):
        text = path.read_text()
        m = module(text)
        assert module(dump(m)).definitions == m.definitions, path
