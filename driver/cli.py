"""The command line: `tlc [flags] prog.tl [flags of main]` and the commands.

Exit status: 0 fine, 1 the program failed, 2 wrong usage, 3 a compile error, 4 a failure of the compiler itself.
Heavy parts are imported where they are used, so that `--help`, `--version` and a typing mistake answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tlc.driver import flags as flag
from tlc.driver import report
from tlc.driver.flags import Flag, HelpAsked, UsageError, Value
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.types import Elem

if TYPE_CHECKING:
    from tlc.driver.options import Options
    from tlc.frontend.source import Source
    from tlc.frontend.typed import Program
    from tlc.ssa.world import Services

OK, FAILED, USAGE, COMPILE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 4, 130

# fmt: off
FLAGS = (
    Flag("level", Elem.I64, 2, "how much to optimize", words=(("-O0", 0), ("-O1", 1), ("-O2", 2))),
    Flag("interp", Elem.BOOL, False, "run the interpreter of unoptimized SSA: slow, plain, the meaning of the language"),
    Flag("threads", Elem.I64, 0, "threads of the running program; 0: TLC_THREADS, or as many as there are cores"),
    Flag("host", Elem.STR, "llvm", "what makes the scalar code", choices=("llvm", "x86")),
    Flag("device", Elem.STR, "cpu", "where tensors are computed", choices=("cpu", "cuda", "cuda-emulated")),
    Flag("strict_fp", Elem.BOOL, False, "reductions from left to right, without fused multiply-adds"),
    Flag("cache", Elem.BOOL, True, "keep compiled programs and use them again"),
    Flag("verify", Elem.BOOL, False, "check the program's form after every pass"),
    Flag("disable", Elem.STR, "", "passes to leave out, separated by commas"),
    Flag("error_format", Elem.STR, "text", "how diagnostics are written", choices=report.FORMATS),
    Flag("version", Elem.BOOL, False, "print the version and stop"),
)
# fmt: on

STAGES = ("tokens", "ast", "typed", "cfg", "ssa", "opt", "graph", "kernels", "memory", "llvm", "c")
EARLY_STAGES = ("tokens", "ast", "typed")  # those that the values of main's flags cannot change
STAGES_TO_COME = ("mir", "asm", "cuda", "ptx")


@dataclass(frozen=True)
class Command:
    """`tlc NAME WORDS`. `run` is None for what the design has and this version has not."""

    name: str
    words: str
    doc: str
    run: Callable[[Request], int] | None


@dataclass(frozen=True)
class Request:
    """A command with its arguments, and the flags of `tlc`, all of them."""

    words: list[str]
    flags: Mapping[str, Value]

    @property
    def form(self) -> str:
        return str(self.flags["error_format"])

    @property
    def threads(self) -> int:
        """How many threads a program may use."""
        return int(self.flags["threads"]) or _threads_of_environment() or len(os.sched_getaffinity(0))

    def options(self, values: Mapping[str, Value] | None = None) -> Options:
        from tlc.driver.options import Options

        disable = tuple(name for name in str(self.flags["disable"]).split(",") if name)
        return Options(int(self.flags["level"]), bool(self.flags["verify"]), disable, values, bool(self.flags["strict_fp"]))


def _threads_of_environment() -> int:
    """What `TLC_THREADS` says, 0 if it says nothing."""
    text = os.environ.get("TLC_THREADS", "").strip() or "0"
    if not text.isdecimal():
        raise UsageError(f"`TLC_THREADS` needs a number of threads, found `{text}`")
    return int(text)


# ---------------------------------------------------------------- the entry


def entry() -> None:
    """The console script."""
    status = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = _closed()
    sys.exit(status)


def main(argv: Sequence[str]) -> int:
    """Run `tlc` with these arguments; gives the exit status."""
    form = "text"
    try:
        if sys.flags.optimize >= 2:
            raise UsageError("`python -OO` drops the documentation strings that the parser is made of; run without `-OO`")
        try:
            given, words = flag.parse_until_word(FLAGS, argv)
        except HelpAsked:
            print(help_text())
            return OK
        request = Request(words, flag.complete(FLAGS, given))
        form = request.form
        if request.flags["version"]:
            return _version()
        _refuse(request)
        return _dispatch(request)
    except (Exception, KeyboardInterrupt) as error:
        return _answer(error, argv, form)


def help_text() -> str:
    """What `tlc --help` prints."""
    usage = [("tlc [flags] PROGRAM.tl [flags of its main]", "compile a program and run it")]
    usage += [("tlc [flags]", "the interactive prompt; without a terminal, entries from standard input")]
    usage += [(f"tlc [flags] {command.name} {command.words}".rstrip(), command.doc) for command in COMMANDS if command.run is not None]
    width = max(len(left) for left, _ in usage)
    lines = [f"  {left:{width}}  {right}" for left, right in usage]
    return "\n".join(["usage:", *lines, "", "flags of tlc, before the program:", *flag.help_lines(FLAGS)])


def _dispatch(request: Request) -> int:
    if not request.words:
        return _repl(request)
    first, *rest = request.words
    command = next((c for c in COMMANDS if c.name == first), None)
    if command is not None:
        if command.run is None:
            raise UsageError(f"`tlc {first}` is not supported yet")
        if rest[:1] in (["--help"], ["-h"]):
            print(f"usage: tlc [flags] {command.name} {command.words}\n\n{command.doc}")
            return OK
        return command.run(Request(rest, request.flags))
    if Path(first).suffix:
        return _run(request)
    hint = f"; did you mean `{first}.tl`?" if Path(f"{first}.tl").is_file() else flag.near(first, [c.name for c in COMMANDS if c.run])
    raise UsageError(f"`{first}` is neither a program (its name ends in `.tl`) nor a command of tlc{hint}")


def _refuse(request: Request) -> None:
    """Flags that the design has and this version has not."""
    for name, supported in (("host", "llvm"), ("device", "cpu")):
        value = request.flags[name]
        if value != supported:
            raise UsageError(f"`--{name} {value}` is not supported yet")
    threads = int(request.flags["threads"])
    if threads < 0:
        raise UsageError(f"`--threads` needs a number of threads, found {threads}")


# ---------------------------------------------------------------- the commands


def _run(request: Request) -> int:
    """`tlc prog.tl`"""
    path, *args = request.words
    source = _source(path)
    from tlc.backends.runtime.services import WorldServices

    services = WorldServices()
    try:
        if request.flags["interp"]:
            _interpret(request, source, args, services)
        else:
            _run_native(request, source, args, services)
    finally:
        services.close()
    return OK


def _interpret(request: Request, source: Source, args: list[str], services: Services) -> None:
    from tlc.driver import pipeline

    program = _front(request, source)
    values = _main_flags(source.path, program, args)
    if values is not None:
        pipeline.interpret(program, request.options(values), services)


def _run_native(request: Request, source: Source, args: list[str], services: Services) -> None:
    """A program that was compiled before, with the same flags, is not compiled again."""
    from tlc.backends.runtime.native import Native
    from tlc.driver.cache import Cache, command_key
    from tlc.frontend.disk_cache import NOWHERE

    kept = Cache() if request.flags["cache"] and not request.flags["verify"] else Cache(NOWHERE)
    command = command_key(source, request.options(), args)
    executable = kept.find(command)
    if executable is None:
        from tlc.driver import pipeline

        program = _front(request, source)
        values = _main_flags(source.path, program, args)
        if values is None:
            return
        executable = pipeline.build(program, request.options(values), kept)
        if not program.warnings:  # they are said again each time
            kept.keep(command, executable, program.sources)
    Native(executable, services, request.threads).run()


def _front(request: Request, source: Source) -> Program:
    """The checked program, when its warnings are said."""
    from tlc.driver import pipeline

    program = pipeline.front(source)
    if program.warnings:
        report.diagnostics(program.warnings, request.form)
    return program


def _check(request: Request) -> int:
    """Every program is looked at, whatever the others say."""
    if not request.words:
        raise UsageError("`tlc check` needs a program")
    sources = [_source(path) for path in request.words]
    status = OK
    for source in sources:
        try:
            _front(request, source)
        except CompileError as error:
            report.diagnostics(error.diagnostics, request.form)
            status = COMPILE
    return status


def _emit(request: Request) -> int:
    """`tlc emit STAGE prog.tl [--fn NAME] [flags of main]`: what `tlc prog.tl [flags of main]` would make."""
    function, words = _take_fn(request.words)
    if not words:
        raise UsageError(f"`tlc emit` needs a stage ({', '.join(STAGES)}) and a program")
    stage, *words = words
    if stage in STAGES_TO_COME:
        raise UsageError(f"`tlc emit {stage}` is not supported yet")
    if stage not in STAGES:
        raise UsageError(f"there is no stage `{stage}`{flag.near(stage, STAGES)}; the stages are {', '.join(STAGES)}")
    if not words:
        raise UsageError(f"`tlc emit {stage}` needs a program")
    path, *args = words
    source = _source(path)
    from tlc.driver import pipeline
    from tlc.driver.excerpt import definitions, excerpt
    from tlc.driver.token_text import token_text

    if stage == "tokens":
        print(token_text(source))
        return OK
    values = None
    if args or stage not in EARLY_STAGES:
        values = _main_flags(path, pipeline.front(source), args)
        if values is None:
            return OK
    text = pipeline.emit(source, stage, request.options(values)).rstrip("\n")
    if function:
        part = excerpt(text, function)
        if not part:
            names = [name for name, _ in definitions(text)]
            raise UsageError(f"there is no function `{function}` in `{stage}`{flag.near(function, names)}; there are {', '.join(names)}")
        text = part
    print(text)
    return OK


def _take_fn(words: list[str]) -> tuple[str, list[str]]:
    """The name after `--fn`, wherever it stands (`fn` is a keyword, so no parameter of a main has that name), and the other words."""
    function, rest = "", []
    left = iter(words)
    for word in left:
        if word == "--fn" or word.startswith("--fn="):
            function = word[5:] or next(left, "")
            if not function:
                raise UsageError("`--fn` needs the name of a function: `--fn NAME`")
        else:
            rest.append(word)
    return function, rest


def _explain(request: Request) -> int:
    from tlc.frontend.errors import ERRORS

    if len(request.words) != 1:
        raise UsageError("`tlc explain` needs one code, such as `tlc explain E0101`")
    code = request.words[0].upper()
    row = ERRORS.get(code)
    if row is None:
        raise UsageError(f"there is no code `{request.words[0]}`{flag.near(code, ERRORS)}")
    print(f"{row.code}: {row.title}\n\n{row.cause}\n")
    for title, text in (("This shows it:", row.bad), ("This is right:", row.mend)):
        if text:
            print(title + "\n\n" + "\n".join(f"    {line}".rstrip() for line in text.rstrip("\n").split("\n")) + "\n")
    return OK


def _cache(request: Request) -> int:
    from tlc.driver import cache_command

    if request.words not in ([], ["clear"]):
        raise UsageError(f"`tlc cache` shows the cache and `tlc cache clear` empties it, found `{' '.join(request.words)}`")
    print(cache_command.clear() if request.words else cache_command.show())
    return OK


def _repl(request: Request) -> int:
    if request.words:
        raise UsageError(f"`tlc repl` takes no arguments, found `{' '.join(request.words)}`")
    from tlc.driver.entries import Session
    from tlc.driver.repl import Repl

    session = Session(request.options({}), bool(request.flags["interp"]), request.threads)
    return Repl(session, STAGES, lambda error, words: _answer(error, words, request.form)).run(sys.stdin)


def _data(request: Request) -> int:
    from tlc.backends.runtime.datasets import DATA_SETS
    from tlc.driver import data_command
    from tlc.driver.fetch import FetchError

    if not request.words:
        print(data_command.show())
        return OK
    word, *names = request.words
    if word != "get" or not names:
        raise UsageError("`tlc data` lists the data sets and `tlc data get NAME ...` fetches them")
    for name in names:
        if name not in DATA_SETS:
            hint = flag.near(name, DATA_SETS) or f"; there are {', '.join(DATA_SETS)}"
            raise UsageError(f"there is no data set `{name}`{hint}")
    try:
        for line in data_command.get(names):
            print(line)
    except FetchError as error:
        report.message(str(error), request.form)
        return FAILED
    return OK


def _version() -> int:
    from tlc.driver.crash import versions

    print(versions())
    return OK


TO_COME = ("fmt", "build", "opt", "profile", "tune", "explore", "bisect", "doc", "lsp")
# fmt: off
COMMANDS = (
    Command("check",   "PROGRAM.tl ...",                 "find the errors of programs, run nothing",        _check),
    Command("emit",    "STAGE PROGRAM.tl [--fn NAME]",   f"print a stage: {' '.join(STAGES)}",              _emit),
    Command("explain", "CODE",                           "what a code of a diagnostic means",               _explain),
    Command("cache",   "[clear]",                        "show the cache of compiled programs, or empty it", _cache),
    Command("data",    "[get NAME ...]",                 "list the data sets, or fetch one",                _data),
    Command("repl",    "",                               "what `tlc` alone does",                           _repl),
    *(Command(name, "", "", None) for name in TO_COME),
)
# fmt: on


# ---------------------------------------------------------------- helpers


def _source(path: str) -> Source:
    """Read a program. A file that cannot be read is wrong usage."""
    from tlc.frontend.source import Source

    if not path.endswith(".tl"):
        raise UsageError(f"`{path}` is no program: its name does not end in `.tl`")
    try:
        return Source(path, Path(path).read_bytes().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {(error.strerror or str(error)).lower()}") from None


def _main_flags(path: str, program: Program, args: Sequence[str]) -> dict[str, Value] | None:
    """The values for main's parameters; None after printing them for `--help`."""
    if program.main is None:
        raise UsageError(f"`{path}` has nothing to run: it has no `main` and no statements")
    flags = flag.of_main(program.flags)
    try:
        return flag.parse(flags, args)
    except HelpAsked:
        doc = f"{program.doc.strip()}\n\n" if program.doc.strip() else ""
        print(f"{doc}usage: tlc {path} [flags]\n\nflags:\n" + "\n".join(flag.help_lines(flags)))
        return None


def _answer(error: BaseException, argv: Sequence[str], form: str) -> int:
    """Say an error, in the words of its kind; gives the exit status."""
    match error:
        case UsageError():
            report.message(str(error), form)
            return USAGE
        case CompileError():
            report.diagnostics(error.diagnostics, form)
            return COMPILE
        case KeyboardInterrupt():
            report.message("stopped by Ctrl-C", form)
            return INTERRUPTED
        case BrokenPipeError():
            return _closed()
        case _:
            return _failed(error, argv, form)


def _failed(error: BaseException, argv: Sequence[str], form: str) -> int:
    """The running program stopped itself, or the compiler has a fault."""
    from tlc.backends.runtime.stop import RuntimeStop
    from tlc.driver import crash
    from tlc.frontend.source import NOWHERE
    from tlc.ssa.world import Stop

    if isinstance(error, Stop):
        report.stop(error.message, error.span, error.kind, form)
        return FAILED
    if isinstance(error, RuntimeStop):
        report.stop(error.message, NOWHERE, "extern", form)
        return FAILED
    if isinstance(error, MemoryError):
        report.stop("there is not enough memory for a tensor", NOWHERE, "memory", form)
        return FAILED
    program = next((Path(word) for word in argv if word.endswith(".tl") and Path(word).is_file()), None)
    report.say(crash.describe(error, argv, program))
    return INTERNAL


def _closed() -> int:
    """Whoever read our output has gone: say nothing more, also not when Python closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED
