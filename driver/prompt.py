"""The prompt of the REPL on a terminal: editing, history, completion, colours; all of it prompt_toolkit's work.

Enter ends an entry that is whole, else it begins a line. Ctrl-C drops the entry (`KeyboardInterrupt`), Ctrl-D on an empty one is
the end (`EOFError`). The history lies in the cache folder; without one it lasts as long as the session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from tlc.frontend import disk_cache
from tlc.frontend.tokens import KEYWORDS

FIRST, NEXT = "> ", ". "  # what stands before the first line of an entry and before the others
INDENT = "  "

_WORD = re.compile(r":?[^\W\d][\w.]*$|:$")
_PIECES = re.compile(r'(?P<comment>#.*)|(?P<string>"(?:\\.|[^"\\])*"?)|(?P<number>\b\d[\w.]*)|(?P<word>[^\W\d]\w*)|(?s:.)')
_STYLE = Style.from_dict({"comment": "ansibrightblack", "string": "ansigreen", "number": "ansicyan", "keyword": "ansiblue bold"})


class Prompt:
    """`complete` gives the names that begin like a word; `waits` says whether an entry goes on in the next line."""

    def __init__(self, complete: Callable[[str], Iterable[str]], waits: Callable[[str], bool]) -> None:
        self._session: PromptSession[str] = PromptSession(
            FIRST,
            multiline=True,
            prompt_continuation=lambda width, line, wrapped: NEXT,
            history=_history(),
            completer=_Names(complete),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=_keys(waits),
            lexer=_Colours(),
            style=_STYLE,
        )

    def read(self) -> str:
        """One entry. Raises KeyboardInterrupt or EOFError."""
        return self._session.prompt()


class _Names(Completer):
    def __init__(self, complete: Callable[[str], Iterable[str]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        word = _WORD.search(document.current_line_before_cursor)
        if word:
            yield from (Completion(name, -len(word.group())) for name in self._complete(word.group()))


class _Colours(Lexer):
    """By the form of the words: an entry is short, and need not be right yet."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        return lambda number: [(_class(piece), piece.group()) for piece in _PIECES.finditer(document.lines[number])]


def _class(piece: re.Match[str]) -> str:
    kind = piece.lastgroup or ""
    if kind == "word":
        return "class:keyword" if piece.group() in KEYWORDS else ""
    return f"class:{kind}" if kind else ""


def _keys(waits: Callable[[str], bool]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        below = buffer.document.text_after_cursor
        if "\n" not in below and not waits(buffer.text + "\n"):
            buffer.validate_and_handle()
            return
        line = buffer.document.current_line_before_cursor
        deeper = INDENT if line.rstrip().endswith(("{", "(", "[")) else ""
        buffer.insert_text("\n" + line[: len(line) - len(line.lstrip())] + deeper)

    @keys.add("}")
    def close(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        line = buffer.document.current_line_before_cursor
        if line.endswith(INDENT) and not line.strip():
            buffer.delete_before_cursor(len(INDENT))
        buffer.insert_text("}")

    return keys


class _KeptHistory(FileHistory):
    """A disk that is full or cannot be written costs the history, not the session."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def _history() -> History:
    path = disk_cache.folder() / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError:
        return InMemoryHistory()
    return _KeptHistory(str(path))
