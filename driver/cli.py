"""The command line: `tlc [flags] prog.tl [flags of main]` and the commands.

Exit status: 0 fine, 1 the program failed, 2 wrong usage, 3 a compile error, 4 a failure of the compiler itself.
Heavy parts are imported where they are used, so that `--help`, `--version` and a typing mistake answer at once.
"""

from __future__ import annotations

import gc
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
    from tlc.driver.watch import Watch
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
    Flag("verify", Elem.BOOL, False, "check the program's form after every pass, and every allocation of registers"),
    Flag("passes", Elem.STR, "", "passes to run in place of the level's, separated by commas"),
    Flag("disable", Elem.STR, "", "passes to leave out, separated by commas"),
    Flag("dump_after", Elem.STR, "", "print the program after these passes, or after `all`"),
    Flag("time_passes", Elem.BOOL, False, "print how long each pass and stage took"),
    Flag("stats", Elem.BOOL, False, "print what passes change, and how own code uses registers"),
    Flag("registers", Elem.STR, "all", "for tests: how many own code may use, `few` is three of each kind", choices=("all", "few")),
    Flag("error_format", Elem.STR, "text", "how diagnostics are written", choices=report.FORMATS),
    Flag("version", Elem.BOOL, False, "print the version and stop"),
)
# fmt: on

STAGES = ("tokens", "ast", "typed", "cfg", "ssa", "opt", "graph", "kernels", "memory", "mir", "asm", "llvm", "c")
EARLY_STAGES = ("tokens", "ast", "typed")  # those that the values of main's flags cannot change
STAGES_TO_COME = ("cuda", "ptx")


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

        return Options(
            int(self.flags["level"]),
            bool(self.flags["verify"]),
            self.names("disable"),
            values,
            bool(self.flags["strict_fp"]),
            str(self.flags["host"]),
            self.names("passes") or None,
            str(self.flags["registers"]),
        )

    def names(self, name: str) -> tuple[str, ...]:
        """The names of passes that a flag lists."""
        return tuple(word for word in str(self.flags[name]).split(",") if word)

    @property
    def watched(self) -> bool:
        """Whether the compiler is to say something about its work: then it has to work."""
        return bool(self.flags["dump_after"] or self.flags["time_passes"] or self.flags["stats"])

    def watch(self) -> Watch:
        from tlc.driver.watch import Watch

        return Watch(self.names("dump_after"), bool(self.flags["time_passes"]), bool(self.flags["stats"]))


def _threads_of_environment() -> int:
    """What `TLC_THREADS` says, 0 if it says nothing."""
    text = os.environ.get("TLC_THREADS", "").strip() or "0"
    if not text.isdecimal():
        raise UsageError(f"`TLC_THREADS` needs a number of threads, found `{text}`")
    return int(text)


# ---------------------------------------------------------------- the entry


def entry() -> None:
    """The console script."""
    gc.freeze()  # what is loaded stays; and a compiler makes much that lives long, so looking for what does not, seldom, pays
    gc.set_threshold(100_000, 20, 50)
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
    usage += [("tlc [flags] FILE [flags]", f"run a text of an intermediate form: {' '.join(FILES)}")]
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
        return FILES.get(Path(first).suffix, _run)(request)
    hint = f"; did you mean `{first}.tl`?" if Path(f"{first}.tl").is_file() else flag.near(first, [c.name for c in COMMANDS if c.run])
    raise UsageError(f"`{first}` is neither a program (its name ends in `.tl`) nor a command of tlc{hint}")


def _refuse(request: Request) -> None:
    """Flags that the design has and this version or this machine has not, and names of passes that there are not."""
    device = request.flags["device"]
    if device != "cpu":
        raise UsageError(f"`--device {device}` is not supported yet")
    if request.flags["host"] == "x86":
        from tlc.backends.cpu import missing_for_own_code

        missing = missing_for_own_code()
        if missing:
            raise UsageError(f"`--host x86` cannot be had: {missing}")
    threads = int(request.flags["threads"])
    if threads < 0:
        raise UsageError(f"`--threads` needs a number of threads, found {threads}")
    if any(request.names(name) for name in ("passes", "disable", "dump_after")):
        _known_passes(request)


