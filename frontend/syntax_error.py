"""What to say when no production allows a token: what was found, what could have stood there, and a hint.

What could have stood there is asked of the parser's own tables: the text before the token is parsed again, and every
kind of token is tried on that stack. So the list is exact, and a change of the grammar needs none here. The hints are a
table of habits from other languages and common slips.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tlc.frontend.diagnostics import Diagnostic, Label
from tlc.frontend.source import Source, Span
from tlc.frontend.tokens import ARITHMETIC, CLOSING, COMPARISONS, KEYWORDS, OPENING, OPERATORS, TERMINALS, Token

# ---------------------------------------------------------------- names of tokens

_SYMBOLS = {kind: symbol for symbol, kind in {**OPERATORS, **OPENING, **CLOSING, ":": "COLON"}.items()}

_KINDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "NEWLINE": "the end of the line",
    "$end": "the end of the file",
    "STRING_START": "a string",
    "STRING_END": 'the closing `"`',
    "HOLE_END": "the `}` that ends the interpolation",
    "ATTRIBUTE": "`@`",
    "WILD": "`?`",
    "AUGASSIGN": "`+=`",
    "SPEC": "`:`",
}

_OPERATORS = {*ARITHMETIC.values(), *COMPARISONS.values(), "AND", "OR", "AS"}
_POSTFIX = {"DOT", "LPAREN", "LBRACKET"}

# A group is named by one phrase if all of it could stand here.
_ANY_EXPRESSION = {
    "NAME", "NUMBER", "STRING_START", "MINUS", "NOT", "LPAREN", "LBRACKET", "LBRACE", "FN", "IF", "TRUE",
    "FOR", "REDUCER", "QUANTIFIER", "TILDE", "FALSE", "WILD",
}  # fmt: skip
_EXPRESSION = {"NAME", "NUMBER", "STRING_START", "MINUS", "NOT", "LPAREN", "LBRACKET", "LBRACE", "FN", "IF", "TRUE"}
_GROUPS = (
    ("a definition", {"STRUCT", "CONST", "USE"}, {"STRUCT", "CONST", "USE", "EXTERN", "ATTRIBUTE", "FN"}),
    ("a statement", {"LET", "WHILE"}, {"LET", "VAR", "WHILE", "FOR", "BREAK", "CONTINUE", "RETURN", "ASSERT", *_ANY_EXPRESSION}),
    ("an expression", _EXPRESSION, _ANY_EXPRESSION),
    ("a type", {"NAME", "LPAREN", "FN"}, {"NAME", "LPAREN", "FN"}),
)


def _phrase(kind: str) -> str:
    if kind in _KINDS:
        return _KINDS[kind]
    return f"`{_SYMBOLS.get(kind, kind.lower())}`"


# ---------------------------------------------------------------- what could have stood there


class Machine:
    """PLY's machine, stopped before the token that it cannot take."""

    def __init__(self, machine: Any) -> None:
        self.action, self.goto, self.productions = machine.action, machine.goto, machine.productions
        self.states: list[int] = list(machine.statestack)
        self.symbols: list[str] = [symbol.type for symbol in machine.symstack]

    def accepts(self, kind: str) -> bool:
        """Whether a token of this kind could come next: reduce as the tables say until it is shifted or refused."""
        states = list(self.states)
        while True:
            step = self.action[states[-1]].get(kind)
            if step is None or step >= 0:
                return step is not None
            production = self.productions[-step]
            if production.len:
                del states[-production.len :]
            states.append(self.goto[states[-1]][production.name])

    def expected(self) -> set[str]:
        return {kind for kind in (*TERMINALS, "$end") if self.accepts(kind)}


def _expectation(kinds: set[str]) -> str:
    """`an expression`, or `,` or `)`: the alternatives, without those that nearly always could stand there."""
    left = set(kinds)
    phrases = []
    for phrase, needed, covered in _GROUPS:
        if needed <= left:
            phrases.append(phrase)
            left -= covered
    if ("PLUS" in left or left >= _POSTFIX) and left - _OPERATORS - _POSTFIX:
        left -= _OPERATORS | _POSTFIX  # an expression or type that could go on: name what would end it
    if "ARROW" in left:
        left -= {"NEWLINE", "$end"}  # only an `extern` function could end here
    if "NEWLINE" in left:
        left -= {"NEWLINE", "$end", "RBRACE", "ELSE", "ASSIGN", "AUGASSIGN"}
        phrases.append("the end of the statement")
    phrases += [_phrase(kind) for kind in (*TERMINALS, "$end") if kind in left]
    phrases = list(dict.fromkeys(phrases))
    if len(phrases) > 5:
        return ""
    return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " or " + phrases[-1] if phrases else ""


