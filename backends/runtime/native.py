"""Runs a compiled program: makes its context, gives it the services, waits, and says how it ended.

`main` runs on a thread of its own, with a large stack for deep recursion, while this thread waits; so Ctrl-C is seen at once: it
sets the stop flag, which native loops look at, and the run ends between two steps. A service that fails keeps its exception here
and makes native code return; the exception goes on in the thread that called `Native.run`.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from tlc.backends.context import FIELDS, SERVICES, Reason
from tlc.backends.program import ENTRY, Executable, Extern, Foreign
from tlc.backends.runtime.stop import RuntimeStop
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.ssa import formatting
from tlc.ssa.ir import Type
from tlc.ssa.world import Services, Stop

STACK = 256 << 20  # bytes of the stack that native code runs on
MARGIN = 1 << 20  # of it, what services and kernels may need below the deepest frame
PATIENCE = 0.05  # seconds between looks for Ctrl-C

_CTYPES = {32: ctypes.c_int32, 64: ctypes.c_int64}


class Context(ctypes.Structure):
    """The native context, from the rows of `backends/context.py`."""

    _fields_ = [(f.name, _CTYPES[f.bits] * f.count if f.count > 1 else _CTYPES[f.bits]) for f in FIELDS]


_Service = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_Main = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_Alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_Void = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Native:
    """One program, loaded. `calls` counts calls into Python by service, `context` keeps the run's figures. Kernels share their
    work among `threads` threads; what they compute does not depend on it.
    """

    def __init__(self, executable: Executable, services: Services, threads: int = 1) -> None:
        self.tables, self.services = executable.tables, services
        self.loaded = _loaded(executable)
        self.context = Context(threads=threads)
        self.calls: Counter[str] = Counter()
        self.strings = list(self.tables.strings)
        self.handles = dict(self.tables.strings)
        self.failure: BaseException | None = None
        self.callbacks = [_Service(self.guarded(name, getattr(self, name))) for name in SERVICES]
        for k, function in enumerate(self.callbacks):
            self.context.services[k] = ctypes.cast(function, ctypes.c_void_p).value

    def run(self) -> None:
        """Run `main`. Raises `Stop` where the program stops itself, what a service raised, or `KeyboardInterrupt`."""
        self.context.stack_bytes = STACK - MARGIN
        main = _Main(self.loaded.address(ENTRY))
        status: list[int] = []
        finished = threading.Event()

        def body() -> None:
            try:
                status.append(main(ctypes.addressof(self.context)))
                if self.context.workers:
                    _Void(self.loaded.address("tlc.disband"))(ctypes.addressof(self.context))
            finally:
                finished.set()

        thread = _thread(body)
        try:
            while not finished.wait(PATIENCE):
                pass
        except KeyboardInterrupt:
            while not finished.is_set():
                self.interrupt()
                finished.wait(PATIENCE)
            thread.join()
            raise
        thread.join()
        if status[0]:
            self.raise_reason()

    def interrupt(self) -> None:
        """Ask native code to stop: its loops look at the flag, its recursive functions at the limit of the stack. (A run that has only just
        begun sets that limit itself, so ask until it has ended.)
        """
        self.context.stop = 1
        self.context.stack_limit = (1 << 63) - 1

    def close(self) -> None:
        """Give back the memory that waits to be used again: for a process that goes on. What an early end left in use is lost."""
        if self.context.mallocs:
            _Void(self.loaded.address("tlc.trim"))(ctypes.addressof(self.context))

    def raise_reason(self) -> None:
        """Say in Python why native code returned early."""
        reason = Reason(self.context.reason)
        if reason is Reason.STOPPED:
            raise KeyboardInterrupt
        if reason is Reason.CHECK:
            site = self.tables.sites[self.context.site]
            values = [self.scalar(self.context.values[k], elem) for k, elem in enumerate(site.values)]
            raise Stop(formatting.fill(site.message, values), site.span, site.kind)
        if self.failure is not None:
            raise self.failure
        raise InternalError("native code returned early without a reason", "native run")

    # ------------------------------------------------------------ services

    def guarded(self, name: str, service: Callable[[Any], None]) -> Callable[[int], int]:
        """A service as C calls it: nothing is raised through native frames."""

        def call(address: int) -> int:
            self.calls[name] += 1
            try:
                service(_Slots(address))
                return 0
            except BaseException as e:
                self.failure = e
                self.context.reason = int(Reason.SERVICE)
                return 1

        return call

    def print(self, slots: _Slots) -> None:
        self.services.print(self.strings[slots.take()])

    def format(self, slots: _Slots) -> None:
        template = self.tables.templates[slots.take()]
        leaves = [formatting.marked(self.value(slots, t), t.elem) for t in template.leaves]
        slots.put(self.handle(formatting.render(template.template, leaves)))

    def extern(self, slots: _Slots) -> None:
        row = self.tables.externs[slots.take()]
        args = [self.value(slots, t) for t in row.args]
        try:
            results = self.services.extern(row.name, args)
        except RuntimeStop as e:
            raise Stop(e.message, row.span, "extern") from None
        for result, type in zip(results, row.results, strict=True):
            self.give(slots, result, type, row)

    def progress_begin(self, slots: _Slots) -> None:
        label, total = self.strings[slots.take()], slots.take()
        slots.put(self.services.progress_begin(label, total))

    def progress_tick(self, slots: _Slots) -> None:
        bar, at = slots.take(), slots.take()
        self.services.progress_tick(bar, at)

    def progress_end(self, slots: _Slots) -> None:
        self.services.progress_end(slots.take())

    # ------------------------------------------------------------ values

    def handle(self, text: str) -> int:
        """The number of a string; equal strings have one."""
        if text not in self.handles:
            self.handles[text] = len(self.strings)
            self.strings.append(text)
        return self.handles[text]

    def scalar(self, word: int, elem: Elem) -> Any:
        """A scalar of its element type from a 64-bit word."""
        if elem is Elem.STR:
            return self.strings[word]
        return _from_memory(struct.pack("<q", word)[: elem.bytes], elem)[0]

    def value(self, slots: _Slots, type: Type) -> Any:
        """A scalar, or a tensor copied out of native memory."""
        if not type.rank:
            return self.scalar(slots.take(), type.elem)
        address = slots.take()
        shape = tuple(slots.take() for _ in range(type.rank))
        size = int(np.prod(shape, dtype=np.int64))
        array = _from_memory(ctypes.string_at(address, size * type.elem.bytes), type.elem).reshape(shape)
        if type.elem is Elem.STR:
            return np.array([self.strings[h] for h in array.ravel()], object).reshape(shape)
        return array

    def give(self, slots: _Slots, value: Any, type: Type, row: Extern) -> None:
        """Write a result into the slots; a tensor moves into a buffer of native code."""
        if type.elem is Elem.STR:
            value = np.vectorize(self.handle, otypes=[np.int64])(value) if type.rank else self.handle(value)
        array = to_memory(value) if type.elem is Elem.BF16 else np.ascontiguousarray(value, _stored(type.elem))
        if not type.rank:
            slots.put(int.from_bytes(array.tobytes().ljust(8, b"\0"), "little", signed=True))
            return
        if array.ndim != type.rank:
            raise InternalError(f"`{row.name}` gave a tensor of rank {array.ndim}, declared is {type}", "extern")
        alloc = _Alloc(self.loaded.address("tlc.alloc"))
        address = alloc(ctypes.addressof(self.context), array.nbytes)
        if address is None:
            raise Stop(f"there is no memory for a tensor of {array.nbytes} bytes", row.span, "memory")
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        slots.put(address)
        for extent in array.shape:
            slots.put(extent)


class _Loaded(Protocol):
    def address(self, name: str) -> int:
        """Where a function begins."""
        ...


def _loaded(executable: Executable) -> _Loaded:
    """The objects in memory, by the loader of the backend that made them; only that one is imported."""
    load: Callable[[Iterable[bytes], Iterable[Foreign]], _Loaded]
    if executable.host == "x86":
        from tlc.backends.x86.load import load
    else:
        from tlc.backends.llvm.jit import load
    return load(executable.objects.values(), executable.tables.foreign)


class _Slots:
    """The 64-bit slots of a call of a service, read and written in order."""

    def __init__(self, address: int) -> None:
        self.address = address

    def take(self) -> int:
        value = ctypes.c_int64.from_address(self.address).value
        self.address += 8
        return value

    def put(self, value: int) -> None:
        ctypes.c_int64.from_address(self.address).value = value
        self.address += 8


def _stored(elem: Elem) -> np.dtype[Any]:
    """How a value lies in native memory; a string is its handle there."""
    match elem:
        case Elem.STR:
            return np.dtype(np.int64)
        case Elem.BF16:
            return np.dtype(np.uint16)
        case _:
            return DTYPES[elem]


def _from_memory(data: bytes, elem: Elem) -> Any:
    array = np.frombuffer(data, _stored(elem))
    return from_memory(array) if elem is Elem.BF16 else array


def _thread(body: Callable[[], None]) -> threading.Thread:
    """Start a thread with the large stack."""
    before = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=body, name="tl-main", daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    return thread
