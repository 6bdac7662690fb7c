"""Random comprehensions by every way of running their kernels: `PYTHONPATH=tests python tests/fuzz/compare_kernels.py --kernels 20000 --seed 0`.

    ssa           the interpreter of SSA, on the module before lowering: the meaning
    kernel        the interpreter of kernels; and adverse (parallel loops from their end, rubbish in fresh memory)
    plan          the interpreter of SSA after the memory plan, which is verified: buffers that are used again, results in the place of operands
    native 1, 3   machine code on one thread, and on three that claim single iterations; kernels for a GPU emulated

Each module of `fuzz_kernels.py` is lowered for one or two targets (small caches, narrow and wide vectors, a GPU), with kernels by the rules or with
knobs that are drawn (`tensor/knobs.py`), and run with several sizes. All ways give the same bits, a NaN's aside. Operands of machine code lie against a page that nobody may touch, and what lies around outputs must stay.
Where a kernel may work in place it also does, and gives the same.

All in one process; many modules become one module of LLVM. What fails is made smaller, as long as it fails in the same way, and printed.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import mmap
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from differential import Recorder
from fuzz_kernels import Case, again, generate, gradient

from tlc.backends.llvm import jit
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.llvm.pool import pool
from tlc.backends.runtime.native import Context
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.ssa.world import Stop
from tlc.tensor import emit, memory
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.interp import rubbish, run
from tlc.tensor.kernel.ir import Buffer, Declare, For, Kernel, Kind, Var, statements
from tlc.tensor.kernel.text import parse_kernels, print_kernels
from tlc.tensor.knobs import Asked, Choice
from tlc.tensor.lower import Tensors, lower
from tlc.tensor.ownership import verify_ownership
from tlc.tensor.schedule import Target

Array = np.ndarray[Any, Any]

TARGETS = (Target(16, 16, 64, dots=2), Target(), Target(64, 32, 4 << 10, dots=4, pairs=True), Target(32, 16, 256))
GPU = Target(gpu=True)  # seldom: the interpreter runs every thread
SELDOM = 0.1
FREE = (Kind.PARALLEL, Kind.BLOCK)  # loops whose iterations have no order
THREADS = 3
ROUNDS = 2  # sizes a module is run with, at most; adverse only with the first
GRADIENTS = 16  # every so many cases one is a gradient
PATIENCE = 30.0  # seconds for a module that is being made smaller
PAGE = mmap.PAGESIZE
SLOT = 64 * PAGE

_SCALARS = {
    Elem.BOOL: ctypes.c_bool, Elem.I8: ctypes.c_int8, Elem.U8: ctypes.c_uint8, Elem.I32: ctypes.c_int32, Elem.U32: ctypes.c_uint32,
    Elem.I64: ctypes.c_int64, Elem.KEY: ctypes.c_uint64, Elem.F32: ctypes.c_float, Elem.F64: ctypes.c_double,
    Elem.F16: ctypes.c_uint16, Elem.BF16: ctypes.c_uint16,
}  # fmt: skip


class Fault(Exception):
    """A way failed or differs; `what` tells like from unlike."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(text)
        self.what = what


@contextmanager
def faults_of(what: str) -> Iterator[None]:
    try:
        yield
    except Fault:
        raise
    except Exception as e:
        short = re.sub(r"[%`].*|\d+", "", str(e).split("\n")[0])[:60]
        raise Fault(f"{what}: {type(e).__name__} {short}", "".join(traceback.format_exception(e, limit=-6))) from e


# ---------------------------------------------------------------- memory