# ---------------------------------------------------------------- hints


@dataclass(frozen=True)
class Place:
    """Where the parser stopped: tokens around, what it expects, and the names of the symbols on its stack."""

    source: Source
    tokens: Sequence[Token]
    at: int
    expected: set[str]
    symbols: list[str]

    def kind(self, offset: int = 0) -> str:
        index = self.at + offset
        return self.tokens[index].type if 0 <= index < len(self.tokens) else "$end"

    def text(self, offset: int = 0) -> str:
        index = self.at + offset
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def inside(self, *symbols: str) -> bool:
        return any(symbol in self.symbols for symbol in symbols)

    def adjacent(self) -> bool:
        """Whether the token touches the one before."""
        return 0 < self.at < len(self.tokens) and self.tokens[self.at - 1].span.end == self.tokens[self.at].span.start


_FOREIGN = {
    "def": "a function is written `fn f(x: f32) -> f32 { ... }`",
    "func": "a function is written `fn f(x: f32) -> f32 { ... }`",
    "function": "a function is written `fn f(x: f32) -> f32 { ... }`",
    "class": "a record is written `struct Model { w: f32[3, 4] }`; functions stand outside of it and take it as a parameter",
    "elif": "write `else if`",
    "elsif": "write `else if`",
    "elseif": "write `else if`",
    "lambda": "an anonymous function is written `fn(x) => x * x`",
    "mut": "a variable that may be assigned is declared with `var`",
    "val": "write `let`, or `var` if it is assigned later",
    "auto": "write `let`, or `var` if it is assigned later",
    "foreach": "write `for x in xs { ... }`",
    "until": "write `while not ...`",
    "loop": "write `while true { ... }`",
    "raise": 'write `fail("message")`',
    "throw": 'write `fail("message")`',
    "then": "a branch is a block: `if c { ... }`",
    "do": "a body is a block: `while c { ... }`",
    "is": "write `==`",
    "with": "there is no `with`: write the statements alone",
    "try": "there are no exceptions: `fail` and a failed check end the program",
    "except": "there are no exceptions: `fail` and a failed check end the program",
    "del": "a value ends with its last use",
    "global": "a function sees its parameters and constants; what it changes, it returns",
    "nonlocal": "a function sees its parameters and constants; what it changes, it returns",
    "yield": "a function returns once; `for[i < n] e` makes a tensor of values",
    "async": "there are no coroutines: the compiler runs independent work in parallel",
    "await": "there are no coroutines: the compiler runs independent work in parallel",
    "match": "write `if c { ... } else if d { ... }`",
    "switch": "write `if c { ... } else if d { ... }`",
    "pub": "every definition of a file may be used by others",
    "static": "a constant is written `const N = 4`",
    "final": "a constant is written `const N = 4`",
    "#define": "a constant is written `const N = 4`",
}
_PACKAGES = ("numpy", "torch", "jax", "tensorflow", "keras", "scipy", "flax")


def _import(place: Place) -> str:
    """`import numpy as np`, `from math import sqrt`"""
    words = [k for k in (0, -1) if place.kind(k) == "NAME" and place.text(k) in ("import", "from")]
    if not words:
        return ""
    module = place.text(words[0] + 1)
    if module in _PACKAGES:
        return f"there is no `{module}`: tensors and their functions are always there, layers are in `use nn`, optimizers in `use optim`"
    return f"a module is loaded with `use {module}`" if module.isidentifier() else "a module is loaded with `use`"


def _foreign(place: Place) -> str:
    """A word of another language, here or before."""
    for offset in (0, -1):
        if place.kind(offset) == "NAME" and place.text(offset) in _FOREIGN:
            return _FOREIGN[place.text(offset)]
    return ""


