"""What goes to standard error: diagnostics, stops of the running program, wrong usage; as text for people or as JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tlc.frontend.diagnostics import Diagnostic, Label
from tlc.frontend.source import NOWHERE

if TYPE_CHECKING:
    from tlc.ssa.world import Stop

FORMATS = ("text", "json")

# why a program stopped (the `kind` of a check) -> its code in the catalogue
STOPS = {
    "index": "R0001",
    "slice": "R0002",
    "division": "R0003",
    "cast": "R0004",
    "reshape": "R0005",
    "range": "R0006",
    "empty": "R0007",
    "assert": "R0008",
    "fail": "R0009",
    "recursion": "R0010",
    "memory": "R0011",
    "extern": "R0012",
    "extent": "R0013",
    "file": "R0014",
    "checkpoint": "R0015",
    "finite": "R0016",
    "tools": "R0017",
    "device": "R0018",
    "kernel": "R0019",
}


def diagnostics(found: Iterable[Diagnostic], form: str) -> None:
    """Print diagnostics, in the order they are given."""
    from tlc.driver.render import render_all, to_json

    say("\n".join(map(to_json, found)) if form == "json" else render_all(found, _color()).rstrip("\n"))


def message(text: str, form: str, code: str = "") -> None:
    """Print an error that has no place in a source."""
    if form == "json":
        say(json.dumps({"severity": "error", "code": code, "message": text}))
    else:
        say(f"error[{code}]: {text}" if code else f"error: {text}")


def stop(why: Stop, form: str) -> None:
    """Print why and where the running program stopped."""
    code = STOPS[why.kind]
    if why.span == NOWHERE:
        message("\n".join((why.message, *why.notes)), form, code)
    else:
        diagnostics([_stopped(code, why)], form)


def _stopped(code: str, why: Stop) -> Diagnostic:
    """What the library stops at is shown where the program calls it."""
    if why.span.caller is None:
        return Diagnostic(code, why.message, why.span, notes=why.notes)
    return Diagnostic(code, why.message, why.span.caller, "in this call", (Label(why.span, "it stops here"),), why.notes)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _color() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
