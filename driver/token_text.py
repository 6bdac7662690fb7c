"""The words of a source as the lexer gives them, one a line: place, kind, value (`tlc emit tokens`)."""

from __future__ import annotations

from tlc.frontend.diagnostics import CompileError
from tlc.frontend.lexer import tokenize
from tlc.frontend.source import Source


def token_text(source: Source) -> str:
    """All tokens. Raises CompileError if a word is broken."""
    lexed = tokenize(source)
    if lexed.diagnostics:
        raise CompileError(lexed.diagnostics)
    rows = []
    for token in lexed.tokens:
        line, column = source.position(token.span.start)
        rows.append(f"{f'{line}:{column}':8} {token.type:12} {token.text.strip()}".rstrip())
    return "\n".join(rows)
