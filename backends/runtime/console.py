"""Standard input, line by line, in a way that Ctrl-C ends.

Python reads ahead and then waits where no flag is looked at; so this waits in short pieces and keeps what it read too much.
"""

from __future__ import annotations

import os
import select
from typing import Protocol

from tlc.backends.runtime.files import failing

INPUT = 0  # the file descriptor of standard input
PATIENCE = 0.05  # seconds between looks for Ctrl-C
CHUNK = 1 << 16


class World(Protocol):
    """What services know of the world. `rest` is what was read of standard input and is not asked for yet."""

    rest: bytes
    stopping: bool

    def put(self, text: str) -> None:
        """Write to standard output."""
        ...

    def flush(self) -> None:
        """Have what is written seen."""
        ...


def put(world: World, text: str) -> None:
    """Write a text as it is."""
    world.put(text)


def read_line(world: World, prompt: str) -> tuple[str, bool]:
    """`io.read_line(prompt)`: the next line of standard input without its end, and whether there was one."""
    world.put(prompt)
    world.flush()
    ended = False
    with failing("read", "standard input"):
        while b"\n" not in world.rest and not ended:
            while not select.select([INPUT], [], [], PATIENCE)[0]:
                if world.stopping:
                    raise KeyboardInterrupt
            piece = os.read(INPUT, CHUNK)
            world.rest += piece
            ended = not piece
    found = bool(world.rest)
    line, _, world.rest = world.rest.partition(b"\n")
    return line.removesuffix(b"\r").decode(errors="replace"), found