class Arena:
    """Places for operands, each between two pages that nobody may touch. What is put in lies at the end or at the start of its place."""

    def __init__(self, places: int = 40) -> None:
        self.memory = mmap.mmap(-1, places * (SLOT + PAGE) + PAGE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for k in range(places + 1):
            assert protect(self.base + k * (SLOT + PAGE), PAGE, mmap.PROT_READ & 0) == 0
        self.used = 0

    def put(self, cells: Array, at_end: bool) -> tuple[int, Array]:
        """The address of a copy, and the place as bytes."""
        start = self.base + PAGE + self.used * (SLOT + PAGE)
        self.used += 1
        place = np.frombuffer((ctypes.c_uint8 * SLOT).from_address(start), np.uint8)
        offset = SLOT - cells.nbytes if at_end else 0
        place[offset : offset + cells.nbytes] = cells.reshape(-1).view(np.uint8)
        return start + offset, place


def stored(array: Any, elem: Elem) -> Array:
    """An array as its elements lie in memory."""
    return np.array(to_memory(array) if elem is Elem.BF16 else array, np.uint16 if elem is Elem.BF16 else DTYPES[elem], order="C")


def same(a: Array, b: Array) -> bool:
    """Equal bits, those of a NaN aside."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    nan = np.isnan(a)
    return bool(np.array_equal(nan, np.isnan(b))) and a[~nan].tobytes() == b[~nan].tobytes()


# ---------------------------------------------------------------- machine code


@dataclass(eq=False)
class Machine:
    """Kernels in this process, and a context for each number of threads."""

    arena: Arena = field(default_factory=Arena)
    pool: bytes = field(default_factory=lambda: jit.compile_object(pool(1), jit.Level.KERNEL, {}))
    symbols: dict[Kernel, str] = field(default_factory=dict)  # kernels without names
    loaded: Any = None
    contexts: dict[int, Context] = field(default_factory=dict)

    def load(self, kernels: Sequence[Kernel]) -> None:
        """Compile kernels together. Nameless, those that are equal are one."""
        self.close()
        self.symbols = {k: f"fuzz{n}" for n, k in enumerate(dict.fromkeys(replace(k, name="") for k in kernels))}
        text = "\n".join(print_kernel(emulated(replace(k, name=symbol))) for k, symbol in self.symbols.items())
        self.loaded = jit.load([jit.compile_object(text, jit.Level.KERNEL, {}), self.pool])

    def close(self) -> None:
        for context in self.contexts.values():
            if context.workers:
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.loaded.address("tlc.disband"))(ctypes.addressof(context))
        self.contexts = {}
        if self.loaded is not None:
            self.loaded.engine.close()
            self.loaded = None

    def run(self, kernel: Kernel, outputs: Sequence[Array], inputs: Sequence[Any], threads: int, at_end: bool, shared: dict[int, int]) -> list[Array]:
        """What a kernel gives; outputs hold rubbish before. `shared`: outputs that lie where an input does."""
        self.arena.used = 0
        context = self.contexts.setdefault(threads, Context(threads=threads))
        types: list[Any] = [ctypes.c_void_p] * (1 + len(outputs))
        values: list[Any] = []
        arrays: dict[int, tuple[int, Array]] = {}
        for k, (p, v) in enumerate(zip(kernel.inputs, inputs, strict=True)):
            cells = stored(v, p.elem)
            if isinstance(p, Var):
                types.append(_SCALARS[p.elem])
                values.append((cells.view(np.uint16) if p.elem is Elem.F16 else cells)[()].item())
            else:
                types.append(ctypes.c_void_p)
                arrays[k] = self.arena.put(cells, at_end)
                values.append(arrays[k][0])
        places = []
        for k, (b, o) in enumerate(zip(kernel.outputs, outputs, strict=True)):
            cells = stored(np.full(o.shape, rubbish(b.elem)), b.elem)
            address, place = arrays[shared[k]] if k in shared else self.arena.put(cells, at_end)
            offset = SLOT - cells.nbytes if at_end else 0
            beside = slice(max(offset - 256, 0), offset) if at_end else slice(cells.nbytes, cells.nbytes + 256)
            place[beside] = 0xA5
            places.append((address, place[offset : offset + cells.nbytes], place[beside], cells))
        call = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(self.loaded.address(f"k.{self.symbols[replace(kernel, name='')]}"))
        status = call(ctypes.addressof(context), *(address for address, *_ in places), *values)
        assert status == 0
        out = []
        for b, (_, inside, around, cells) in zip(kernel.outputs, places, strict=True):
            assert (around == 0xA5).all(), f"what lies beside {b.name} was overwritten"
            found = inside.copy().view(cells.dtype).reshape(cells.shape)
            out.append(from_memory(found) if b.elem is Elem.BF16 else found)
        return out


# ---------------------------------------------------------------- a module


@dataclass(eq=False)
class Lowered:
    """A case for one target."""

    case: Case
    target: Target
    grain: int
    tensors: Tensors


def lowered(case: Case, seed: int) -> list[Lowered]:
    """The case for one or two targets, verified in every way."""
    random = Random(seed)
    out = []
    text = print_module(case.module)
    for target in (GPU,) if random.random() < SELDOM else random.sample(TARGETS, 1 + (random.random() < 0.4)):
        grain = random.choice((1, 1, 1 << 21))
        with faults_of("lowering"), small_grain(grain):
            tensors = lower(parse_module(text), target, choices=Drawn(random, random.choice((0.0, 0.5, 1.0))))
        with faults_of("verifying"):
            verify(tensors.module, "host")
            assert parse_kernels(print_kernels(tensors.kernels)) == tensors.kernels
        out.append(Lowered(case, target, grain, tensors))
    return out


@dataclass(eq=False)
class Drawn:
    """Choices by chance: how likely a knob is drawn."""

    random: Random
    share: float

    def choice(self, kernel: Kernel, asked: Mapping[str, Asked]) -> Choice:
        return {name: self.random.choice(a.values) for name, a in asked.items() if self.random.random() < self.share}


@contextmanager
def small_grain(grain: int) -> Iterator[None]:
    """Loops are parallel that cost so much."""
    before = vars(emit)["GRAIN"]
    vars(emit)["GRAIN"] = grain
    try:
        yield
    finally:
        vars(emit)["GRAIN"] = before


def compare(low: Lowered, machine: Machine, seed: int, seen: Counter[str]) -> None:
    """Run a case in every way, with several sizes; raises `Fault`."""
    case, random = low.case, Random(seed)
    for first in (True, False)[: random.randint(1, ROUNDS)]:
        sizes = case.sizes(random)
        arguments = case.arguments(sizes, seed + first)
        expected: list[Any] | None = None
        with faults_of("interpreter of SSA"), suppress(Stop):
            expected = Interpreter(case.module, Recorder()).call("f", arguments)

        def launch(name: str, outputs: list[Any], inputs: list[Any], first: bool = first) -> None:
            each_way(low.tensors.kernels[name], outputs, inputs, machine, random, seen, adverse=first)

        found: list[Any] | None = None
        with faults_of("host"), suppress(Stop):
            found = Interpreter(low.tensors.module, Recorder(), launch).call("f", arguments)
        if expected is None or found is None:
            if expected is not None or found is not None:
                raise Fault("one stops", f"sizes {sizes}: {'the SSA' if expected is None else 'the host'} does, and the other does not")
            seen["stops"] += 1
            continue
        if case.primal is not None:
            slopes(case.primal, arguments, expected, seen)
        where = f"sizes {sizes}, {low.target}, grain {low.grain}"
        all_same("kernels differ from SSA", expected, found, where)
        if first:
            with faults_of("plan"):
                found = planned(low.tensors, arguments)
            seen["plan"] += 1
            all_same("the plan differs", expected, found, where)


def slopes(module: Module, arguments: Sequence[Any], found: Sequence[Any], seen: Counter[str]) -> None:
    """A gradient beside that of the unoptimized module, and beside differences along a direction where those are to be trusted."""
    with faults_of("interpreter of the primal"):
        plain = Interpreter(module, Recorder()).call("f", arguments)
    if not all(np.isfinite(g).all() and np.abs(g).max(initial=0) < 1e6 for g in plain):
        return
    seen["gradients"] += 1
    for k, (a, b) in enumerate(zip(plain, found, strict=True)):
        size = np.abs(np.asarray(a)).max(initial=0) + 1
        if np.shape(a) != np.shape(b) or not np.abs(np.asarray(a) - np.asarray(b)).max(initial=0) <= 1e-8 * size:
            raise Fault("the gradient of optimized code differs", f"result {k}\n{a}\noptimized\n{b}")
    random = np.random.default_rng(1)
    wrt = [k for k, x in enumerate(arguments) if x.dtype == np.float64]
    directions = {k: random.standard_normal(arguments[k].shape) for k in wrt}

    def difference(step: float) -> float:
        ends = []
        for sign in (step, -step):
            moved = [x + sign * directions[k] if k in directions else x for k, x in enumerate(arguments)]
            ends.append(float(Interpreter(module, Recorder()).call("p", moved)[0]))
        return (ends[0] - ends[1]) / (2 * step)

    slope = sum(float((directions[k] * g).sum()) for k, g in zip(wrt, plain[1:], strict=True))
    coarse, fine = difference(1e-5), difference(3e-6)
    scale = abs(slope) + abs(float(plain[0])) + 1
    if abs(coarse - fine) > 1e-6 * scale:
        return  # not smooth here
    seen["differences"] += 1
    if abs(slope - fine) > 1e-4 * scale:
        raise Fault("the gradient differs from differences", f"{slope} along a direction, differences {coarse}, {fine}")


def planned(tensors: Tensors, arguments: Sequence[Any]) -> list[Any]:
    """What the module gives after the memory plan."""
    module = parse_module(print_module(tensors.module))
    takes = memory.plan(module, tensors.kernels)
    verify(module, "host")
    verify_ownership(module, takes, tensors.kernels)
    launch = lambda name, outputs, inputs: run(tensors.kernels[name], outputs, inputs)  # noqa: E731
    return Interpreter(module, Recorder(), launch).call("f", arguments)


def all_same(what: str, expected: Sequence[Any], found: Sequence[Any], where: str) -> None:
    for k, (a, b) in enumerate(zip(expected, found, strict=True)):
        if not same(np.asarray(a), np.asarray(b)):
            raise Fault(what, f"result {k}, {where}\nSSA\n{a}\nfound\n{b}")


def each_way(
    kernel: Kernel, outputs: Sequence[Array], inputs: Sequence[Any], machine: Machine, random: Random, seen: Counter[str], *, adverse: bool
) -> None:
    """One launch: the interpreter writes into the outputs, the other ways are compared with it."""
    with faults_of("interpreter of kernels"):
        run(kernel, outputs, inputs, races=True)
    seen["launches"] += 1

    def check(way: str, found: Sequence[Array]) -> None:
        for b, x, y in zip(kernel.results, outputs, found, strict=False):
            if not same(x, y):
                text = print_kernels({kernel.name: kernel})
                raise Fault(f"{way} differs", f"{b.name} of {kernel.name}, {[np.shape(i) or i for i in inputs]}\nkernel\n{x}\n{way}\n{y}\n{text}")

    if adverse and any(isinstance(s, Declare) or (isinstance(s, For) and s.kind in FREE) for s in statements(kernel.body)):
        fresh = [np.full_like(o, rubbish(b.elem)) for b, o in zip(kernel.outputs, outputs, strict=True)]
        with faults_of("adverse"):
            run(kernel, fresh, inputs, adverse=True)
        check("adverse", fresh)
        seen["adverse"] += 1
    if kernel.applied or any(isinstance(p, Buffer) and np.asarray(v).nbytes > SLOT for p, v in zip(kernel.parameters, (*outputs, *inputs), strict=True)):
        return
    shares = any(isinstance(s, For) and s.kind in FREE for s in statements(kernel.body))
    for threads in (1, THREADS) if shares else (1,):
        with faults_of(f"native {threads}"):
            found = machine.run(kernel, outputs, inputs, threads, random.random() < 0.7, {})
        check(f"native {threads}", found)
        seen[f"native {threads}"] += 1
    if kernel.may_alias:
        with faults_of("in place"):
            found = machine.run(kernel, outputs, inputs, THREADS, random.random() < 0.7, dict(kernel.may_alias))
        check("in place", found)
        seen["in place"] += 1


# ---------------------------------------------------------------- campaigns


@dataclass(eq=False)
class Campaign:
    """`kernels` are the texts seen, without names."""

    machine: Machine = field(default_factory=Machine)
    kernels: set[int] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, Fault]] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    def batch(self, seeds: Sequence[int]) -> None:
        """Generate, lower, compile together, compare."""
        began = time.perf_counter()
        work: list[tuple[int, Lowered]] = []
        for seed in seeds:
            try:
                with faults_of("generator and optimizer"):
                    case = case_of(seed)
                work += [(seed, low) for low in lowered(case, seed)]
            except Fault as fault:
                self.faults.append((seed, fault))
        self.lap("generate and lower", began)
        began = time.perf_counter()
        kernels = [k for _, low in work for k in low.tensors.kernels.values() if not k.applied]
        try:
            with faults_of("LLVM"):
                self.machine.load(kernels)
        except Fault as fault:
            self.faults.append((seeds[0], fault))
            return
        self.kernels |= {hash(k) for k in self.machine.symbols}
        self.lap("LLVM", began)
        began = time.perf_counter()
        for seed, low in work:
            try:
                compare(low, self.machine, seed, self.seen)
            except Fault as fault:
                self.faults.append((seed, fault))
        self.lap("run", began)

    def lap(self, what: str, began: float) -> None:
        self.seconds[what] += time.perf_counter() - began  # type: ignore[assignment]


def case_of(seed: int) -> Case:
    """Some are gradients, which take long to make."""
    return gradient(seed) if seed % GRADIENTS == GRADIENTS - 1 else generate(seed)


def fails(case: Case, seed: int, machine: Machine) -> Fault | None:
    """How a case fails, if it does."""
    try:
        lows = lowered(case, seed)
        with faults_of("LLVM"):
            machine.load([k for low in lows for k in low.tensors.kernels.values() if not k.applied])
        for low in lows:
            compare(low, machine, seed, Counter())
    except Fault as fault:
        return fault
    return None


def smaller(seed: int, fault: Fault, machine: Machine, patience: float = PATIENCE) -> tuple[Case, Fault]:
    """A smaller case that fails in the same way: numbers are left out, or made 0 or half."""
    best, found = case_of(seed), fault
    until = time.perf_counter() + patience

    def attempt(choices: list[int]) -> bool:
        nonlocal best, found
        try:
            case = again(choices, best.primal is not None)
        except Exception:
            return False
        if (len(case.choices), case.choices) >= (len(best.choices), best.choices):
            return False
        other = fails(case, seed, machine)
        if other is None or other.what != fault.what:
            return False
        best, found = case, other
        return True

    size = len(best.choices) // 2
    while size and time.perf_counter() < until:
        at, better = 0, False
        while at < len(best.choices) and time.perf_counter() < until:
            old = best.choices
            part = old[at : at + size]
            tries = [old[:at] + old[at + size :], old[:at] + [0] * len(part) + old[at + size :], old[:at] + [c // 2 for c in part] + old[at + size :]]
            if any(attempt(t) for t in tries):
                better = True
            else:
                at += size
        if not better or size > 1:
            size //= 2
    return best, found


def report(seed: int, fault: Fault, machine: Machine) -> str:
    case, found = smaller(seed, fault, machine)
    return f"seed {seed}: {fault.what}\n{print_module(case.module)}\nchoices {case.choices}\n{found}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare kernels of random comprehensions in every way of running them.")
    parser.add_argument("--kernels", type=int, default=20_000, help="stop when so many different kernels were compared")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=40, help="modules that are compiled together")
    options = parser.parse_args()
    faulthandler.enable()
    campaign, seed, began = Campaign(), options.seed, time.perf_counter()
    reported: Counter[str] = Counter()
    while len(campaign.kernels) < options.kernels:
        campaign.batch(range(seed, seed + options.batch))
        seed += options.batch
        for where, fault in campaign.faults:
            reported[fault.what] += 1
            if reported[fault.what] == 1:
                print(report(where, fault, campaign.machine), flush=True)
        campaign.faults.clear()
        gc.collect()
        laps = ", ".join(f"{what} {t:.0f} s" for what, t in campaign.seconds.items())
        print(f"seeds to {seed}: {len(campaign.kernels)} kernels, {time.perf_counter() - began:.0f} s ({laps}); {dict(campaign.seen)}", file=sys.stderr, flush=True)
    campaign.machine.close()
    print(f"{len(campaign.kernels)} kernels of {seed - options.seed} modules; faults: {dict(reported)}")


if __name__ == "__main__":
    main()