def _misspelled(place: Place) -> str:
    """`retrun x`: two names in a row, of which the first is nearly a keyword that could stand at its place."""
    if place.kind(-1) != "NAME" or place.kind() in _OPERATORS | _POSTFIX:
        return ""
    near = difflib.get_close_matches(place.text(-1), KEYWORDS, 1, 0.75)
    return f"did you mean `{near[0]}`?" if near else ""


def _keyword_as_name(place: Place) -> str:
    if "NAME" in place.expected and "NUMBER" not in place.expected and place.text() in KEYWORDS:
        return f"`{place.text()}` is a keyword and cannot be a name"
    return ""


def _reducer_as_name(place: Place) -> str:
    return f"directly before `[`, `{place.text()}` begins a reduction" if place.kind() in ("REDUCER", "QUANTIFIER") else ""


def _brace_below(place: Place) -> str:
    below = place.kind() == "NEWLINE" and place.kind(1) == "LBRACE" and ("LBRACE" in place.expected)
    return "the `{` belongs at the end of the line above" if below else ""


def _doubled(place: Place) -> str:
    pair = place.text(-1) + place.text()
    if place.adjacent() and pair in ("&&", "||"):
        return f"write `{'and' if pair == '&&' else 'or'}`"
    if pair == ":=":
        return "write `let x = e` to bind a name and `x = e` to assign"
    if pair == "===":
        return "write `==`"
    if pair == "++" or (place.text(-2) + place.text(-1) == "--" and place.kind() in ("NEWLINE", "RBRACE", "$end")):
        return f"write `x {place.text(-1)}= 1`"
    if pair == "<-" and place.adjacent():
        return "write `=`"
    return ""


def _colon_block(place: Place) -> str:
    return (
        "a body is a block: `{ ... }`" if place.kind() == "COLON" and "LBRACE" in place.expected and "ASSIGN" not in place.expected else ""
    )


def _assignment_as_value(place: Place) -> str:
    if place.kind() not in ("ASSIGN", "AUGASSIGN") or not place.expected & _OPERATORS:
        return ""
    if place.inside("dotted"):
        return "the arguments of a type have no names"
    return ("`==` compares; " if place.kind() == "ASSIGN" else "") + "an assignment is a statement, not a value"


def _range_as_value(place: Place) -> str:
    help = "a range is not a value: it stands after `in`, in a subscript, or in `progress(a..b, label)` after `in`"
    return help if place.kind() == "DOTDOT" and "PLUS" in place.expected else ""


def _comment(place: Place) -> str:
    first = place.kind(-1) in ("NEWLINE", "LBRACE", "$end")
    return "a comment starts with `#`" if first and place.kind() in ("FLOORDIV", "SLASH") else ""


def _nested_definition(place: Place) -> str:
    if not place.inside("LBRACE"):
        return ""
    if place.kind(-1) == "FN" and place.kind() == "NAME":
        return f"functions are defined at the top level; inside one, write `let {place.text()} = fn(x) => ...`"
    if place.kind() in ("STRUCT", "CONST", "USE", "EXTERN"):
        return f"`{place.text()}` stands at the top level" + ("; inside a function, write `let`" if place.kind() == "CONST" else "")
    return ""


def _bracket(place: Place) -> tuple[str, str]:
    """The innermost open bracket and the symbol before it."""
    openings = [i for i, symbol in enumerate(place.symbols) if symbol in ("LPAREN", "LBRACKET", "LBRACE")]
    return (place.symbols[openings[-1]], place.symbols[openings[-1] - 1]) if openings else ("", "")


def _slice(place: Place) -> str:
    """`x[1:3]`, `x[::2]`, `x[:3]`"""
    opening, before = _bracket(place)
    if opening != "LBRACKET" or not (place.kind() == "COLON" or place.kind(-1) == "COLON"):
        return ""
    if before == "dotted":
        return "a dimension is a number, a name or `?`"
    if before != "postfix":
        return ""
    if place.kind() == "COLON" and place.kind(-1) == "COLON":
        return "a slice has no step: write `for[i < n // 2] x[2 * i]`, or `flip(x)` for the reverse"
    return "a slice is written `x[a..b]`, from `a` up to `b`; either end may be left out"


def _prefixed_string(place: Place) -> str:
    """`f"..."`"""
    if place.kind() != "STRING_START" or not place.adjacent() or place.text(-1).lower() not in ("f", "r", "b", "u", "rb", "fr"):
        return ""
    return 'every string interpolates: write `"x is {x}"`, without a letter before it'