def _known_passes(request: Request) -> None:
    from tlc.driver.watch import ALL
    from tlc.opt.passes import HOST_LEVELS, LEVELS, PASSES

    for spelling, more in (("passes", ()), ("disable", ()), ("dump_after", (ALL,))):
        for name in request.names(spelling):
            if name not in PASSES and name not in more:
                hint = flag.near(name, [*PASSES, *more]) or f"; there are {', '.join(sorted(PASSES))}"
                raise UsageError(f"`--{spelling.replace('_', '-')}`: there is no pass `{name}`{hint}")
    for name in request.names("disable"):
        if name in (*LEVELS[0], *HOST_LEVELS[0]):
            raise UsageError(f"`--disable`: what follows needs the pass `{name}`, so it runs at every level")


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

    kept = Cache() if request.flags["cache"] and not request.flags["verify"] and not request.watched else Cache(NOWHERE)
    command = command_key(source, request.options(), args)
    executable = kept.find(command)
    if executable is None:
        from tlc.driver import pipeline

        watch = request.watch()
        with watch.stage("front"):
            program = _front(request, source)
        values = _main_flags(source.path, program, args)
        if values is None:
            return
        executable = pipeline.build(program, request.options(values), kept, watch)
        watch.say()
        if not program.warnings:  # they are said again each time
            kept.keep(command, executable, program.sources)
    Native(executable, services, request.threads).run()


def _run_ssa(request: Request) -> int:
    """`tlc prog.ssa`"""
    from tlc.backends.runtime.native import Native
    from tlc.backends.runtime.services import WorldServices
    from tlc.driver import pipeline, ssa_files

    path, *args = request.words
    source = _source(path, ".ssa")
    values = _values(path, ssa_files.flags(source, ssa_files.read(source)[0]), args)
    if values is None:
        return OK
    services = WorldServices()
    try:
        if request.flags["interp"]:
            ssa_files.interpret(source, values, services)
        else:
            watch, options = request.watch(), request.options(values)
            tensors = next(value for name, _, value in ssa_files.stages(source, options, watch) if name == "memory")
            executable = pipeline.machine_code(tensors, options, {}, watch)
            watch.say()
            Native(executable, services, request.threads).run()
    finally:
        services.close()
    return OK


def _run_mir(request: Request) -> int:
    """`tlc prog.mir`"""
    from tlc.backends.cpu import missing_for_own_code
    from tlc.backends.runtime.native import Native
    from tlc.backends.runtime.services import WorldServices
    from tlc.driver import mir_files

    path, *args = request.words
    source = _source(path, ".mir")
    if _values(path, (), args) is None:
        return OK
    services = WorldServices()
    try:
        if request.flags["interp"]:
            mir_files.interpret(source, services)
        elif missing_for_own_code():
            raise UsageError(f"`{path}` cannot run natively ({missing_for_own_code()}); `tlc --interp {path}` interprets it")
        else:
            executable = mir_files.compiled(source, str(request.flags["registers"]), bool(request.flags["verify"]))
            Native(executable, services).run()
    finally:
        services.close()
    return OK


def _run_kernels(request: Request) -> int:
    """`tlc kernel.tk`"""
    from tlc.driver import kernel_files

    path, *args = request.words
    source = _source(path, ".tk")
    natively = not request.flags["interp"]
    kernels = kernel_files.read(source, natively)
    values = _values(path, kernel_files.flags(kernels), args)
    if values is not None:
        print("\n".join(kernel_files.run(source, kernels, values, natively)))
    return OK


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
    from tlc.driver.excerpt import definitions, excerpt

    forms = {".ssa": _emit_ssa, ".tk": _emit_kernels, ".uir": _emit_graph, ".tg": _emit_graph}
    text = forms.get(Path(words[0]).suffix, _emit_program)(request, stage, words)
    if text is None:
        return OK
    text = text.rstrip("\n")
    if function:
        part = excerpt(text, function)
        if not part:
            names = [name for name, _ in definitions(text)]
            raise UsageError(f"there is no function `{function}` in `{stage}`{flag.near(function, names)}; there are {', '.join(names)}")
        text = part
    print(text)
    return OK


