"""The REPL: entries of TL and commands that begin with `:`, from a terminal or line by line from anywhere else.

An entry ends where it is whole: while a bracket is open, or the parser wants more, the next line belongs to it. On a terminal
errors and Ctrl-C lead back to the prompt; elsewhere every entry is run, and the exit status is that of the first that failed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import IO

from tlc.driver import flags as flag
from tlc.driver import report
from tlc.driver.entries import Session
from tlc.driver.flags import UsageError
from tlc.driver.output import OutputError
from tlc.frontend.parser import incomplete
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source

WELCOME = "tlc {version}, the language TL; `:help` says what there is, Ctrl-D quits"

Answer = Callable[[BaseException, list[str]], int]  # says an error, and gives its exit status; the words are those of a report


@dataclass(frozen=True)
class Command:
    """`:NAME WORDS`; a beginning of the name will do."""

    name: str
    words: str
    doc: str
    run: Callable[[Repl, str], None]


class Repl:
    """`stages` are those that `:emit` knows; `answer` is how `tlc` answers errors."""

    def __init__(self, session: Session, stages: tuple[str, ...], answer: Answer) -> None:
        self.session, self.stages, self.answer = session, stages, answer
        self.done = False

    # ------------------------------------------------------------ where entries come from

    def run(self, stream: IO[str] | None) -> int:
        """Until the input ends or `:quit`; gives the exit status."""
        if stream is None:
            return 0
        if stream.isatty() and sys.stdout.isatty():
            return self.run_terminal()
        return self.run_lines(stream)

    def run_terminal(self) -> int:
        from tlc.driver.crash import version
        from tlc.driver.prompt import Prompt

        prompt = Prompt(self.completions, self.waits)
        print(WELCOME.format(version=version("tlc")))
        while not self.done:
            try:
                text = prompt.read()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            try:
                self.execute(text)
            except KeyboardInterrupt as error:
                self.answer(error, [])
        return 0

    def run_lines(self, stream: IO[str]) -> int:
        failed = 0
        text = ""
        for line in stream:
            text += line
            if self.waits(text):
                continue
            status = self.execute(text)
            failed = failed or status
            text = ""
            if self.done:
                return failed
        status = self.execute(text)
        return failed or status

    def waits(self, text: str) -> bool:
        """Whether an entry goes on in the next line."""
        return not text.lstrip().startswith(":") and incomplete(Source("<entry>", text))

    def completions(self, word: str) -> list[str]:
        if word.startswith(":"):
            return [f":{c.name}" for c in COMMANDS if c.name.startswith(word[1:])]
        return list(self.session.completions(word))

    # ------------------------------------------------------------ what they do

    def execute(self, text: str) -> int:
        """One entry or command; gives the exit status that it would have as a program."""
        if not text.strip():
            return 0
        try:
            if text.lstrip().startswith(":"):
                self.command(text.strip())
                return 0
            for name in self.session.run(text):
                report.say(f"notice: `{name}` is gone: what it was made of is defined in another way now")
        except OutputError:
            raise  # the other entries would have no output either
        except Exception as error:
            return self.answer(error, ["repl", "\n" + "\n".join(self.session.texts) + "\n"])
        return 0

    def command(self, text: str) -> None:
        name, _, words = text[1:].partition(" ")
        found = [c for c in COMMANDS if name and c.name.startswith(name)]
        if not found:
            raise UsageError(f"there is no command `:{name}`{flag.near(name, [c.name for c in COMMANDS])}; `:help` lists them")
        found[0].run(self, words.strip())

    def type(self, words: str) -> None:
        if not words:
            raise UsageError("`:type` needs an expression")
        print(self.session.type_of(words), flush=True)

    def emit(self, words: str) -> None:
        stage, _, text = words.partition(" ")
        if stage not in self.stages:
            raise UsageError(f"`:emit` needs a stage{flag.near(stage, self.stages)}; the stages are {', '.join(self.stages)}")
        if not text and not self.session.texts:
            raise UsageError(f"there is no entry yet; `:emit {stage} CODE` shows that of any code")
        shown = self.session.emit(stage, text)
        if shown is None:
            raise UsageError(f"this entry has nothing to run, so it has no `{stage}`")
        print(shown.rstrip("\n"), flush=True)

    def help(self, words: str) -> None:
        rows = [(f":{c.name} {c.words}".rstrip(), c.doc) for c in COMMANDS]
        rows[:0] = [
            ("1 + 2", "an expression: its value and its type"),
            ("let x = 3", "a statement; `let` and `var` stay, and so do `fn`, `struct`, `const`, `use`"),
        ]
        width = max(len(left) for left, _ in rows)
        print("\n".join(f"  {left:{width}}  {right}" for left, right in rows), flush=True)

    def quit(self, words: str) -> None:
        self.done = True


# fmt: off
COMMANDS = (
    Command("type", "CODE",         "the type of an expression, or the head of a function",        Repl.type),
    Command("emit", "STAGE [CODE]", "a stage of the compiler, for the last entry or for this code", Repl.emit),
    Command("help", "",             "print this",                                                  Repl.help),
    Command("quit", "",             "leave, as Ctrl-D does",                                       Repl.quit),
)
# fmt: on
