"""Runs a compiled program: makes its context, gives it the services, waits, and says how it ended.

`main` runs on a thread of its own, with a large stack for deep recursion, while this thread waits; so Ctrl-C is seen at once: it
sets the stop flag, which native loops look at, and the run ends between two steps. A service that fails keeps its exception here
and makes native code return; the exception goes on in the thread that called `Native.run`.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tlc.backends.context import FIELDS, SERVICES, Reason
from tlc.backends.program import ENTRY, Device, Executable, Extern, Foreign, Tables
from tlc.backends.runtime.served import Memory, Served, Slots
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import NOWHERE
from tlc.ssa.world import LOAD, MARK, WAIT, RuntimeStop, Services, Stop

STACK = 256 << 20  # bytes of the stack that native code runs on
MARGIN = 1 << 20  # of it, what services and kernels may need below the deepest frame
RESERVE = 64 << 20  # bytes of addresses kept back, so that an end without memory can still be told
PATIENCE = 0.05  # seconds between looks for Ctrl-C

_CTYPES = {32: ctypes.c_int32, 64: ctypes.c_int64}


class Context(ctypes.Structure):
    """The native context, from the rows of `backends/context.py`."""

    _fields_ = [(f.name, _CTYPES[f.bits] * f.count if f.count > 1 else _CTYPES[f.bits]) for f in FIELDS]


_Service = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_Main = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_Alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
_Void = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Native:
    """One program, loaded. `calls` counts calls into Python by service, `context` keeps the run's figures. Kernels share their
    work among `threads` threads; what they compute does not depend on it.
    """

    def __init__(self, executable: Executable, services: Services, threads: int = 1, entry: str = ENTRY) -> None:
        self.entry = entry
        self.services = services
        self.loaded = _loaded(executable)
        self.context = Context(threads=threads)
        self.calls: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self.device = executable.device
        if self.device is None:
            self.served = Served(executable.tables, services, _Process(self))
        else:
            self.served = _Waiting(executable.tables, services, _Shared(self, self.device), self.device)
        self.callbacks: list[Any] = [_Service(self.guarded(name, getattr(self.served, name))) for name in SERVICES]
        for k, function in enumerate(self.callbacks):
            self.context.services[k] = ctypes.cast(function, ctypes.c_void_p).value
        if self.device is not None:
            self.use(self.device)

    def use(self, device: Device) -> None:
        """Kernels run there, and buffers lie where it sees them."""

        def allocate(size: int) -> int | None:
            try:
                return device.allocate(size)
            except (Stop, RuntimeStop) as e:
                self.failure = e
                return None

        functions = {
            "launch": _Service(self.guarded("launch", lambda slots: device.launch(slots.address))),
            "wait": _Service(self.guarded("wait", lambda _: device.wait())),
            "allocate": _Allocate(allocate),
            "release": _Void(device.release),
        }
        self.context.table = device.table
        self.callbacks += functions.values()
        for name, function in functions.items():
            setattr(self.context, name, ctypes.cast(function, ctypes.c_void_p).value)

    def run(self) -> None:
        """Run `main`. Raises `Stop` where the program stops itself, what a service raised, or `KeyboardInterrupt`."""
        self.failure = None
        self.context.stack_bytes = STACK - MARGIN
        main = _Main(self.loaded.address(self.entry))
        status: list[int] = []
        finished = threading.Event()
        reserve = mmap.mmap(-1, RESERVE)

        def body() -> None:
            try:
                if not self.enter():
                    status.append(1)
                    return
                status.append(main(ctypes.addressof(self.context)))
                if self.context.workers:
                    _Void(self.loaded.address("tlc.disband"))(ctypes.addressof(self.context))
            finally:
                finished.set()

        thread = threading.Thread(target=body, name="tl-main", daemon=True)
        try:
            _start(thread)
            while not finished.wait(PATIENCE):
                pass
        except KeyboardInterrupt:  # it may come while the thread is being started
            while not finished.wait(PATIENCE) and thread.ident is not None:
                self.interrupt()
            raise
        thread.join()
        reserve.close()
        if status[0]:
            self.raise_reason()
        if self.device is not None:
            self.device.wait()

    def enter(self) -> bool:
        """Tell the device of this thread; gives whether it is well."""
        try:
            if self.device is not None:
                self.device.enter()
        except (Stop, RuntimeStop) as e:
            self.failure = e
        return self.failure is None

    def interrupt(self) -> None:
        """Ask native code to stop: its loops look at the flag, its recursive functions at the limit of the stack, and a service that waits
        for input at `stopping`. (A run that has only just begun sets that limit itself, so ask until it has ended.)
        """
        self.services.stopping = True
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
        if reason is Reason.CHECK and self.failure is None:
            stop = self.served.stop(self.context.site, list(self.context.values))
            if stop.kind == "memory" and self.device is not None:
                stop.notes += self.device.notes()
            raise stop
        if isinstance(self.failure, MemoryError):
            self.served.forget()
            raise Stop("there is no memory left for the strings that the program makes", NOWHERE, "memory")
        if self.failure is not None:
            raise self.failure
        raise InternalError("native code returned early without a reason", "native run")

    # ------------------------------------------------------------ services

    def guarded(self, name: str, service: Callable[[Slots], None]) -> Callable[[int], int]:
        """A service as C calls it: nothing is raised through native frames."""

        def call(address: int) -> int:
            self.calls[name] += 1
            try:
                service(Slots(self.served.memory, address))
                return 0
            except BaseException as e:
                self.failure = e
                self.context.reason = int(Reason.SERVICE)
                return 1

        return call


class _Waiting(Served):
    """The services of a program whose kernels run beside it: what is outside sees all that was done before."""

    def __init__(self, tables: Tables, services: Services, memory: Memory, device: Device) -> None:
        super().__init__(tables, services, memory)
        self.device = device

    def format(self, slots: Slots) -> None:
        if any(t.rank for t in self.tables.templates[self.memory.word(slots.address)].leaves):
            self.device.wait()
        super().format(slots)

    def extern(self, slots: Slots) -> None:
        row = self.tables.externs[self.memory.word(slots.address)]
        if row.name == MARK:
            self.device.mark()
        elif row.name == LOAD:
            slots.take()
            self.load(slots, row)
        else:
            self.device.wait()
            if row.name != WAIT:
                super().extern(slots)

    def load(self, slots: Slots, row: Extern) -> None:
        """Single elements: nothing else of the tensors moves."""
        places = []
        for tensor, result in zip(row.args[::2], row.results, strict=True):
            address, *_, place = (slots.take() for _ in range(2 + tensor.rank))  # extents are between
            places.append((address + place * result.elem.bytes, result.elem.bytes))
        for cell in self.device.read(places):
            slots.put(int.from_bytes(bytes(cell).ljust(8, b"\0"), "little", signed=True))


class _Process:
    """The memory of this process, with buffers as the program's own allocator makes them."""

    def __init__(self, program: Native) -> None:
        self.program = program

    def read(self, address: int, size: int) -> memoryview:
        return memoryview((ctypes.c_ubyte * size).from_address(address)).toreadonly() if size else memoryview(b"")

    def word(self, address: int) -> int:
        return ctypes.c_int64.from_address(address).value

    def set_word(self, address: int, value: int) -> None:
        ctypes.c_int64.from_address(address).value = value

    def buffer(self, data: memoryview) -> int | None:
        alloc = _Alloc(self.program.loaded.address("tlc.alloc"))
        address: int | None = alloc(ctypes.addressof(self.program.context), len(data))
        if address is not None and len(data):
            self.fill(address, data)
        return address

    def fill(self, address: int, data: memoryview) -> None:
        memoryview((ctypes.c_ubyte * len(data)).from_address(address)).cast("B")[:] = data


class _Shared(_Process):
    """The same where buffers are a device's: it copies what is read and written, so that the rest stays where it is."""

    def __init__(self, program: Native, device: Device) -> None:
        super().__init__(program)
        self.device = device

    def read(self, address: int, size: int) -> memoryview:
        return memoryview(self.device.read([(address, size)])[0]) if size else memoryview(b"")

    def fill(self, address: int, data: memoryview) -> None:
        self.device.write(address, data)


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


def _start(thread: threading.Thread) -> None:
    """Start a thread with the large stack."""
    before = threading.stack_size(STACK)
    try:
        thread.start()
    finally:
        threading.stack_size(before)
