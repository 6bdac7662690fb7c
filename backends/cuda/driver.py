"""The driver library of NVIDIA's GPUs, by ctypes: the first GPU, a stream of work on it, memory, and functions out of PTX.

Nothing else of CUDA is needed to run what was compiled. All that is started on the stream is done in order, beside the host, which
waits with `wait`; a kernel that fails is known only then, or when something else is started.

The machine code that the driver makes of PTX is kept on disk, by the text, the architecture and the driver's version.
"""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path
from typing import Any

from tlc.frontend import disk_cache
from tlc.ssa.world import RuntimeStop

LIBRARY = "libcuda.so.1"
LEAST_CAPABILITY = 80

OUT_OF_MEMORY = 2
_MAJOR, _MINOR, _MANAGED, _CONCURRENT = 75, 76, 83, 89  # numbers of device attributes
_GLOBAL = 1  # managed memory that every device sees
_NON_BLOCKING = 1  # a stream that does not wait for the default one
_PREFERRED = 3  # advice: where pages live
_CPU = -1
_PTX = 1  # a kind of the linker's input
_LOG, _LOG_BYTES = 5, 6  # options of the linker
_LOG_ROOM = 8192
_DYNAMIC_SHARED = 8  # number of a function's attribute


class Driver:
    """The context of the first GPU. `sm` is its architecture, `memory` the bytes that it has free at first; `concurrent`: the host may
    touch managed memory while kernels run. Raises `RuntimeStop` where there is no GPU that will do.
    """

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise RuntimeStop(f"the driver for NVIDIA's GPUs is not installed: there is no `{LIBRARY}`", "device") from None
        status = self.library.cuInit(0)
        count = ctypes.c_int()
        if status or self.library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
            raise RuntimeStop(f"there is no GPU{f': {self.reason(status)}' if status else ''}", "device")
        self.device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(self.device), 0)
        self.sm = 10 * self.attribute(_MAJOR) + self.attribute(_MINOR)
        if self.sm < LEAST_CAPABILITY or not self.attribute(_MANAGED):
            why = f"sm_{self.sm}" if self.sm < LEAST_CAPABILITY else "without managed memory"
            raise RuntimeStop(f"the GPU is too old: {why}, and kernels need sm_{LEAST_CAPABILITY} and managed memory", "device")
        self.concurrent = bool(self.attribute(_CONCURRENT))
        version = ctypes.c_int()
        self.check("cuDriverGetVersion", ctypes.byref(version))
        self.version = version.value
        self.context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.check("cuCtxSetCurrent", self.context)
        self.stream = ctypes.c_void_p()
        self.check("cuStreamCreate", ctypes.byref(self.stream), _NON_BLOCKING)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self.memory = free.value

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.check("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value

    def check(self, name: str, *args: Any) -> None:
        """Call a function of the driver. Raises `RuntimeStop` if it fails."""
        status = getattr(self.library, name)(*args)
        if status:
            raise RuntimeStop(f"`{name}` failed: {self.reason(status)}", "device")

    def reason(self, status: int) -> str:
        """What the driver says of a status."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.library.cuGetErrorName(status, ctypes.byref(name))
        self.library.cuGetErrorString(status, ctypes.byref(text))
        return f"{(text.value or b'unknown error').decode()} ({(name.value or str(status).encode()).decode()})"

    def enter(self) -> int:
        """Make the context that of the thread that calls; gives the status, which may be that of a kernel."""
        status: int = self.library.cuCtxSetCurrent(self.context)
        return status

    # ------------------------------------------------------------ memory

    def allocate(self, size: int) -> tuple[int, int]:
        """The address of managed memory, and the status."""
        address = ctypes.c_uint64()
        status: int = self.library.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(size), _GLOBAL)
        return address.value, status

    def settle(self, address: int, size: int, on_gpu: bool) -> None:
        """Say where pages of managed memory live, whoever touches them. That is advice: a driver that does not take it is no failure."""
        home = self.device if on_gpu else ctypes.c_int(_CPU)
        self.library.cuMemAdvise(ctypes.c_uint64(address), ctypes.c_size_t(size), _PREFERRED, home)

    def release(self, address: int) -> None:
        """Give memory back. That of a context in which a kernel failed is gone already."""
        self.library.cuMemFree_v2(ctypes.c_uint64(address))

    def copy(self, to: int, source: int, size: int) -> int:
        """Copy managed memory, on the stream; gives the status."""
        status: int = self.library.cuMemcpyAsync(ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), self.stream)
        return status

    def wait(self) -> int:
        """Wait until all is done that was started; gives the status."""
        status: int = self.library.cuStreamSynchronize(self.stream)
        return status

    # ------------------------------------------------------------ functions

    def function(self, code: str, name: str, dynamic: int = 0) -> ctypes.c_void_p:
        """A function out of PTX, which may ask for so many bytes of shared memory at each launch."""
        path = self._kept(code)
        binary = disk_cache.read(path)
        module = ctypes.c_void_p()
        if binary is None or self.library.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(binary)):
            binary = self._assemble(code, name)
            disk_cache.write(path, binary)
            self.check("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
        function = ctypes.c_void_p()
        self.check("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        if dynamic:
            self.check("cuFuncSetAttribute", function, _DYNAMIC_SHARED, dynamic)
        return function

    def _kept(self, code: str) -> Path:
        """Where the machine code of a text of PTX is kept."""
        key = f"{self.version} {self.sm} {code}"
        return disk_cache.folder() / "cubin" / hashlib.sha256(key.encode()).hexdigest()

    def _assemble(self, code: str, name: str) -> bytes:
        """The machine code of a text of PTX. Raises `RuntimeStop` with what the driver's assembler says."""
        log = ctypes.create_string_buffer(_LOG_ROOM)
        options = (ctypes.c_int * 2)(_LOG, _LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_ROOM)
        state, binary, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        self.check("cuLinkCreate_v2", 2, options, values, ctypes.byref(state))
        try:
            text = code.encode() + b"\0"
            added = (ctypes.c_char_p(text), ctypes.c_size_t(len(text)), ctypes.c_char_p(name.encode()), 0, None, None)
            status = self.library.cuLinkAddData_v2(state, _PTX, *added)
            status = status or self.library.cuLinkComplete(state, ctypes.byref(binary), ctypes.byref(size))
            if status:
                said = log.value.decode(errors="replace").strip()
                raise RuntimeStop(f"the driver cannot assemble the kernel `{name}`: {said or self.reason(status)}", "device")
            return ctypes.string_at(binary.value or 0, size.value)
        finally:
            self.library.cuLinkDestroy(state)