def _trailing_if(place: Place) -> str:
    """`a if c else b`"""
    return "a choice is written `if c { a } else { b }`" if place.kind() == "IF" and "PLUS" in place.expected else ""


def _trailing_for(place: Place) -> str:
    """`[e for i in ...]`"""
    return "write the index first: `for[i < n] e` makes a tensor" if place.kind() == "FOR" and "PLUS" in place.expected else ""


def _dictionary(place: Place) -> str:
    """`{"a": 1}`"""
    opening, _ = _bracket(place)
    if opening == "LBRACE" and place.kind() == "COLON" and place.kind(-1) == "STRING_END":
        return "there are no dictionaries: a `struct` has named fields"
    return ""


def _bare_tuple(place: Place) -> str:
    """`return a, b`, `let a, b = t`, `a, b = b, a`"""
    if place.kind() != "COMMA" or _bracket(place)[0] not in ("", "LBRACE") or place.inside("fields"):
        return ""
    return "a tuple is written in parentheses: `(a, b)`"


def _typed_assignment(place: Place) -> str:
    """`x: f32 = 1.0`"""
    if place.kind() == "COLON" and place.kind(-1) == "NAME" and place.kind(-2) in ("NEWLINE", "LBRACE", "RBRACE", "$end"):
        return f"a new name is bound by `let` or `var`: `let {place.text(-1)}: f32 = ...`"
    return ""


def _method(place: Place) -> str:
    """A function inside a struct."""
    if place.kind() == "FN" and place.inside("STRUCT"):
        return "functions stand outside of the struct and take it as a parameter: `fn f(m: Model, ...)`"
    return ""


def _type_brackets(place: Place) -> str:
    if place.kind() == "LBRACKET" and place.symbols[-1:] == ["type"] or (place.kind() == "LBRACKET" and place.kind(-1) == "RBRACKET" and place.inside("dotted")):
        return "all dimensions stand in one pair of brackets: `f32[n, m]`"
    if place.kind() == "LBRACKET" and place.kind(-1) in ("COLON", "ARROW"):
        return "a tensor type is written `f32[n]`"
    return ""


def _c_loop(place: Place) -> str:
    """`for (int i = 0; ...)`"""
    if place.kind(-1) == "LPAREN" and place.kind(-2) == "FOR" or place.kind() == "LPAREN" and place.kind(-1) == "FOR":
        return "a loop is written `for i in 0..n { ... }`"
    return ""


def _docstring(place: Place) -> str:
    """Three quotes are an empty string and the start of another."""
    if place.kind() == "STRING_START" and place.kind(-1) == "STRING_END" and place.adjacent():
        return "documentation is lines of `##` above the definition"
    return ""


def _no_value(place: Place) -> str:
    """`let x` or `var x: f32`"""
    if place.kind() in ("NEWLINE", "RBRACE", "$end") and "ASSIGN" in place.expected and place.inside("LET", "VAR"):
        return "a name is bound with its value: `= ...`"
    return ""


def _missing_comma(place: Place) -> str:
    if "COMMA" not in place.expected or place.kind() not in ("NEWLINE", "NAME", "NUMBER", "STRING_START"):
        return ""
    opening, before = _bracket(place)
    if not opening:
        return ""
    if opening == "LBRACE" or before == "generics":
        return f"{'fields' if before != 'generics' else 'parameters'} are separated by commas"
    return f"{'arguments' if before == 'postfix' else 'elements'} are separated by commas"


def _body_below(place: Place) -> str:
    if place.kind() == "NEWLINE" and place.symbols[-1] == "RBRACKET" and place.inside("indices"):
        return "the body begins on the line of the `[...]`; parentheses around all of it let it go on below"
    return ""


def _type_of_result(place: Place) -> str:
    if place.kind() == "COLON" and place.symbols[-1] == "RPAREN" and place.inside("heading"):
        return "the type of the result stands after `->`"
    return ""


def _index_bound(place: Place) -> str:
    if place.kind() in ("LE", "GT", "GE") and place.symbols[-2:-1] in (["LBRACKET"], ["COMMA"]) and "LT" in place.expected:
        return "the range of an index is written `i < n` or `i in a..b`; its end is exclusive"
    return ""


