"""Command-line flags as data: a row each, one parser, one help text.

The parameters of a program's `main` and the flags of `tlc` itself are the same kind of row, so both have the same
spelling (`--batch-size` or `--batch_size`, `--name value` or `--name=value`, `--no-shuffle`) and the same errors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from tlc.frontend.narrow_reals import nearest, shortest
from tlc.frontend.ops import DTYPES
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

if TYPE_CHECKING:
    from tlc.frontend.typed import Flag as MainFlag

Value = bool | int | float | str


class UsageError(Exception):
    """Wrong usage: exit status 2. The message is lower case, without a full stop."""


class HelpAsked(Exception):
    """`--help` was given."""


@dataclass(frozen=True)
class Flag:
    """One flag. `default` is None where it is required; `choices` limits a `str`.

    `words` are arguments that each stand for a value, in place of `--name value`. `meant`: what people write for one of the choices.
    """

    name: str  # as a parameter is spelled: batch_size
    elem: Elem
    default: Value | None
    doc: str
    choices: tuple[str, ...] = ()
    words: tuple[tuple[str, Value], ...] = ()
    meant: tuple[tuple[str, str], ...] = ()

    @property
    def spelling(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def negation(self) -> str:
        return "--no-" + self.name.replace("_", "-")

    @property
    def spellings(self) -> tuple[tuple[str, Value | None], ...]:
        """The arguments that give it, with the value each stands for; None where the value follows."""
        if self.words:
            return self.words
        if self.elem is Elem.BOOL:
            return (self.spelling, True), (self.negation, False)
        return ((self.spelling, None),)


def of_main(flags: Iterable[MainFlag]) -> tuple[Flag, ...]:
    """The parameters of a `main` as flags."""
    return tuple(Flag(f.name, f.type.elem, f.default, f.doc) for f in flags)


def parse(flags: Sequence[Flag], args: Sequence[str], before: Sequence[Flag] = ()) -> dict[str, Value]:
    """The value of every flag, from arguments that are flags alone; those of `before` stand elsewhere. Raises `UsageError` or
    `HelpAsked`.
    """
    given, rest = parse_until_word(flags, args, before)
    if rest:
        hint = f"; to turn it off write `{rest[1]}`" if len(rest) > 1 else ""
        raise UsageError(f"unexpected argument `{rest[0]}`: everything here is a flag, `--name value`{hint}")
    return complete(flags, given)


def complete(flags: Sequence[Flag], given: Mapping[str, Value]) -> dict[str, Value]:
    """What was given and the defaults of the rest. Raises `UsageError` for a required flag that is missing."""
    missing = [f"`{f.spelling}`" for f in flags if f.default is None and f.name not in given]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given: {'it has' if len(missing) == 1 else 'they have'} no default")
    values: dict[str, Value] = {}
    for flag in flags:
        value = given.get(flag.name, flag.default)
        assert value is not None
        values[flag.name] = value
    return values


def parse_until_word(flags: Sequence[Flag], args: Sequence[str], before: Sequence[Flag] = ()) -> tuple[dict[str, Value], list[str]]:
    """The flags given before the first argument that is none, and the arguments from there on. The last of two wins."""
    known: dict[str, tuple[Flag, Value | None]] = {}
    for flag in flags:
        for spelling, value in flag.spellings:
            if value is not False or spelling not in known:  # a parameter named `no_x` goes before the negation of `x`
                known[spelling] = (flag, value)
    given: dict[str, Value] = {}
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] != "-":
        word, equals, text = args[at].partition("=")
        at += 1
        word = _canonical(word)
        if word in ("--help", "-h"):
            raise HelpAsked
        if word not in known and any(word == spelling for f in before for spelling, _ in f.spellings):
            raise UsageError(f"`{word}` is a flag of tlc: it stands before the program, as in `tlc {word} .. prog.tl`")
        if word not in known:
            raise UsageError(_unknown(word, [*known, "--help"]))
        flag, value = known[word]
        if value is None:
            if not equals:
                if at == len(args) or args[at].startswith("--"):
                    raise UsageError(f"`{word}` needs a value, {_kind(flag)}: `{word} VALUE`")
                text = args[at]
                at += 1
            given[flag.name] = _value(flag, text)
        elif not equals:
            given[flag.name] = value
        elif flag.elem is Elem.BOOL and text in ("true", "false"):
            given[flag.name] = value == (text == "true")
        else:
            raise UsageError(f"`{word}` is true or false, found `{text}`" if flag.elem is Elem.BOOL else f"`{word}` takes no value")
    return given, list(args[at:])


def help_lines(flags: Sequence[Flag], width: int = 100) -> list[str]:
    """A line or more for each flag: spelling, documentation, default."""
    rows = []
    others = [flag.spelling for flag in flags]
    for flag in flags:
        default = "required" if flag.default is None else f"default {_shown(flag)}"
        rows.append((_head(flag, others), f"{' '.join(flag.doc.split())}  ({default})".strip()))
    rows.append(("--help", "print this and stop"))
    column = max(min(max(len(head) for head, _ in rows), 32), 6)
    lines = []
    for head, text in rows:
        first, *more = _wrap(text, max(width - column - 4, 24))
        if len(head) > column:
            lines += [f"  {head}", f"  {'':{column}}  {first}"]
        else:
            lines.append(f"  {head:{column}}  {first}")
        lines += [f"  {'':{column}}  {line}" for line in more]
    return lines


def near(word: str, names: Iterable[str], likeness: float = 0.6) -> str:
    """`; did you mean ...?` where a name is spelled nearly like the word, else nothing."""
    close = get_close_matches(word, list(names), n=1, cutoff=likeness)
    return f"; did you mean `{close[0]}`?" if close else ""


def _canonical(word: str) -> str:
    return "--" + word[2:].replace("_", "-") if word.startswith("--") else word


def _unknown(word: str, names: list[str]) -> str:
    if not word.startswith("--"):
        word_as_long = f"--{word.lstrip('-')}"
        if word_as_long in names:
            return f"there is no flag `{word}`; did you mean `{word_as_long}`?"
    hint = near(word, names)
    return f"there is no flag `{word}`{hint or '; `--help` lists those there are'}"


def _head(flag: Flag, others: Sequence[str]) -> str:
    """How to give the flag: of a bool that is off unless it is given, only the spelling that turns it on. `others`: what else is a flag."""
    if flag.words:
        return " | ".join(word for word, _ in flag.words)
    if flag.elem is Elem.BOOL:
        if flag.default is False:
            return flag.spelling
        return f"{flag.spelling}=true|false" if flag.negation in others else f"{flag.spelling} | {flag.negation}"
    return f"{flag.spelling} {'|'.join(flag.choices) or ('TEXT' if flag.elem is Elem.STR else 'X' if flag.elem.is_real else 'N')}"


def _kind(flag: Flag) -> str:
    if flag.choices:
        return "one of " + ", ".join(flag.choices)
    return "text" if flag.elem is Elem.STR else "a real number" if flag.elem.is_real else "an integer"


def _value(flag: Flag, text: str) -> Value:
    """The value that `text` says, in the range of the flag's type."""
    wrong = f"`{flag.spelling}` needs {_kind(flag)}, found `{os.fsencode(text).decode(errors='replace')}`"
    if flag.elem is Elem.STR:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the value of `{flag.spelling}` is not valid UTF-8") from None
        if flag.choices and text not in flag.choices:
            meant = dict(flag.meant).get(text.lower())
            raise UsageError(wrong + (f"; did you mean `{meant}`?" if meant else near(text, flag.choices, 0.7)))
        return text
    if flag.elem.is_int:
        try:
            number = int(text, 16 if text.lstrip("+-").lower().startswith("0x") else 10)
        except ValueError:
            raise UsageError(wrong) from None
        info = np.iinfo(DTYPES[flag.elem])
        if not info.min <= number <= info.max:
            raise UsageError(f"`{flag.spelling}` is out of range: {number} does not fit in `{flag.elem}` ({info.min} to {info.max})")
        return number
    assert flag.elem.is_real, flag
    try:
        real = float(text)
    except ValueError:
        raise UsageError(wrong) from None
    stored = nearest(real, flag.elem)
    if np.isinf(stored) and "inf" not in text.lower():
        raise UsageError(f"`{flag.spelling}` is out of range: {text} does not fit in `{flag.elem}`")
    return stored


def _shown(flag: Flag) -> str:
    """The default as a user would write it."""
    if flag.words:
        return next(word for word, value in flag.words if value == flag.default)
    if flag.elem is Elem.STR:
        return str(flag.default) if flag.choices else json.dumps(flag.default, ensure_ascii=False)
    if flag.elem is Elem.BOOL:
        return flag.spelling if flag.default else "false"
    if flag.elem is Elem.BF16:
        return str(shortest(flag.default))
    return str(DTYPES[flag.elem].type(flag.default)) if flag.elem.is_real else str(flag.default)


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] or not word else word
    return [line.rstrip() for line in lines]