def _emit_program(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a program; None where `--help` was asked for."""
    from tlc.driver import pipeline
    from tlc.driver.token_text import token_text

    path, *args = words
    source = _source(path)
    if stage == "tokens":
        return token_text(source)
    values = None
    if args or stage not in EARLY_STAGES:
        values = _main_flags(path, pipeline.front(source), args)
        if values is None:
            return None
    return pipeline.emit(source, stage, request.options(values))


def _emit_ssa(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a file of SSA, from its own on; None where `--help` was asked for."""
    from tlc.driver import ssa_files

    path, *args = words
    source = _source(path, ".ssa")
    values = _values(path, ssa_files.flags(source, ssa_files.read(source)[0]), args)
    if values is None:
        return None
    watch = request.watch()
    text = next((text() for name, text, _ in ssa_files.stages(source, request.options(values), watch) if name == stage), None)
    if text is None:
        raise UsageError(f"`{path}` begins behind the stage `{stage}`")
    return text


def _emit_kernels(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a file of kernels."""
    from tlc.driver import graph_files, kernel_files

    source = _source(*_only(words), ".tk")
    return graph_files.emit_kernels(kernel_files.read(source, natively=False), stage, source.path)


def _emit_graph(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a graph."""
    from tlc.driver import graph_files

    (path,) = _only(words)
    return graph_files.emit(_source(path, Path(path).suffix), stage)


def _only(words: list[str]) -> list[str]:
    if len(words) > 1:
        raise UsageError(f"`tlc emit` of `{words[0]}` takes no flags, found `{words[1]}`")
    return words


def _run_graph(request: Request) -> int:
    """`tlc graph.uir`, `tlc graph.tg`"""
    from tlc.driver import graph_files

    path, *args = request.words
    graph = graph_files.read(_source(path, Path(path).suffix))
    values = _values(path, graph_files.flags(graph), args)
    if values is not None:
        print("\n".join(graph_files.run(graph, values, not request.flags["interp"])))
    return OK


def _opt(request: Request) -> int:
    """`tlc opt FILE.ssa --passes sccp,gvn`: what the passes make of a text; flags may stand anywhere."""
    given = dict(request.flags)
    files: list[str] = []
    words = request.words
    while words:
        more, words = flag.parse_until_word(FLAGS, words)
        given |= more
        files += words[:1]
        words = words[1:]
    if len(files) != 1:
        raise UsageError(f"`tlc opt` needs one file of SSA, `tlc opt FILE.ssa --passes NAME,NAME`, found {len(files)}")
    request = Request(files, given)
    _refuse(request)
    from tlc.driver import ssa_files

    watch = request.watch()
    print(ssa_files.optimize(_source(files[0], ".ssa"), request.options(), watch).rstrip("\n"))
    watch.say()
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


TO_COME = ("fmt", "build", "profile", "tune", "explore", "bisect", "doc", "lsp")
# fmt: off
COMMANDS = (
    Command("check",   "PROGRAM.tl ...",                 "find the errors of programs, run nothing",        _check),
    Command("emit",    "STAGE PROGRAM.tl [--fn NAME]",   "print a stage; `tlc emit` alone names them",      _emit),
    Command("opt",     "FILE.ssa [--passes NAME,NAME]",  "run passes over a text of SSA and print it",      _opt),
    Command("explain", "CODE",                           "what a code of a diagnostic means",               _explain),
    Command("cache",   "[clear]",                        "show the cache of compiled programs, or empty it", _cache),
    Command("data",    "[get NAME ...]",                 "list the data sets, or fetch one",                _data),
    Command("repl",    "",                               "what `tlc` alone does",                           _repl),
    *(Command(name, "", "", None) for name in TO_COME),
)
# fmt: on

# what else `tlc FILE` runs than programs, by the end of its name
FILES = {".ssa": _run_ssa, ".mir": _run_mir, ".tk": _run_kernels, ".uir": _run_graph, ".tg": _run_graph}


# ---------------------------------------------------------------- helpers


def _source(path: str, suffix: str = ".tl") -> Source:
    """Read a program. A file that cannot be read is wrong usage."""
    from tlc.frontend.source import Source

    if not path.endswith(suffix):
        raise UsageError(f"`{path}` is no program: its name does not end in `{suffix}`")
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
    return _values(path, flag.of_main(program.flags), args, program.doc)


def _values(path: str, flags: Sequence[Flag], args: Sequence[str], about: str = "") -> dict[str, Value] | None:
    """The values of a program's flags; None after printing them for `--help`."""
    try:
        return flag.parse(flags, args)
    except HelpAsked:
        doc = f"{about.strip()}\n\n" if about.strip() else ""
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
    program = next((Path(word) for word in argv if word.endswith((".tl", *FILES)) and Path(word).is_file()), None)
    report.say(crash.describe(error, argv, program))
    return INTERNAL


def _closed() -> int:
    """Whoever read our output has gone: say nothing more, also not when Python closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED
