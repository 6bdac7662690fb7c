"""`tlc profile`: compile a program with timed kernels, measure the machine, run the program, and say where the time went."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tlc.driver import timed_run, whole_file
from tlc.driver.flags import Flag, Value
from tlc.driver.request import OK, Request, checked, main_flags, read_source
from tlc.frontend.types import Elem

if TYPE_CHECKING:
    from tlc.driver.profile import Command, Profile, Timed
    from tlc.frontend.typed import Program
    from tlc.tensor.lower import Tensors

FLAGS = (
    timed_run.JSON,
    Flag("html", Elem.STR, "", "write a page with the roofline plot and the table to this file"),
)


def profile(request: Request) -> int:
    """`tlc profile [--json FILE] [--html FILE] prog.tl [flags of main]`"""
    own, path, args = timed_run.words(request, "profile", FLAGS)
    source = read_source(path)
    timed_run.check_writable(own, "json", "html")
    from tlc.driver.profile import Command

    program = checked(request, source)
    values = main_flags(path, program, args, "profile")
    if values is None:
        return OK
    found, failure = _run(request, program, Command(path, tuple(args), values, str(request.flags["host"])))
    _write(found, own)
    if failure is not None:
        raise failure
    return OK


def _run(request: Request, program: Program, command: Command) -> tuple[Profile, BaseException | None]:
    """The profile, and what ended the program early."""
    from tlc.backends.runtime.native import Native
    from tlc.backends.runtime.services import WorldServices
    from tlc.backends.timing import TIMED_ENTRY, Table
    from tlc.driver import pipeline
    from tlc.driver.profile import summary
    from tlc.driver.roofline import measure

    store = timed_run.store(request)
    watch, options = request.watch(), replace(request.options(command.flags), timed=True)
    tensors = next(value for name, _, value in pipeline.middle(program, options, watch) if name == "memory")
    executable = timed_run.executable(tensors, options, store, watch)
    watch.say()
    kernels = _timed(tensors, command.program)
    machine = measure(request.threads, store, _progress())
    table = Table(len(kernels))
    services = WorldServices()
    failure: BaseException | None = None
    try:
        native = Native(executable, services, request.threads, TIMED_ENTRY)
        native.context.profile = table.address
        native.run()
    except (Exception, KeyboardInterrupt) as error:
        if not table.wall:
            raise  # it did not even begin
        failure = error
    finally:
        services.close()
    stopped = "" if failure is None else str(failure) or "by Ctrl-C"
    return summary(command, machine, kernels, table, stopped), failure


def _timed(tensors: Tensors, program: str) -> list[Timed]:
    """The kernels in the order of the table."""
    from tlc.backends.llvm.host import timed_kernels
    from tlc.driver.profile import Timed, places
    from tlc.tensor.kernel.counts import counts

    return [
        Timed(name, places(list(tensors.places.get(name, {})), program), counts(tensors.kernels[name]).whole)
        for name in timed_kernels(tensors.module)
    ]


def _progress() -> Callable[[str], None]:
    """Says what is measured: on a terminal in one line that changes and goes, elsewhere once."""
    if not sys.stderr.isatty():
        print("profile: measuring what this machine can do", file=sys.stderr, flush=True)
        return lambda text: None

    def say(text: str) -> None:
        line = f"profile: measuring what this machine can do: {text}" if text else ""
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    return say


def _write(found: Profile, own: dict[str, Value]) -> None:
    from tlc.driver.profile import to_json
    from tlc.driver.profile_table import table

    sys.stdout.flush()
    print(f"\n{table(found, shutil.get_terminal_size((140, 24)).columns)}", flush=True)
    if own["json"]:
        whole_file.write_json(str(own["json"]), to_json(found))
    if own["html"]:
        from tlc.driver.profile_page import page

        whole_file.write(str(own["html"]), page(found))
