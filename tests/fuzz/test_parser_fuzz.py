"""Whatever the text, the parser gives a tree or a CompileError; and every tree that the printer can show parses back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlc.driver.render import render_all, to_json
from tlc.frontend import ast
from tlc.frontend.ast_text import dump
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.errors import ERRORS
from tlc.frontend.lexer import tokenize
from tlc.frontend.parser import parse
from tlc.frontend.source import NOWHERE, Source
from tlc.frontend.tokens import ARITHMETIC, COMPARISONS, KEYWORDS, OPERATORS, REDUCERS

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [p.read_text(encoding="utf-8").split("----\n")[0] for p in sorted((ROOT / "tests" / "golden" / "ast").glob("*.tl"))]

# More examples: tests/fuzz with --hypothesis-profile, or a larger ROUNDS.
ROUNDS = 400
FAST = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def try_parse(text: str) -> ast.Module | None:
    """Parse; if it fails, it fails with diagnostics that have a code of the catalogue, a place in the text and can be shown."""
    source = Source("fuzz.tl", text)
    try:
        return parse(source)
    except CompileError as error:
        assert error.diagnostics
        for d in error.diagnostics:
            assert d.code in ERRORS
            assert 0 <= d.span.start <= d.span.end <= len(text) + 1
            assert to_json(d)
        assert render_all(error.diagnostics, color=True)
        return None


@FAST
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    try_parse(text)


WORDS = [
    *KEYWORDS,
    *OPERATORS,
    *REDUCERS,
    *"()[]{};:?",
    "\n",
    '"',
    '"a"',
    '"{x:.2f}"',
    "{{",
    "x",
    "f32",
    "1",
    "2.5",
    "?n",
    "# c\n",
    "## d\n",
    "@vjp(g)\n",
    "progress",
    "\\",
]


@FAST
@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from(["", " "]))
def test_any_words(words: list[str], between: str) -> None:
    try_parse(between.join(words))


def mutate(text: str, random: random.Random) -> str:
    """One to three edits: drop, double, swap or insert words, or cut the text."""
    for _ in range(random.randint(1, 3)):
        spans = [(t.span.start, t.span.end) for t in tokenize(Source("m.tl", text)).tokens]
        if not spans:
            return text
        (a, b), (c, d) = random.choice(spans), random.choice(spans)
        match random.randrange(5):
            case 0:
                text = text[:a] + text[b:]
            case 1:
                text = text[:b] + text[a:b] + text[b:]
            case 2:
                text = text[:a] + random.choice(WORDS) + text[b:]
            case 3:
                text = text[: min(a, c)] + text[max(b, d) :]
            case _:
                text = text[: random.randrange(len(text))] + random.choice("\x00\"'{}()[]\n\u00e9$.0") + text[random.randrange(len(text)) :]
    return text


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_mutations(program: str) -> None:
    source = random.Random(len(program))
    for _ in range(ROUNDS // 10):
        module = try_parse(mutate(program, source))
        if module:
            again = parse(Source("dump.tl", dump(module)))
            assert (again.definitions, again.stmts) == (module.definitions, module.stmts)


def test_every_prefix_of_a_program() -> None:
    for program in PROGRAMS:
        for end in range(0, len(program), 7):
            try_parse(program[:end])


# ---------------------------------------------------------------- trees


def node(kind: type[ast.Node], **fields: object) -> ast.Node:
    extra = {name: NOWHERE for name in ("op_span", "name_span") if name in kind.__dataclass_fields__}
    return kind(span=NOWHERE, **fields, **extra)


def build(kind: type[ast.Node], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[ast.Node]:
    return st.builds(lambda **values: node(kind, **values), **fields)


names = st.sampled_from(["x", "y", "sum", "any", "größe", "f", "mean"])
numbers = st.one_of(
    build(ast.Number, value=st.integers(0, 2**70), suffix=st.sampled_from(["", "i8", "u32"])),
    build(ast.Number, value=st.floats(0, allow_nan=False), suffix=st.just("")),
    build(ast.Number, value=st.floats(0, 1e300).filter(lambda x: x < 1e300), suffix=st.sampled_from(["f32", "bf16"])),
)
texts = st.text(min_size=1, max_size=8).filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s))
leaves = st.one_of(numbers, build(ast.Bool, value=st.booleans()), build(ast.Name, name=names))


def merged(pieces: list[object]) -> tuple[object, ...]:
    out: list[object] = []
    for piece in pieces:
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        else:
            out.append(piece)
    return tuple(out)


def tuples(items: st.SearchStrategy[object], low: int = 0) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(items, min_size=low, max_size=3).map(tuple)


def extend(inner: st.SearchStrategy[ast.Node]) -> st.SearchStrategy[ast.Node]:
    optional = st.none() | inner
    index = st.one_of(
        build(ast.IndexRange, name=names, lo=st.none(), hi=optional),
        build(ast.IndexRange, name=names, lo=inner, hi=inner),
    )
    item = st.one_of(inner, build(ast.Ellipsis), build(ast.SliceNode, lo=optional, hi=optional))
    hole = build(ast.Hole, expr=inner, spec=st.sampled_from(["", ".3f", ">8"]))
    dims = tuples(st.one_of(inner, build(ast.Wild, name=st.sampled_from(["", "n"]))))
    kind = build(ast.TypeName, name=st.sampled_from(["f32", "nn.Linear"]), args=st.none(), dims=dims)
    param = build(ast.Param, name=names, type=st.none() | kind, default=st.none(), doc=st.just(""))
    stmt = st.one_of(
        build(ast.ExprStmt, expr=inner),
        build(ast.Return, value=optional),
        build(ast.Assert, cond=inner, message=optional),
        build(
            ast.Binding, mutable=st.booleans(), target=build(ast.Target, name=names, items=st.just(())), type=st.none() | kind, value=inner
        ),
    )
    block = build(ast.Block, stmts=tuples(stmt))
    conditional = build(ast.IfExpr, cond=inner, then=block, other=st.none() | block)
    return st.one_of(
        build(ast.Unary, op=st.sampled_from(["-", "~", "not"]), operand=inner),
        build(ast.Binary, op=st.sampled_from([*ARITHMETIC, *COMPARISONS, "and", "or"]), left=inner, right=inner),
        build(ast.As, value=inner, type=kind),
        build(ast.Call, callee=inner, args=tuples(build(ast.Argument, name=st.just(""), value=inner))),
        build(ast.Field, base=inner, name=names),
        build(ast.Subscript, base=inner, items=tuples(item, 1)),
        build(ast.Comprehension, op=st.sampled_from(["for", *REDUCERS]), indices=tuples(index, 1), body=inner),
        build(ast.Lambda, params=tuples(param), body=inner),
        build(ast.IfExpr, cond=inner, then=block, other=st.none() | block | conditional),
        block,
        build(ast.TupleExpr, items=tuples(inner, 1)),
        build(ast.ListExpr, items=tuples(inner)),
        build(ast.Str, pieces=st.lists(texts | hole, max_size=3).map(merged)),
    )


expressions = st.recursive(leaves, extend, max_leaves=12)


@FAST
@given(expressions)
def test_a_tree_survives_printing_and_parsing(expression: ast.Expr) -> None:
    definition = node(ast.ConstDef, name="X", type=None, value=expression, doc="")
    text = dump(ast.Module(NOWHERE.source, (definition,), (), ""))  # type: ignore[arg-type]
    assert parse(Source("tree.tl", text)).definitions == (definition,), text
