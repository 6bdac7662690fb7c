"""Kernels as machine code while the rest of a program is still on its way: `Ahead`.

A kernel that calls nothing needs nothing but itself, so helpers (`backends/llvm/helpers.py`) print and compile kernels as soon as they
are scheduled, and this process joins them when it has made the host's functions. Kernels are cut, in their order, into pieces of about
`PIECE` statements, each of which becomes an object: the cut depends on the kernels alone, so the pieces are the same on every machine,
and the store finds them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tlc.backends.llvm import pool
from tlc.backends.llvm.helpers import Work
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.program import Store
from tlc.tensor.kernel.ir import For, Kernel, Kind, statements

PIECE = 150  # statements
COST = 0.6e-3  # seconds that printing and compiling a statement takes

Object = tuple[str, bytes]  # a key, which says what it was made from, and machine code


class Ahead:
    """Machine code that is being made. As a context it leaves no helper behind where an error comes before `objects`."""

    def __init__(
        self, store: Store, others: Iterable[Callable[[Store], Object]] = (), define: Callable[[Kernel], str] = print_kernel, tail: str = ""
    ) -> None:
        """`others` is what any program with kernels needs. `define` prints a kernel, and `tail` stands behind the kernels of a piece."""
        self.store = store
        self.others = tuple(others)
        self.define = define
        self.tail = tail
        self.known: set[str] = set()
        self.shares = False
        self.piece: list[Kernel] = []
        self.size = 0  # of the piece, in statements
        self.work = Work[Object](prepare=_load)

    def add(self, kernel: Kernel) -> None:
        """One more kernel, which calls nothing."""
        if not self.known:
            for other in self.others:
                self.work.add(partial(other, self.store), PIECE * COST)
        self.known.add(kernel.name)
        self.piece.append(kernel)
        for s in statements(kernel.body):
            self.size += 1
            if isinstance(s, For) and s.kind is Kind.PARALLEL and not self.shares:
                self.shares = True
                self.work.add(partial(_object, pool.POOL, self.store), PIECE * COST)
        if self.size >= PIECE:
            self._cut()

    def share(self) -> None:
        """Nothing comes for a while: helpers do what there is."""
        self._cut()
        self.work.share()

    def objects(self, kernels: Iterable[Kernel]) -> dict[str, bytes]:
        """All objects under their keys, those of `kernels` included; they are in the store then."""
        for kernel in kernels:
            if kernel.name not in self.known:
                self.add(kernel)
        self._cut()
        made = dict(self.work.results())
        for key, data in made.items():
            if self.store.get(key) is None:  # a helper has a store of its own, if it is not on disk
                self.store[key] = data
        return made

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *exception: object) -> None:
        self.work.__exit__(*exception)

    def _cut(self) -> None:
        """What is there becomes a piece."""
        if self.piece:
            self.work.add(partial(_printed, self.piece, self.define, self.tail, self.store), self.size * COST)
        self.piece, self.size = [], 0


def _load() -> None:
    from tlc.backends.llvm import jit

    jit.target()


def _printed(kernels: list[Kernel], define: Callable[[Kernel], str], tail: str, store: Store) -> Object:
    return _object("\n".join([*map(define, kernels), tail] if tail else map(define, kernels)), store)


def _object(text: str, store: Store) -> Object:
    from tlc.backends.llvm import jit  # loads LLVM: where helpers do all, this process does without

    return jit.object_key(text, jit.Level.KERNEL), jit.compile_object(text, jit.Level.KERNEL, store)
