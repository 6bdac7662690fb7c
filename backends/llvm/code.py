"""Structured code as text: LLVM instructions in nested scopes, with common subexpressions shared and invariants hoisted.

A pure instruction is printed once a scope and as far out of loops as its operands allow. Both are decided from the text
alone: the names in it say how deep its operands lie, and an equal text in an enclosing scope is the same value.
So the printed code needs no passes of LLVM's own for this. Loads and stores stay where they are put.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field

from tlc.frontend.records import dataclass

Piece = str | list["Piece"]  # a list is a place that is filled later

_NAME = re.compile(r"%[\w.]+")


@dataclass(eq=False)
class Scope:
    """`hoist` is the place before the loop that this scope is the body of; None for the arm of a branch. `texts` are the instructions whose
    values are known in it and not further out.
    """

    hoist: list[Piece] | None = None
    texts: list[str] = field(default_factory=list)


class Code:
    """The body of one function, being printed."""

    def __init__(self) -> None:
        self.top: list[Piece] = []  # allocas
        self.lines: list[Piece] = [self.top]
        self.scopes = [Scope()]
        self.known: dict[str, str] = {}  # of all scopes: the text of an instruction -> its value
        self.depth: dict[str, int] = {}  # name -> index of the scope in which it is defined; parameters are not in it (0)
        self.block = "entry"
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def ins(self, text: str) -> str:
        """The value of a pure instruction."""
        found = self.known.get(text)
        if found is not None:
            return found
        depth = self.depth
        deepest = max([depth.get(n, 0) for n in _NAME.findall(text)], default=0)
        place, level = self.lines, len(self.scopes) - 1
        for k in range(deepest + 1, len(self.scopes)):
            hoist = self.scopes[k].hoist
            if hoist is not None:
                place, level = hoist, k - 1
                break
        name = self.name()
        place.append(f"  {name} = {text}")
        self.known[text] = name
        self.scopes[level].texts.append(text)
        self.depth[name] = level
        return name

    def here(self, text: str) -> str:
        """The value of an instruction that must stay in place."""
        name = self.name()
        self.put(f"{name} = {text}")
        self.depth[name] = len(self.scopes) - 1
        return name

    def shared(self, text: str) -> str:
        """The value of an instruction that gives the same wherever it stands but may not move out: a load of what nobody writes."""
        found = self.known.get(text)
        if found is None:
            found = self.known[text] = self.here(text)
            self.scopes[-1].texts.append(text)
        return found

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def alloca(self, type: str) -> str:
        name = self.name()
        self.top.append(f"  {name} = alloca {type}, align 64")
        return name

    @contextmanager
    def scope(self, hoist: list[Piece] | None = None) -> Iterator[None]:
        self.scopes.append(Scope(hoist))
        yield
        self.leave()

    def leave(self) -> None:
        """Forget what is known in the innermost scope alone."""
        for text in self.scopes.pop().texts:
            del self.known[text]

    def loop(self, start: str, stop: str, step: int, runs: bool, body: Callable[[str], None]) -> None:
        """`for i in start..stop by step` of i64; `runs`: it is known to run at least once."""
        head, after = self.label("loop"), self.label("after")
        hoist: list[Piece] = []
        self.lines.append(hoist)
        if runs:
            self.put(f"br label %{head}")
        else:
            self.put(f"br i1 {self.here(f'icmp slt i64 {start}, {stop}')}, label %{head}, label %{after}")
        before = self.block
        with self.scope(hoist):
            self.start(head)
            phi: list[Piece] = []
            self.lines.append(phi)
            i = self.name()
            self.depth[i] = len(self.scopes) - 1
            body(i)
            following = self.here(f"add i64 {i}, {step}")
            more = self.here(f"icmp slt i64 {following}, {stop}")
            self.put(f"br i1 {more}, label %{head}, label %{after}")
            phi.append(f"  {i} = phi i64 [{start}, %{before}], [{following}, %{self.block}]")
        self.start(after)

    def branch(self, cond: str, then: Callable[[], None], other: Callable[[], None] | None = None) -> None:
        yes, after = self.label("then"), self.label("after")
        no = self.label("else") if other else after
        self.put(f"br i1 {cond}, label %{yes}, label %{no}")
        for label, arm in ((yes, then), (no, other)):
            if arm is not None:
                self.start(label)
                with self.scope():
                    arm()
                    self.put(f"br label %{after}")
        self.start(after)

    def mark(self) -> tuple[int, str]:
        """Where the text stands now, to come back to with `rewind`."""
        return len(self.lines), self.block

    def rewind(self, mark: tuple[int, str], scopes: int) -> None:
        """Forget what was printed in place since `mark`. What was hoisted meanwhile stays: it is pure and harmless."""
        del self.lines[mark[0] :]
        self.block = mark[1]
        while len(self.scopes) > scopes:
            self.leave()
        kept = set(_flat_names(self.lines))
        for scope in self.scopes:
            scope.texts = [t for t in scope.texts if self.known[t] in kept]
        self.known = {t: self.known[t] for scope in self.scopes for t in scope.texts}

    def text(self) -> str:
        return "\n".join(_flatten(self.lines))


def _flatten(pieces: list[Piece]) -> Iterator[str]:
    for p in pieces:
        if isinstance(p, str):
            yield p
        else:
            yield from _flatten(p)


def _flat_names(pieces: list[Piece]) -> Iterator[str]:
    """Names that are defined in the text."""
    for line in _flatten(pieces):
        head, equals, _ = line.partition(" = ")
        if equals:
            yield head.strip()
