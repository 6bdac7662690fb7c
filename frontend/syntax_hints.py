"""Hints for text that no production allows: habits from other languages, and common slips.

Each is a small function of the place where the parser stopped, which gives a help or nothing. `HINTS` has them in order: the first
that applies is said, so what is surest stands first.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from tlc.frontend.records import dataclass
from tlc.frontend.source import Source
from tlc.frontend.tokens import ARITHMETIC, CLOSING, COMPARISONS, KEYWORDS, OPENING, REDUCERS, Token

OPERATORS_OF_EXPRESSIONS = {*ARITHMETIC.values(), *COMPARISONS.values(), "AND", "OR", "AS"}
POSTFIX = {"DOT", "LPAREN", "LBRACKET"}
_OPEN = set(OPENING.values())
_CLOSE = set(CLOSING.values())
_FIRST = ("NEWLINE", "LBRACE", "RBRACE", "$end")  # before the first word of a statement
_ELEMENTS = ("bool", "i8", "i32", "i64", "u8", "u32", "f16", "bf16", "f32", "f64")


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

    def same_line(self) -> bool:
        """Whether the next token stands in the same line."""
        if self.at + 1 >= len(self.tokens):
            return False
        return "\n" not in self.source.text[self.tokens[self.at].span.end : self.tokens[self.at + 1].span.start]

    def is_first(self, offset: int = 0) -> bool:
        """Whether a statement begins with that token."""
        return self.kind(offset - 1) in _FIRST

    def bracket(self) -> tuple[str, str]:
        """The innermost bracket that is open, and the symbol before it."""
        depth = 0
        for i in range(len(self.symbols) - 1, -1, -1):
            if self.symbols[i] in _CLOSE:
                depth += 1
            elif self.symbols[i] in _OPEN:
                if depth == 0:
                    return self.symbols[i], self.symbols[i - 1] if i else ""
                depth -= 1
        return "", ""

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
    "new": "a struct is made by a call: `Point(x = 1.0, y = 2.0)`",
    "lambda": "an anonymous function is written `fn(x) => x * x`",
}
_PACKAGES = ("numpy", "torch", "jax", "tensorflow", "keras", "scipy", "flax")
_DECLARES = ("int", "float", "double", "long", "short", "char", "unsigned", "void", "string", *_ELEMENTS)
_BLOCK = "a body is a block: `{ ... }`"
_CHOICE = "a choice is written `if c { a } else { b }`"
_ANONYMOUS = "an anonymous function is written `fn(x) => x * x`"
_LOOP = "a loop is written `for i in 0..n { ... }`"
_TUPLE = "a tuple is written in parentheses: `(a, b)`"
_RANGE_OF_INDEX = "the range of an index is written `i < n` or `i in a..b`; its end is exclusive"


# ---------------------------------------------------------------- words of other languages


def _import(place: Place) -> str:
    """`import numpy as np`, `from math import sqrt`"""
    at = next((k for k in (0, -1) if place.kind(k) == "NAME" and place.text(k) in ("import", "from")), None)
    if at is None:
        return ""
    module = place.text(at + 1)
    if module in _PACKAGES:
        return f"there is no `{module}`: tensors and their functions are always there, layers are in `use nn`, optimizers in `use optim`"
    return f"a module is loaded with `use {module}`" if module.isidentifier() else "a module is loaded with `use`"


def _foreign(place: Place) -> str:
    """A word of another language, here or before."""
    for offset in (0, -1):
        if place.kind(offset) == "NAME" and place.text(offset) in _FOREIGN:
            return _FOREIGN[place.text(offset)]
    return ""


def _declaration(place: Place) -> str:
    """`int x = 3`, `f32 f(f32 x) { ... }`"""
    if not place.kind() == place.kind(-1) == "NAME" or place.text(-1) not in _DECLARES or place.kind(-2) in ("COLON", "ARROW"):
        return ""
    if not place.is_first(-1):
        return f"the name stands before its type: `{place.text()}: f32`"
    if place.kind(1) == "LPAREN":
        return "a function is written `fn f(x: f32) -> f32 { ... }`"
    return f"a name is bound by `let`, or `var` if it is assigned later: `let {place.text()} = ...`"


def _typed_assignment(place: Place) -> str:
    """`x: f32 = 1.0`"""
    if place.kind() == "COLON" and place.kind(-1) == "NAME" and place.is_first(-1) and place.kind(1) == "NAME":
        return f"a new name is bound by `let` or `var`: `let {place.text(-1)}: {place.text(1)} = ...`"
    return ""


def _prefixed_string(place: Place) -> str:
    """`f"..."`"""
    if place.kind() == "STRING_START" and place.adjacent() and place.text(-1).lower() in ("f", "r", "b", "u", "rb", "fr"):
        return 'every string interpolates: write `"x is {x}"`, without a letter before it'
    return ""


def _docstring(place: Place) -> str:
    """Three quotes are an empty string and the start of another."""
    if place.kind() == "STRING_START" and place.kind(-1) == "STRING_END" and place.adjacent():
        return "documentation is lines of `##` above the definition"
    return ""


def _comment(place: Place) -> str:
    return "a comment starts with `#`" if place.is_first() and place.kind() in ("FLOORDIV", "SLASH") else ""


def _decorator(place: Place) -> str:
    """`@jit`: the parser stops behind the name, where `@vjp` has its bracket; inside of a body, where no definition stands, at the sign."""
    of = 1 if place.kind() in ("AT", "ATTRIBUTE") and place.is_first() else -1 if place.kind(-2) == "ATTRIBUTE" else 0
    return "there are no decorators beside `@vjp(g)`: the whole program is compiled" if of and place.text(of) != "vjp" else ""


def _function_type(place: Place) -> str:
    """`f: (f32) -> f32`"""
    of_parameter = place.kind() == "ARROW" and {"COMMA", "ASSIGN"} <= place.expected
    return "the type of a function is written `fn(f32) -> f32`" if of_parameter else ""


def _doubled(place: Place) -> str:
    pair = place.text(-1) + place.text()
    if place.adjacent() and pair in ("&&", "||"):
        return f"write `{'and' if pair == '&&' else 'or'}`"
    if pair == ":=" and place.adjacent():
        return "write `const N = e`" if place.inside("CONST") else "write `let x = e` to bind a name and `x = e` to assign"
    if place.kind() == "COLON" and place.kind(1) == "ASSIGN":
        return "write `x = e` to assign"
    if pair == "===":
        return "write `==`"
    if pair == "<>" and place.adjacent():
        return "write `!=`"
    if pair == "++" or (place.text(-2) + place.text(-1) == "--" and place.kind() in ("NEWLINE", "RBRACE", "$end")):
        return f"write `x {place.text(-1)}= 1`"
    if pair == "<-" and place.adjacent():
        return "write `=`"
    if place.kind() == place.kind(1) == "COLON" and place.kind(-1) == place.kind(2) == "NAME":
        return f"a member is written `{place.text(-1)}.{place.text(2)}`"
    return ""


def _anonymous(place: Place) -> str:
    """`x => x + 1`, `|x| x + 1`, `fn(x) { x + 1 }`"""
    bars = place.kind() == place.kind(2) == "BAR" and place.kind(1) == "NAME"
    body = "FATARROW" in place.expected and place.inside("FN") and place.kind() in ("LBRACE", "COLON", "ARROW")
    return _ANONYMOUS if place.kind() == "FATARROW" or bars or body else ""


def _conversion(place: Place) -> str:
    """`(f32) x`"""
    if [place.kind(k) for k in (-3, -2, -1)] == ["LPAREN", "NAME", "RPAREN"] and place.text(-2) in _DECLARES and "PLUS" in place.expected:
        return "a conversion is a call: `f32(x)`"
    return ""


def _trailing_if(place: Place) -> str:
    """`a if c else b`"""
    return _CHOICE if place.kind() == "IF" and "PLUS" in place.expected else ""


def _trailing_for(place: Place) -> str:
    """`[e for i in ...]`"""
    return "write the index first: `for[i < n] e` makes a tensor" if place.kind() == "FOR" and "PLUS" in place.expected else ""


def _dictionary(place: Place) -> str:
    """`{"a": 1}`"""
    if place.bracket()[0] == "LBRACE" and place.kind() == "COLON" and place.kind(-1) == "STRING_END":
        return "there are no dictionaries: a `struct` has named fields"
    return ""


def _ternary(place: Place) -> str:
    if place.kind() == "WILD" and "PLUS" in place.expected:
        return _CHOICE
    if place.kind() in ("ELSE", "NEWLINE", "RPAREN", "RBRACKET", "COMMA") and place.inside("IF") and "LBRACE" in place.expected:
        return _CHOICE
    return ""


def _unary_plus(place: Place) -> str:
    return "there is no unary `+`" if place.kind() == "PLUS" and "MINUS" in place.expected else ""


# ---------------------------------------------------------------- definitions and types


def _nested_definition(place: Place) -> str:
    if not place.inside("LBRACE") or place.inside("STRUCT"):
        return ""
    if place.kind(-1) == "FN" and place.kind() == "NAME":
        return f"functions are defined at the top level; inside one, write `let {place.text()} = fn(x) => ...`"
    if place.kind() in ("STRUCT", "CONST", "USE", "EXTERN"):
        return f"`{place.text()}` stands at the top level" + ("; inside a function, write `let`" if place.kind() == "CONST" else "")
    return ""


def _struct(place: Place) -> str:
    """A method, a default, a field without a colon, and a struct as other languages make one."""
    if place.kind() == "LBRACE" and place.kind(-1) == "NAME" and place.text(-1)[:1].isupper() and "PLUS" in place.expected:
        return f"a struct is made by a call: `{place.text(-1)}(x = ...)`"
    if not place.inside("STRUCT"):
        return ""
    if place.kind() == "FN":
        return "functions stand outside of the struct and take it as a parameter: `fn f(m: Model, ...)`"
    if place.kind() == "ASSIGN" and place.bracket()[0] == "LBRACE":
        return "a field has a type, `x: f32`; its value is given where a struct is made: `Point(x = 1.0)`"
    if place.kind() == place.kind(-1) == "NAME" and place.expected == {"COLON"}:
        return f"write `{place.text(-1)}: {place.text()}`"
    return ""


def _use(place: Place) -> str:
    """`use nn.linear`, `use nn, optim`, `use "nn"`"""
    if not place.inside("USE"):
        return ""
    match place.kind():
        case "DOT" if place.text(1) == "tl":
            return "the path stands without `.tl`"
        case "DOT":
            return f"a module is used as a whole: `use {place.text(-1)}`, then `{place.text(-1)}.{place.text(1)}`"
        case "COMMA":
            return "one `use` a line"
        case "STRING_START":
            return "write `use nn` for a module of the library, `use ./model` for a file beside this one"
        case _:
            return ""


def _generics(place: Place) -> str:
    """`fn f<T>(x: T)`"""
    if place.kind() == "LT" and place.inside("heading") and not place.bracket()[0]:
        return "type variables stand in brackets: `fn f[T: float](x: T) -> T`"
    return ""


def _parameters(place: Place) -> str:
    """`*args`, `f32 | i64`, `f32?`, `&f32`, `f32*`"""
    if not place.inside("heading") or "PLUS" in place.expected or "MINUS" in place.expected or place.bracket()[0] != "LPAREN":
        return ""
    if place.kind() in ("STAR", "POWER") and place.kind(-1) in ("LPAREN", "COMMA"):
        return "every parameter is named; a tensor holds any number of values: `x: f32[n]`"
    match place.kind():
        case "BAR":
            return "a type variable takes several element types: `fn f[T: float](x: T)`"
        case "WILD":
            return "there is no missing value; give the parameter a default, or add a `bool`"
        case "AMPERSAND" | "STAR":
            return "there are no pointers: values are passed, and not copied where nobody else needs them"
        case _:
            return ""


def _type_of_result(place: Place) -> str:
    if place.kind() == "COLON" and place.symbols[-1] == "RPAREN" and place.inside("heading") and "ARROW" in place.expected:
        return "the type of the result stands after `->`"
    return ""


def _type_brackets(place: Place) -> str:
    """`f32[n][m]`, `x: [f32]`, `f32[n, :]`"""
    if place.kind() == "LBRACKET" and place.kind(-1) == "RBRACKET" and place.inside("dotted", "type") and "PLUS" not in place.expected:
        return "all dimensions stand in one pair of brackets: `f32[n, m]`"
    if place.kind() == "LBRACKET" and place.kind(-1) in ("COLON", "ARROW"):
        return "a tensor type is written `f32[n]`"
    if place.kind() == "COLON" and place.bracket() in (("LBRACKET", "type_arguments"), ("LBRACKET", "dotted")):
        return "a dimension is a number, a name or `?`"
    return ""


def _no_value(place: Place) -> str:
    """`let x`, `var x: f32`, `let x == 3`"""
    if place.kind() == "EQ" and "ASSIGN" in place.expected:
        return "`=` binds, `==` compares"
    if place.kind() in ("NEWLINE", "RBRACE", "$end") and "ASSIGN" in place.expected and place.inside("LET", "VAR", "CONST"):
        return "a name is bound with its value: `= ...`"
    return ""


def _keyword_as_name(place: Place) -> str:
    if "NAME" in place.expected and "NUMBER" not in place.expected and place.text() in KEYWORDS:
        return f"`{place.text()}` is a keyword and cannot be a name"
    return ""


def _reducer_as_name(place: Place) -> str:
    return f"directly before `[`, `{place.text()}` begins a reduction" if place.kind() in ("REDUCER", "QUANTIFIER") else ""


# ---------------------------------------------------------------- subscripts, indices, ranges


def _slice(place: Place) -> str:
    """`x[1:3]`, `x[::2]`, `x[:3]`"""
    if place.bracket() != ("LBRACKET", "postfix") or "COLON" not in (place.kind(), place.kind(-1)):
        return ""
    if place.kind() == place.kind(-1) == "COLON":
        return "a slice has no step: write `for[i < n // 2] x[2 * i]`, or `flip(x)` for the reverse"
    return "a slice is written `x[a..b]`, from `a` up to `b`; either end may be left out"


def _index_brackets(place: Place) -> str:
    """`for(i) e`, `for i e`, `sum i e`"""
    if place.kind(-1) == "FOR" and place.expected == {"LBRACKET"}:
        return "the indices of a comprehension stand in brackets: `for[i < n] e`"
    if place.kind() == "NAME" and place.text(-1) in REDUCERS and "PLUS" in place.expected:
        return f"the indices of a reduction stand in brackets: `{place.text(-1)}[i] e`"
    return ""


def _index_bound(place: Place) -> str:
    bound = place.kind() in ("LE", "GT", "GE", "ASSIGN", "COLON") and place.symbols[-2:-1] in (["LBRACKET"], ["COMMA"])
    if bound and "LT" in place.expected:
        return _RANGE_OF_INDEX
    if place.kind() in ("RBRACKET", "COMMA") and "DOTDOT" in place.expected and place.inside("REDUCER", "QUANTIFIER", "FOR"):
        return "an index has a range, not a sequence: `i in 0..n`, or `i` alone where a subscript gives its range"
    return ""


def _step(place: Place) -> str:
    return "a step is written `0..n by 2`" if place.text() in ("step", "stride") and "BY" in place.expected else ""


def _loop(place: Place) -> str:
    """`for (int i = 0; ...)`, `for i = 0..n`, `for i in 0:n`, `for i, x in xs`"""
    opened = next((k for k in range(0, -4, -1) if place.kind(k) == "LPAREN"), None)
    if opened is not None and place.kind(opened - 1) == "FOR" and place.is_first(opened - 1):
        return _LOOP
    if place.expected == {"IN"}:
        if place.kind() == "COMMA":
            return "count the rows: `for i in 0..len(xs) { ... xs[i] ... }`; rows that are tuples are taken apart by `for (a, b) in rows`"
        return _LOOP
    if place.kind() == "ELLIPSIS" and "DOTDOT" in place.expected:
        return "a range is written `0..n`"
    if place.kind() == "COLON" and place.expected >= {"DOTDOT", "LBRACE"} and place.kind(1) in ("NUMBER", "NAME") and place.same_line():
        return "a range is written `0..n`"
    return ""


def _inclusive_range(place: Place) -> str:
    if place.kind() == "ASSIGN" and place.kind(-1) == "DOTDOT":
        return "the end of a range is exclusive: write `a..b + 1`"
    return ""


def _range_as_value(place: Place) -> str:
    help = "a range is not a value: it stands after `in`, in a subscript, or in `progress(a..b, label)` after `in`"
    return help if place.kind() == "DOTDOT" and "PLUS" in place.expected else ""


# ---------------------------------------------------------------- blocks, lists, slips


def _named_argument(place: Place) -> str:
    """`f(x: 1)`"""
    if place.kind() == "COLON" and "ASSIGN" in place.expected and place.bracket() == ("LPAREN", "postfix"):
        return f"an argument is named by `=`: `{place.text(-1)} = ...`"
    return ""


def _assert_message(place: Place) -> str:
    if place.kind() in ("COLON", "STRING_START") and place.inside("ASSERT") and "COMMA" in place.expected:
        return 'the message follows a comma: `assert c, "message"`'
    return ""


def _brace_below(place: Place) -> str:
    below = place.kind() == "NEWLINE" and place.kind(1) == "LBRACE" and ("LBRACE" in place.expected)
    return "the `{` belongs at the end of the line above" if below else ""


def _colon_block(place: Place) -> str:
    return _BLOCK if place.kind() == "COLON" and "LBRACE" in place.expected and "ASSIGN" not in place.expected else ""


def _no_block(place: Place) -> str:
    """`if (c) e`, `while c` and a newline"""
    return _BLOCK if "LBRACE" in place.expected and place.inside("IF", "WHILE", "FOR") and "NUMBER" not in place.expected else ""


def _body_below(place: Place) -> str:
    if place.kind() == "NEWLINE" and place.symbols[-1] == "RBRACKET" and place.inside("indices"):
        return "the body begins on the line of the `[...]`; parentheses around all of it let it go on below"
    return ""


def _assignment_as_value(place: Place) -> str:
    if place.kind() not in ("ASSIGN", "AUGASSIGN") or not place.expected & OPERATORS_OF_EXPRESSIONS:
        return ""
    if place.inside("dotted"):
        return "the arguments of a type have no names"
    return ("`==` compares; " if place.kind() == "ASSIGN" else "") + "an assignment is a statement, not a value"


def _bare_tuple(place: Place) -> str:
    """`return a, b`, `let a, b = t`, `a, b = b, a`"""
    return _TUPLE if place.kind() == "COMMA" and place.bracket()[0] in ("", "LBRACE") and not place.inside("STRUCT", "USE") else ""


def _misspelled(place: Place) -> str:
    """`retrun x`: two names in a row, of which the first is nearly a keyword that could stand at its place."""
    if place.kind(-1) != "NAME" or place.kind() in OPERATORS_OF_EXPRESSIONS | POSTFIX:
        return ""
    near = difflib.get_close_matches(place.text(-1), KEYWORDS, 1, 0.75)
    return f"did you mean `{near[0]}`?" if near else ""


def _missing_comma(place: Place) -> str:
    if "COMMA" not in place.expected or place.kind() not in ("NEWLINE", "NAME", "NUMBER", "STRING_START"):
        return ""
    opening, before = place.bracket()
    if not opening:
        return ""
    if place.text() == ";" and opening == "LBRACKET":
        return "every row is a tensor of its own: `[[1, 2], [3, 4]]`"
    if opening == "LBRACE" or before == "generics":
        return f"{'fields' if before != 'generics' else 'parameters'} are separated by commas"
    return f"{'arguments' if before == 'postfix' else 'elements'} are separated by commas"


def _call_of_word(place: Place) -> str:
    """`print x`"""
    if "PLUS" not in place.expected or place.kind() not in ("NAME", "NUMBER", "STRING_START"):
        return ""
    return f"a call needs parentheses: `{place.text(-1)}(...)`" if place.kind(-1) == "NAME" and place.is_first(-1) else ""


# The first that applies is said.
HINTS: tuple[Callable[[Place], str], ...] = (
    _import,
    _foreign,
    _loop,
    _declaration,
    _prefixed_string,
    _docstring,
    _decorator,
    _function_type,
    _slice,
    _dictionary,
    _struct,
    _use,
    _generics,
    _parameters,
    _trailing_for,
    _index_brackets,
    _doubled,
    _anonymous,
    _conversion,
    _nested_definition,
    _typed_assignment,
    _type_brackets,
    _no_value,
    _bare_tuple,
    _keyword_as_name,
    _reducer_as_name,
    _assert_message,
    _named_argument,
    _brace_below,
    _step,
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
    _no_block,
)