def _inclusive_range(place: Place) -> str:
    if place.kind() == "ASSIGN" and place.kind(-1) == "DOTDOT":
        return "the end of a range is exclusive: write `a..b + 1`"
    return ""


def _ternary(place: Place) -> str:
    if place.kind() == "WILD":
        return "a choice is written `if c { a } else { b }`"
    if place.kind() in ("ELSE", "NEWLINE", "RPAREN", "RBRACKET", "COMMA") and place.inside("IF") and "LBRACE" in place.expected:
        return "a choice is written `if c { a } else { b }`"
    return ""


def _unary_plus(place: Place) -> str:
    return "there is no unary `+`" if place.kind() == "PLUS" and "MINUS" in place.expected else ""


def _call_of_word(place: Place) -> str:
    """`print x`"""
    if "PLUS" not in place.expected or place.kind() not in ("NAME", "NUMBER", "STRING_START"):
        return ""
    if place.kind(-1) == "NAME" and place.kind(-2) in ("NEWLINE", "LBRACE", "RBRACE", "$end"):
        return f"a call needs parentheses: `{place.text(-1)}(...)`"
    return ""


# The first that applies is said.
_HINTS: tuple[Callable[[Place], str], ...] = (
    _import,
    _foreign,
    _prefixed_string,
    _docstring,
    _slice,
    _dictionary,
    _method,
    _trailing_for,
    _c_loop,
    _doubled,
    _nested_definition,
    _typed_assignment,
    _type_brackets,
    _no_value,
    _bare_tuple,
    _keyword_as_name,
    _reducer_as_name,
    _brace_below,
    _colon_block,
    _type_of_result,
    _inclusive_range,
    _index_bound,
    _assignment_as_value,
    _range_as_value,
    _comment,
    _body_below,
    _ternary,
    _trailing_if,
    _misspelled,
    _unary_plus,
    _missing_comma,
    _call_of_word,
)


# ---------------------------------------------------------------- the diagnostic


def explain(source: Source, tokens: Sequence[Token], at: int, before: Machine, symbols: list[str]) -> Diagnostic:
    """`before` is the machine before token `at` was read; `symbols` its stack after the reductions that this token allowed."""
    if chain := _chained(tokens, at, symbols):
        return chain
    expected = before.expected()
    place = Place(source, tokens, at, expected, before.symbols)
    wanted = _expectation(expected)
    found = _found(place)
    message = f"expected {wanted}, found {found}" if wanted else f"unexpected {found.removeprefix('the keyword ')}"
    diagnostic = Diagnostic("E0101", message, _span(place))
    for hint in _HINTS:
        if text := hint(place):
            return replace(diagnostic, help=text)
    return diagnostic


def _chained(tokens: Sequence[Token], at: int, symbols: list[str]) -> Diagnostic | None:
    """`a < b < c`"""
    comparisons = set(COMPARISONS.values())
    if at >= len(tokens) or tokens[at].type not in comparisons or symbols[-1] != "expression" or symbols[-2] not in comparisons:
        return None
    depth = 0
    for first in reversed(tokens[:at]):
        if first.type in CLOSING.values():
            depth += 1
        elif first.type in OPENING.values():
            depth -= 1
        elif depth == 0 and first.type in comparisons:
            label = (Label(first.span, "the comparison before"),)
            return Diagnostic("E0109", "comparisons do not chain", tokens[at].span, labels=label, help="write `a < b and b < c`")
    return None


def _found(place: Place) -> str:
    if place.kind() == "NEWLINE" and place.text() == ";":
        return "`;`"
    if place.kind() in ("NEWLINE", "$end", "STRING_START"):
        return _phrase(place.kind())
    if place.kind() == "SPEC":
        return "`:`"
    word = place.text() in KEYWORDS
    return f"{'the keyword ' if word else ''}`{place.text()}`"


def _span(place: Place) -> Span:
    """The token; for the end of a line or file the place just after the last word."""
    if place.kind() in ("NEWLINE", "$end") and place.text() != ";" and place.at > 0:
        end = place.tokens[place.at - 1].span.end
        return Span(place.source, end, end + 1)
    if place.at < len(place.tokens):
        return place.tokens[place.at].span
    return Span(place.source, len(place.source.text), len(place.source.text))
