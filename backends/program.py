"""A program on its way to running: machine code, with the tables that its numbers refer to.

All is plain data, so that an executable can be kept on disk; and importing it costs little, for a warm start needs no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.ssa.ir import Type

if TYPE_CHECKING:
    from tlc.ssa.recipe import Recipe

ENTRY = "tlc.main"  # i32 tlc.main(ptr context)


@dataclass(frozen=True)
class Site:
    """A place where a run can stop: the check's kind and message, the types of the message's values, and where it stands."""

    kind: str
    message: str
    values: tuple[Elem, ...]
    span: Span


@dataclass(frozen=True)
class Extern:
    """A call of a service by name; or, with a recipe, what a `trap` does."""

    name: str
    args: tuple[Type, ...]
    results: tuple[Type, ...]
    span: Span
    recipe: Recipe | None = None


@dataclass(frozen=True)
class Foreign:
    """A function of the C library as a program declares it.

    Native code calls it by `name`, which says the declaration too: so two declarations of one function do not clash, and LLVM does
    not take it for a function that it knows better.
    """

    symbol: str
    params: tuple[Elem, ...]
    result: Elem | None

    @property
    def name(self) -> str:
        return ".".join(("c", self.symbol, str(self.result or "unit"), *map(str, self.params)))


@dataclass(frozen=True)
class Template:
    """A `format` instruction: its template and the types of its leaves."""

    template: tuple[object, ...]
    leaves: tuple[Type, ...]


@dataclass
class Tables:
    """What native code cannot carry with it: it knows each row by its number, a foreign function by its name."""

    sites: list[Site] = field(default_factory=list)
    externs: list[Extern] = field(default_factory=list)
    foreign: dict[Foreign, None] = field(default_factory=dict)
    templates: list[Template] = field(default_factory=list)
    strings: dict[str, int] = field(default_factory=dict)  # literal -> handle

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))


class Device(Protocol):
    """What runs kernels in place of the CPU, for one program, in the order in which they are started."""

    table: int  # the address of how kernels are started without `launch`, 0 if they never are

    def enter(self) -> None:
        """Called first on each thread that is to run the program."""
        ...

    def launch(self, address: int) -> None:
        """Start a kernel, given its name and arguments in slots (`backends/llvm/launch.py`)."""
        ...

    def mark(self) -> None:
        """A turn of a loop ends that starts many kernels."""
        ...

    def wait(self) -> None:
        """Return when all kernels have ended. Raises `Stop` if one failed."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What is to be said beside when the program ends for want of memory."""
        ...

    def allocate(self, size: int) -> int | None:
        """The address of memory that host and device see, a multiple of 64; None if there is none."""
        ...

    def release(self, address: int) -> None: ...

    def read(self, places: Sequence[tuple[int, int]]) -> Sequence[bytes | memoryview]:
        """What is in that memory at addresses, so many bytes of each, when what was started is done."""
        ...

    def write(self, address: int, data: memoryview) -> None:
        """Put bytes there, behind what was started."""
        ...


@dataclass(frozen=True)
class Executable:
    """A program as object files, which refer to each other; each under a key that says what it was made from. `host` is the backend
    that made the code of its functions, and whose loader links it. `device` runs its kernels, where that is no CPU.
    """

    objects: Mapping[str, bytes]
    tables: Tables
    host: str = "llvm"
    device: Device | None = None


class Store(Protocol):
    """Where objects are kept: a dictionary, or the driver's cache on disk. The key says what an object was made of and for."""

    def get(self, key: str, /) -> bytes | None: ...

    def __setitem__(self, key: str, data: bytes, /) -> None: ...


class Watcher(Protocol):
    """Who wants to know how long a backend's steps take, and its figures."""

    def stage(self, name: str) -> AbstractContextManager[None]: ...

    def note(self, function: str, figures: Mapping[str, int]) -> None: ...


class Nobody:
    def stage(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def note(self, function: str, figures: Mapping[str, int]) -> None:
        pass
