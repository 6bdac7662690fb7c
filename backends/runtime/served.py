"""What the services of a running program do, whoever runs its code: they take numbers from slots, ask the world, and put numbers back.

Code of the program knows strings by handles, templates and calls by the rows of its tables, tensors by an address and extents. Who runs
the code gives the memory that the addresses mean: native code that of the process (`native.py`), the interpreter of machine IR
its own.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

import numpy as np

from tlc.backends.program import Extern, Tables
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.ssa import formatting
from tlc.ssa.ir import Type
from tlc.ssa.world import RuntimeStop, Services, Stop


class Memory(Protocol):
    """Where the program's tensors and slots lie."""

    def read(self, address: int, size: int) -> bytes | memoryview:
        """So many bytes; a view of them holds until the service returns."""
        ...

    def word(self, address: int) -> int:
        """8 bytes as a signed number."""
        ...

    def set_word(self, address: int, value: int) -> None: ...

    def buffer(self, data: memoryview) -> int | None:
        """The address of a new buffer of the program with this content; None if there is no memory."""
        ...


class Slots:
    """The 64-bit slots of a call of a service, read and written in order."""

    def __init__(self, memory: Memory, address: int) -> None:
        self.memory, self.address = memory, address

    def take(self) -> int:
        value = self.memory.word(self.address)
        self.address += 8
        return value

    def put(self, value: int) -> None:
        self.memory.set_word(self.address, value)
        self.address += 8


class Served:
    """The services of one run; a method for each name of `SERVICES`. `strings` grows as the program makes strings."""

    def __init__(self, tables: Tables, services: Services, memory: Memory) -> None:
        self.tables, self.services, self.memory = tables, services, memory
        self.strings = list(tables.strings)
        self.handles = dict(tables.strings)

    def print(self, slots: Slots) -> None:
        self.services.print(self.strings[slots.take()])

    def format(self, slots: Slots) -> None:
        template = self.tables.templates[slots.take()]
        leaves = [formatting.marked(self.value(slots, t), t.elem) for t in template.leaves]
        slots.put(self.handle(formatting.render(template.template, leaves)))

    def extern(self, slots: Slots) -> None:
        row = self.tables.externs[slots.take()]
        args = [self.value(slots, t) for t in row.args]
        if row.recipe is not None:
            return row.recipe.run(args, self.services)
        try:
            for result, type in zip(self.services.extern(row.name, args), row.results, strict=True):
                self.give(slots, result, type, row)
        except RuntimeStop as e:
            raise e.at(row.span) from None
        except MemoryError:
            raise Stop(f"there is no memory left for what `{row.name}` makes", row.span, "memory") from None

    def progress_begin(self, slots: Slots) -> None:
        label, total = self.strings[slots.take()], slots.take()
        slots.put(self.services.progress_begin(label, total))

    def progress_tick(self, slots: Slots) -> None:
        bar, at = slots.take(), slots.take()
        self.services.progress_tick(bar, at)

    def progress_note(self, slots: Slots) -> None:
        bar, at, text = slots.take(), slots.take(), slots.take()
        self.services.progress_note(bar, at, self.strings[text])

    def progress_end(self, slots: Slots) -> None:
        self.services.progress_end(slots.take())

    # ------------------------------------------------------------ values

    def handle(self, text: str) -> int:
        """The number of a string; equal strings have one."""
        if text not in self.handles:
            self.handles[text] = len(self.strings)
            self.strings.append(text)
        return self.handles[text]

    def forget(self) -> None:
        """Give back what the strings take."""
        self.strings.clear()
        self.handles.clear()

    def scalar(self, word: int, elem: Elem) -> Any:
        """A scalar of its element type from a 64-bit word."""
        if elem is Elem.STR:
            return self.strings[word]
        return _array(struct.pack("<q", word)[: elem.bytes], elem)[0]

    def value(self, slots: Slots, type: Type) -> Any:
        """A scalar, or a tensor as it lies in the program's memory: who keeps it must copy it."""
        if not type.rank:
            return self.scalar(slots.take(), type.elem)
        address = slots.take()
        shape = tuple(slots.take() for _ in range(type.rank))
        size = int(np.prod(shape, dtype=np.int64))
        array = _array(self.memory.read(address, size * type.elem.bytes), type.elem).reshape(shape)
        if type.elem is Elem.STR:
            return np.array([self.strings[h] for h in array.ravel()], object).reshape(shape)
        return array

    def give(self, slots: Slots, value: Any, type: Type, row: Extern) -> None:
        """Write a result into the slots; a tensor moves into a buffer of the program."""
        if type.elem is Elem.STR:
            value = np.vectorize(self.handle, otypes=[np.int64])(value) if type.rank else self.handle(value)
        array = to_memory(value) if type.elem is Elem.BF16 else np.ascontiguousarray(value, stored(type.elem))
        if not type.rank:
            slots.put(int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True))
            return
        if array.ndim != type.rank:
            raise InternalError(f"`{row.name}` gave a tensor of rank {array.ndim}, declared is {type}", "extern")
        address = self.memory.buffer(array.reshape(-1).view(np.uint8).data)
        if address is None:
            raise Stop(f"there is no memory for a tensor of {array.nbytes} bytes", row.span, "memory")
        slots.put(address)
        for extent in array.shape:
            slots.put(extent)

    def stop(self, site: int, values: list[int]) -> Stop:
        """Why a check failed: its site, and the words of its values."""
        row = self.tables.sites[site]
        shown = [self.scalar(word, elem) for word, elem in zip(values, row.values, strict=False)]
        return Stop(formatting.fill(row.message, shown), row.span, row.kind)


def stored(elem: Elem) -> np.dtype[Any]:
    """How a value lies in native memory; a string is its handle there."""
    match elem:
        case Elem.STR:
            return np.dtype(np.int64)
        case Elem.BF16:
            return np.dtype(np.uint16)
        case _:
            return DTYPES[elem]


def _array(data: bytes | memoryview, elem: Elem) -> Any:
    array = np.frombuffer(data, stored(elem))
    return from_memory(array) if elem is Elem.BF16 else array
