"""The lexer: words, numbers, what it reports, and that it always ends."""

from __future__ import annotations

import pytest

from tlc.frontend.lexer import Lexed, tokenize
from tlc.frontend.source import Source
from tlc.frontend.tokens import KEYWORDS, REDUCERS


def lex(text: str) -> Lexed:
    return tokenize(Source("test.tl", text))


def kinds(text: str) -> str:
    lexed = lex(text)
    assert lexed.diagnostics == []
    return " ".join(token.type for token in lexed.tokens)


def reports(text: str) -> list[tuple[str, str]]:
    return [(d.code, text[d.span.start : d.span.end]) for d in lex(text).diagnostics]


def test_a_string_is_a_run_of_tokens() -> None:
    assert kinds('"a {x:.4f}"') == "STRING_START TEXT HOLE NAME SPEC HOLE_END STRING_END"


def test_points() -> None:
    assert kinds("1..2") == "NUMBER DOTDOT NUMBER"
    assert kinds("1.0..2.5") == "NUMBER DOTDOT NUMBER"
    assert kinds("x[..., 1]") == "NAME LBRACKET ELLIPSIS COMMA NUMBER RBRACKET"
    assert kinds("x.y.z") == "NAME DOT NAME DOT NAME"


def test_operators_are_the_longest_that_fit() -> None:
    assert kinds("a ** b // c << d -> e => f == g") == "NAME POWER NAME FLOORDIV NAME SHL NAME ARROW NAME FATARROW NAME EQ NAME"
    assert kinds("a **= b") == kinds("a //= b") == kinds("a >>= b") == kinds("a @= b") == kinds("a += b") == "NAME AUGASSIGN NAME"


@pytest.mark.parametrize("word", KEYWORDS)
def test_keyword(word: str) -> None:
    assert kinds(word) == word.upper()
    assert kinds(word + "s") == "NAME"


@pytest.mark.parametrize("word", REDUCERS)
def test_a_reducer_is_one_directly_before_a_bracket(word: str) -> None:
    assert kinds(f"{word}[i] x") == f"{REDUCERS[word]} LBRACKET NAME RBRACKET NAME"
    assert kinds(f"{word} (x)") == "NAME LPAREN NAME RPAREN"
    assert kinds(f"m.{word}[i]") == "NAME DOT NAME LBRACKET NAME RBRACKET"
    assert kinds(f"0..{word}[i] x").startswith(f"NUMBER DOTDOT {REDUCERS[word]}")


NUMBERS = [
    ("42", 42, ""),
    ("1_000", 1000, ""),
    ("0xff", 255, ""),
    ("0xffi32", 255, "i32"),
    ("0b11u8", 3, "u8"),
    ("1.5", 1.5, ""),
    ("1e-3", 1e-3, ""),
    ("2.5E+2f64", 250.0, "f64"),
    ("7f32", 7.0, "f32"),
    ("7i32", 7, "i32"),
    ("inf", float("inf"), ""),
    ("9223372036854775808", 2**63, ""),
    ("1e-999", 0.0, ""),
]


@pytest.mark.parametrize(("text", "value", "suffix"), NUMBERS)
def test_number(text: str, value: float, suffix: str) -> None:
    (token,) = lex(text).tokens
    assert token.type == "NUMBER"
    assert token.literal == (value, suffix)
    assert isinstance(token.literal[0], type(value))


BROKEN = [
    ("1.", "E0108", "1."),
    (".5", "E0108", ".5"),
    ("1.)", "E0108", "1."),
    ("7q", "E0108", "7q"),
    ("1.5i32", "E0108", "1.5i32"),
    ("0x", "E0108", "0x"),
    ("0b12", "E0108", "0b12"),
    ("1e999", "E0108", "1e999"),
    ("1" * 5000, "E0108", "1" * 5000),
    ("a $$$ b", "E0102", "$$$"),
    ("a ! b", "E0102", "!"),
    ("'a", "E0102", "'"),
    ("a \u2212 b", "E0102", "\u2212"),
    ("a\x00b", "E0102", "\x00"),
    ("\u00b2", "E0102", "\u00b2"),
    ('"\\q"', "E0107", "\\q"),
    ('"\\x4"', "E0107", "\\x"),
    ('"\\ud800"', "E0107", "\\ud800"),
    ('"\\UFFFFFFFF"', "E0107", "\\UFFFFFFFF"),
    ('"a}b"', "E0107", "}"),
    ('"{}"', "E0107", "{}"),
    ('"{ :.2f}"', "E0107", "{ :"),
    ('"{x:{w}}"', "E0107", "{"),
    ('"abc', "E0106", '"abc'),
    ('"abc\\', "E0106", '"abc\\'),
    ('f("abc\n)', "E0106", '"abc'),
    ('"{x"', "E0106", '"{x"'),
    ("f(x", "E0103", "("),
    ("f(x]", "E0103", "]"),
    ("{ f(x }", "E0103", "("),
    ("x)", "E0104", ")"),
    ("}", "E0104", "}"),
]


@pytest.mark.parametrize(("text", "code", "place"), BROKEN, ids=[text[:20] for text, _, _ in BROKEN])
def test_broken(text: str, code: str, place: str) -> None:
    assert reports(text)[0] == (code, place)


def test_names_may_be_of_any_alphabet() -> None:
    assert kinds("größe = λ * _x1") == "NAME ASSIGN NAME STAR NAME"


def test_an_unclosed_string_reports_once() -> None:
    assert len(reports('print("loss {l\nlet x = 1\n')) == 1
    assert len(reports('print("a {f("b {g(1\n')) == 1


def test_empty_files() -> None:
    for text in ("", "\n", "# only\n", "  \t\r\n;;\n"):
        assert lex(text).tokens == []
        assert lex(text).diagnostics == []
