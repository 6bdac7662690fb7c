"""From LLVM IR text to machine code in this process.

Two ways through LLVM. Kernels come with their vectors, addresses and hoisting already as they should be, so they only
get `sroa` (which turns local buffers into registers) and go straight to code generation: that halves a cold start and
costs no speed. Host functions are ordinary scalar code and get LLVM's standard pipeline, with its vectorizer of loops: nothing there
allows it to change the order in which reals are added. That of straight code is left out: it keeps addresses in a map by their constant
parts, where the ends of i64 are marks of its own, and ends the process if it meets one (built without assertions, it goes on, wrongly).
A chain of products of small constants makes such a part as well, when LLVM folds it, so no look at a function rules it out.

Objects are kept by content, so a text that was compiled before costs nothing; the caller says where.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import field
from enum import Enum
from functools import cache, partial
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tlc.backends.program import Foreign, Store
from tlc.frontend.foreign import address as foreign_address
from tlc.frontend.records import dataclass


class Level(Enum):
    """How a text is optimized before code generation."""

    KERNEL = "kernel"  # `sroa` only
    HOST = "host"  # the standard pipeline at O2


SHARES = "@tlc.parallel("  # what shares its work among threads calls this
_COST = {Level.KERNEL: 1e-6, Level.HOST: 3e-6}  # about how many seconds LLVM takes for a character

_memory: dict[str, bytes] = {}  # of this process


@cache
def machine_name() -> str:
    """What machine code depends on besides the text: LLVM's version and the CPU with its features."""
    return f"llvmlite {llvmlite.__version__}, {llvm.get_default_triple()}, {llvm.get_host_cpu_name()}, {_features()}"


def _features() -> str:
    return str(llvm.get_host_cpu_features().flatten())


@cache
def _initialize() -> None:
    # A choice stays a conditional move, as our own backend has it: LLVM would guess which of them a branch does better. An innermost
    # loop begins at a multiple of 32: the fetch of a short one is then the same wherever the function lies.
    if llvm.get_default_triple().startswith("x86_64"):
        for option in ("-x86-cmov-converter=false", "-x86-experimental-pref-innermost-loop-alignment=5"):
            llvm.set_option("", option)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def target() -> Any:
    """The target machine of this process: its CPU with all features, position-independent code."""
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=3, reloc="pic", codemodel="small"
    )


def compile_objects(texts: Sequence[tuple[str, Level]], store: Store = _memory) -> dict[str, bytes]:
    """Machine code of texts that are linked with each other, under their keys; with the pool of threads, if one of them uses it."""
    from tlc.backends.llvm.helpers import Work  # a start that finds its machine code does without
    from tlc.backends.llvm.pool import POOL

    parts = [part for part in texts if part[0]]
    if any(SHARES in text for text, _ in parts):
        parts.append((POOL, Level.KERNEL))
    made = {object_key(*part): store.get(object_key(*part)) for part in parts}
    missing = [part for part in parts if made[object_key(*part)] is None]
    work = Work([partial(_machine_code, *part) for part in missing], dict(enumerate(len(text) * _COST[level] for text, level in missing)))
    for part, data in zip(missing, work.results(), strict=True):
        store[object_key(*part)] = made[object_key(*part)] = data
    return {key: data for key, data in made.items() if data is not None}


def object_key(text: str, level: Level) -> str:
    """What an object is kept under."""
    return hashlib.sha256(f"{machine_name()}\n{level.value}\n{text}".encode()).hexdigest()


def compile_object(text: str, level: Level, store: Store = _memory) -> bytes:
    """Machine code of a module's text, as an object file."""
    key = object_key(text, level)
    data = store.get(key)
    if data is None:
        data = store[key] = _machine_code(text, level)
    return data


def _machine_code(text: str, level: Level) -> bytes:
    from tlc.backends.llvm.pool import DECLARE_POOL

    module = _optimized(text + DECLARE_POOL if SHARES in text and f"define void {SHARES}" not in text else text, level)
    data = bytes(target().emit_object(module))
    module.close()
    return data


def assembly(text: str, level: Level) -> str:
    """The same as text, for people and tests."""
    return str(target().emit_assembly(_optimized(text, level)))


def optimized_text(text: str, level: Level) -> str:
    """The IR that code generation sees."""
    return str(_optimized(text, level))


def _optimized(text: str, level: Level) -> Any:
    machine = target()
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    if level is Level.HOST:
        passes = builder.getModulePassManager()
        passes.run(module, builder)
    else:
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    return module


@dataclass
class Loaded:
    """Objects linked into this process. Addresses stay good while this lives."""

    engine: Any = field(repr=False)

    def address(self, name: str) -> int:
        """Where a function begins."""
        at = int(self.engine.get_function_address(name))
        assert at, f"no function `{name}` was compiled"
        return at


def load(objects: Iterable[bytes], foreign: Iterable[Foreign] = ()) -> Loaded:
    """Link objects with each other, with the C library of this process, and with the functions of it that the program declares."""
    _initialize()
    for f in foreign:
        at = foreign_address(f.symbol)
        assert at is not None, f"the C library has no `{f.symbol}`"
        llvm.add_symbol(f.name, at)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine_of_engine())
    for data in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return Loaded(engine)


def _machine_of_engine() -> Any:
    """An engine owns its target machine, so each gets one of its own."""
    return llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="small")
