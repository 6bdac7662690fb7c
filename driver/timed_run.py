"""What `tlc profile` and `tlc tune` share: their words, and a program whose kernels are timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tlc.driver import flags as flag
from tlc.driver import whole_file
from tlc.driver.flags import Flag, UsageError, Value
from tlc.driver.request import Request
from tlc.frontend.types import Elem

if TYPE_CHECKING:
    from tlc.backends.program import Executable
    from tlc.driver.cache import Cache
    from tlc.driver.options import Options
    from tlc.driver.watch import Watch
    from tlc.tensor.lower import Tensors

JSON = Flag("json", Elem.STR, "", "write the figures to this file as JSON")


def words(request: Request, name: str, flags: Sequence[Flag]) -> tuple[dict[str, Value], str, list[str]]:
    """The flags of a command, the path of its program, and the words behind that. Raises `UsageError`."""
    given, rest = flag.parse_until_word(flags, request.words)
    own = flag.complete(flags, given)
    if not rest:
        raise UsageError(f"`tlc {name}` needs a program")
    if request.flags["interp"]:
        raise UsageError(f"`tlc {name}` measures native code: leave out `--interp`")
    return own, rest[0], rest[1:]


def check_writable(own: dict[str, Value], *names: str) -> None:
    """Complain before the run about a file that could not be written after it."""
    for name in names:
        if own[name]:
            whole_file.check_writable(str(own[name]))


def store(request: Request) -> Cache:
    """Where compiled code is kept, which is nowhere with `--no-cache`."""
    from tlc.driver.cache import Cache
    from tlc.frontend.disk_cache import NOWHERE

    return Cache() if request.flags["cache"] else Cache(NOWHERE)


def executable(tensors: Tensors, options: Options, kept: Cache, watch: Watch | None = None) -> Executable:
    """The program of a memory plan with what times its kernels. `options` are those of a timed run."""
    from tlc.backends.llvm import jit, timing
    from tlc.driver import pipeline
    from tlc.driver.watch import NOBODY

    made = pipeline.machine_code(tensors, options, kept, watch or NOBODY)
    support = jit.compile_objects([(timing.support(), jit.Level.HOST)], kept)
    return replace(made, objects={**made.objects, **support})
