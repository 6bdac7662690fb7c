"""The driver library of NVIDIA's GPUs, by ctypes: the first GPU, a stream of work on it, memory, functions out of PTX, and graphs.

Nothing else of CUDA is needed to run what was compiled. All that is started on the stream is done in order, beside the host, which
waits with `wait`; a kernel that fails is known only then, or when something else is started.

Memory is of three kinds: managed (both see it, pages move to who touches them), the GPU's own, and pinned memory of the host, which the
GPU sees through the bus. All of it has one address.

The machine code that the driver makes of PTX is kept on disk, by the text, the architecture and the driver's version.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tlc.frontend import disk_cache
from tlc.ssa.world import RuntimeStop

LIBRARY = "libcuda.so.1"
LEAST_CAPABILITY = 80

OUT_OF_MEMORY = 2
_MAJOR, _MINOR, _MANAGED, _CONCURRENT = 75, 76, 83, 89  # numbers of device attributes
_GLOBAL = 1  # managed memory that every device sees
_MAPPED = 2  # pinned memory that the GPU sees
_NON_BLOCKING = 1  # a stream that does not wait for the default one
_PREFERRED = 3  # advice: where pages live
_CPU = -1
_PTX = 1  # a kind of the linker's input
_LOG, _LOG_BYTES = 5, 6  # options of the linker
_LOG_ROOM = 8192
_DYNAMIC_SHARED = 8  # number of a function's attribute


class Launch(NamedTuple):
    """A function, blocks of its grid, threads of a block, and bytes of shared memory beside what stands in the function."""

    function: int
    x: int
    y: int
    z: int
    threads: int
    shared: int


Params = ctypes.Array[ctypes.c_void_p]  # pointers to the arguments of a launch


class _Node(ctypes.Structure):
    """A launch as a graph has it: `CUDA_KERNEL_NODE_PARAMS_v1`."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("dimensions", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
    )


def _node(launch: Launch, params: Params) -> _Node:
    function, x, y, z, threads, shared = launch
    return _Node(function, (x, y, z, threads, 1, 1), shared, params, None)


class Driver:
    """The context of the first GPU. `sm` is its architecture, `memory` the bytes that it has free at first; `concurrent`: the host may
    touch managed memory while kernels run. Raises `RuntimeStop` where there is no GPU that will do.
    """

    def __init__(self) -> None:
        self.called = ""
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise RuntimeStop(f"the driver for NVIDIA's GPUs is not installed: there is no `{LIBRARY}`", "device") from None
        status = self.call("cuInit", 0)
        count = ctypes.c_int()
        if status or self.call("cuDeviceGetCount", ctypes.byref(count)) or not count.value:
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

    def call(self, name: str, *args: Any) -> int:
        """Call a function of the driver; gives the status. `called` keeps the name, for who tells of it."""
        self.called = name
        status: int = self.named(name)(*args)
        return status

    def named(self, name: str) -> Any:
        """A function of the driver. Raises `RuntimeStop` if it has none of that name."""
        try:
            return getattr(self.library, name)
        except AttributeError:
            raise RuntimeStop(f"the driver for NVIDIA's GPUs has no `{name}`: it is too old", "device") from None

    def address(self, name: str) -> int:
        """Where a function of the driver begins, for who calls it natively."""
        return ctypes.cast(self.named(name), ctypes.c_void_p).value or 0

    def check(self, name: str, *args: Any) -> None:
        """Call a function of the driver. Raises `RuntimeStop` if it fails."""
        status = self.call(name, *args)
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
        return self.call("cuCtxSetCurrent", self.context)

    # ------------------------------------------------------------ memory

    def allocate(self, size: int) -> tuple[int, int]:
        """The address of managed memory, and the status."""
        address = ctypes.c_uint64()
        status = self.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(size), _GLOBAL)
        return address.value, status

    def allocate_there(self, size: int) -> tuple[int, int]:
        """The address of memory of the GPU alone, and the status."""
        address = ctypes.c_uint64()
        status = self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value, status

    def allocate_here(self, size: int) -> tuple[int, int]:
        """The address of pinned memory of the host, and the status."""
        address = ctypes.c_uint64()
        status = self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), _MAPPED)
        return address.value, status

    def settle(self, address: int, size: int, on_gpu: bool) -> None:
        """Say where pages of managed memory live, whoever touches them, and make them there, so that no kernel has to. That is advice: a
        driver that does not take it is no failure, and who calls next is told of an earlier one.
        """
        home = self.device if on_gpu else ctypes.c_int(_CPU)
        place = ctypes.c_uint64(address), ctypes.c_size_t(size)
        self.library.cuMemAdvise(*place, _PREFERRED, home)
        if on_gpu and self.concurrent:
            self.library.cuMemPrefetchAsync(*place, home, self.stream)

    def release(self, address: int) -> None:
        """Give memory back. That of a context in which a kernel failed is gone already."""
        self.library.cuMemFree_v2(ctypes.c_uint64(address))

    def copy(self, to: int, source: int, size: int) -> int:
        """Copy from and to where the GPU is, on the stream; gives the status. So do the next two, from and to the host's own memory."""
        return self.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), self.stream)

    def fetch(self, here: int, there: int, size: int) -> int:
        return self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(here), ctypes.c_uint64(there), ctypes.c_size_t(size), self.stream)

    def put(self, there: int, here: int, size: int) -> int:
        return self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(there), ctypes.c_void_p(here), ctypes.c_size_t(size), self.stream)

    def wait(self) -> int:
        """Wait until all is done that was started; gives the status."""
        return self.call("cuStreamSynchronize", self.stream)

    # ------------------------------------------------------------ launches

    def start(self, launch: Launch, params: Params) -> int:
        """Start a function on the stream; gives the status."""
        function, x, y, z, threads, shared = launch
        return self.call("cuLaunchKernel", ctypes.c_void_p(function), x, y, z, threads, 1, 1, shared, self.stream, params, None)

    def start_graph(self, executable: int) -> int:
        """Start a graph on the stream; gives the status."""
        return self.call("cuGraphLaunch", ctypes.c_void_p(executable), self.stream)

    def graph(self, launches: Sequence[tuple[Launch, Params]]) -> tuple[int, list[int]]:
        """A graph of launches, one after the other, as the driver starts it; and its nodes. Arguments are copied. Raises `RuntimeStop`."""
        graph, executable, nodes = ctypes.c_void_p(), ctypes.c_void_p(), list[ctypes.c_void_p]()
        self.check("cuGraphCreate", ctypes.byref(graph), 0)
        for launch in launches:
            node, before = ctypes.c_void_p(), ctypes.byref(nodes[-1]) if nodes else None
            known = ctypes.byref(_node(*launch))
            self.check("cuGraphAddKernelNode", ctypes.byref(node), graph, before, ctypes.c_size_t(len(nodes[-1:])), known)
            nodes.append(node)
        self.check("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
        return executable.value or 0, [node.value or 0 for node in nodes]

    def change(self, executable: int, node: int, launch: Launch, params: Params) -> int:
        """Other arguments for a node, from the next start of its graph on; gives the status."""
        known = ctypes.byref(_node(launch, params))
        return self.call("cuGraphExecKernelNodeSetParams", ctypes.c_void_p(executable), ctypes.c_void_p(node), known)

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
