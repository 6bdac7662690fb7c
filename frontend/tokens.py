"""The kinds of tokens: which words there are and what the grammar calls them."""

from __future__ import annotations

from typing import Any, ClassVar

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span

KEYWORDS = {
    "fn": "FN", "struct": "STRUCT", "const": "CONST", "use": "USE", "extern": "EXTERN",
    "let": "LET", "var": "VAR", "if": "IF", "else": "ELSE", "for": "FOR", "in": "IN", "by": "BY", "while": "WHILE",
    "break": "BREAK", "continue": "CONTINUE", "return": "RETURN", "assert": "ASSERT",
    "as": "AS", "and": "AND", "or": "OR", "not": "NOT", "true": "TRUE", "false": "FALSE",
}  # fmt: skip

# These are keywords only directly before `[`. `any` and `all` take comparisons into their bodies, the others do not.
REDUCERS = {
    **dict.fromkeys(["sum", "prod", "max", "min", "mean", "argmax", "argmin"], "REDUCER"),
    **dict.fromkeys(["any", "all"], "QUANTIFIER"),
}

COMPARISONS = {"==": "EQ", "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE"}

ARITHMETIC = {
    "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH", "//": "FLOORDIV", "%": "PERCENT", "**": "POWER", "@": "AT",
    "<<": "SHL", ">>": "SHR", "&": "AMPERSAND", "^": "CARET", "|": "BAR",
}  # fmt: skip

AUGMENTED = {f"{symbol}=": "AUGASSIGN" for symbol in ARITHMETIC}

OPERATORS = {
    **COMPARISONS, **ARITHMETIC, **AUGMENTED,
    "~": "TILDE", "=": "ASSIGN", "->": "ARROW", "=>": "FATARROW", ",": "COMMA", ".": "DOT", "..": "DOTDOT", "...": "ELLIPSIS",
}  # fmt: skip

OPENING = {"(": "LPAREN", "[": "LBRACKET", "{": "LBRACE"}
CLOSING = {")": "RPAREN", "]": "RBRACKET", "}": "RBRACE"}
PARTNER = {"LPAREN": ")", "LBRACKET": "]", "LBRACE": "}", "HOLE": "}"}

TERMINALS = (
    "NAME", "NUMBER", "WILD", "NEWLINE", "COLON", "ATTRIBUTE", "REDUCER", "QUANTIFIER",
    "STRING_START", "TEXT", "HOLE", "SPEC", "HOLE_END", "STRING_END",
    *KEYWORDS.values(), *dict.fromkeys(OPERATORS.values()), *OPENING.values(), *CLOSING.values(),
)  # fmt: skip


@dataclass(eq=False)
class Token:
    """A word of the source. `literal` is what a number or a piece of text stands for; `doc` the `##` comment directly above.

    PLY hands `value` to the grammar's actions: the token itself.
    """

    type: str
    text: str
    span: Span
    literal: Any = None
    doc: str = ""
    lexer: ClassVar[None] = None  # PLY looks for it

    @property
    def value(self) -> Token:
        return self
