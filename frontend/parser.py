"""Text to AST: `parse(source)`. A mistake does not end the work: the parser goes on at the next definition.

The lexer reports broken words and brackets, the grammar's actions report what is well-formed but wrong, and
`syntax_error` explains what no production allows. In a definition whose words or brackets are broken, nothing more is
reported: the rest would follow from that.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ply import yacc

from tlc.frontend import ast, narrow, syntax_error, tables
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.lexer import Lexed, tokenize
from tlc.frontend.nesting import in_steps, too_deep
from tlc.frontend.source import Source
from tlc.frontend.tokens import Token

# What begins a definition or, in a script, a statement: where the parser goes on after a mistake.
_RESTART = {"FN", "EXTERN", "ATTRIBUTE", "STRUCT", "CONST", "USE", "LET", "VAR", "FOR", "WHILE", "IF", "ASSERT"}


def parse(source: Source) -> ast.Module:
    """The tree of a source. Raises CompileError with every mistake that was found, in the order of the text."""
    lexed = tokenize(source)
    items, mistakes = _parse_all(source, lexed)
    items = in_steps(items)
    diagnostics = lexed.diagnostics + mistakes + too_deep(items)
    if diagnostics:
        raise CompileError(sorted(diagnostics, key=lambda d: d.span.start))
    definitions = tuple(item for item in items if isinstance(item, ast.Definition))
    stmts = tuple(item for item in items if not isinstance(item, ast.Definition))
    return ast.Module(source, definitions, stmts, lexed.doc)


def incomplete(source: Source) -> bool:
    """Whether more lines could make an entry of the REPL whole: a bracket is open, or the parser wants more at the end of the text."""
    lexed = tokenize(source)
    if lexed.waits or lexed.diagnostics:
        return lexed.waits
    run = Run(source, lexed.tokens, 0)
    try:
        run.items()
    except narrow.Stop:
        return False
    except _Unexpected:
        return bool(lexed.tokens) and run.at >= len(lexed.tokens)
    return False


def _parse_all(source: Source, lexed: Lexed) -> tuple[list[Any], list[Diagnostic]]:
    """The items and the mistakes. One pass if there are none; after one, the next pass begins where a definition does."""
    count = len(lexed.tokens)
    starts = sorted({0, *_restarts(source, lexed.tokens), *lexed.cuts, count})
    offsets = [token.span.start for token in lexed.tokens] + [len(source.text) + 1]
    broken = [diagnostic.span.start for diagnostic in lexed.diagnostics]
    mistakes: list[Diagnostic] = []
    items: list[Any] = []
    begin = 0
    while begin < count:
        end = next((cut for cut in lexed.cuts if cut > begin), count)
        some, found, strays, at = _parse_from(source, lexed.tokens[:end], begin)
        items += some
        begin = next((start for start in starts if start > at), count)
        here = max(start for start in starts if start < begin)
        low, high = offsets[here] if here else 0, offsets[begin]
        if not any(low <= offset < high for offset in broken):
            mistakes += found
        mistakes += [stray for stray in strays if stray.span.start < low or begin >= count]
    return items, mistakes


def _restarts(source: Source, tokens: list[Token]) -> list[int]:
    """Where, in the first column, a definition or statement begins with a word of its own (or with one that was meant so: `def f`)."""
    found = []
    for i, token in enumerate(tokens):
        if i > 0 and source.text[token.span.start - 1] == "\n":
            following = tokens[i + 1].type if i + 1 < len(tokens) else ""
            word = token.type in _RESTART and not (token.type == "FN" and following == "LPAREN")
            if word or (token.type == following == "NAME"):
                found.append(i)
    return found


class _Unexpected(Exception):
    """PLY found a token (or the end) that cannot stand where it does."""


def _unexpected(token: Token | None) -> NoReturn:
    raise _Unexpected


class Run:
    """One run of PLY's machine over the tokens from `begin`. `at` is the index of the token that it read last."""

    def __init__(self, source: Source, tokens: list[Token], begin: int) -> None:
        self.machine = yacc.LRParser(tables.load(), _unexpected)
        self.machine.context = self.context = narrow.Context(source)
        self.tokens, self.at = tokens, begin - 1

    def next_token(self) -> Token | None:
        self.at += 1
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def symbols(self) -> list[str]:
        """The kinds of the symbols on the stack."""
        return [symbol.type for symbol in self.machine.symstack]

    def items(self) -> list[Any]:
        items: list[Any] = self.machine.parse(lexer=tables, tokenfunc=self.next_token)
        return items


def _parse_from(source: Source, tokens: list[Token], begin: int) -> tuple[list[Any], list[Diagnostic], list[Diagnostic], int]:
    """Items, mistakes, the `?` that no type took (so far), and the index of the token where the parse ended."""
    run = Run(source, tokens, begin)
    items: list[Any] = []
    mistakes: list[Diagnostic] = []
    at = len(tokens) - 1
    try:
        items = run.items()
    except narrow.Stop as stopped:
        mistakes, at = [stopped.diagnostic], min(run.at, at)
    except _Unexpected:
        mistakes = [syntax_error.explain(source, tokens, run.at, _machine_before(run, begin), run.symbols())]
        at = min(run.at, at)
    return items, mistakes, [narrow.stray(node) for node in run.context.strays.values()], at


def _machine_before(run: Run, begin: int) -> syntax_error.Machine:
    """The machine before it read token `run.at`, and so before that token made it reduce: the text before is parsed again."""

    class Reached(Exception):
        pass

    again = Run(run.context.source, run.tokens, begin)

    def next_token() -> Token | None:
        if again.at + 1 == run.at:
            raise Reached
        return again.next_token()

    try:
        again.machine.parse(lexer=tables, tokenfunc=next_token)
    except Reached:
        return syntax_error.Machine(again.machine)
    raise AssertionError("the same tokens were parsed in another way")
