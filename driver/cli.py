"""The command line: `tlc [flags] prog.tl [flags of main]` and the commands.

Exit status: 0 fine, 1 the program failed, 2 wrong usage, 3 a compile error, 4 a failure of the compiler itself.
Heavy parts are imported where they are used, so that `--help`, `--version` and a typing mistake answer at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tlc.driver import flags as flag
from tlc.driver import output, report
from tlc.driver.file_commands import EMIT, RUN, opt, refuse_device
from tlc.driver.flags import Flag, HelpAsked, UsageError
from tlc.driver.options import LEAST_SM
from tlc.driver.output import OutputError
from tlc.driver.profile_command import FLAGS as PROFILE_FLAGS
from tlc.driver.profile_command import profile
from tlc.driver.request import (
    COMPILE,
    EARLY_STAGES,
    FAILED,
    FLAGS,
    INTERNAL,
    OK,
    STAGES,
    USAGE,
    Command,
    Request,
    checked,
    main_flags,
    read_source,
    refuse,
)
from tlc.driver.start import INTERRUPTED
from tlc.driver.tune_command import FLAGS as TUNE_FLAGS
from tlc.driver.tune_command import tune
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.types import Elem

if TYPE_CHECKING:
    from tlc.frontend.source import Source
    from tlc.ssa.world import Services

# ---------------------------------------------------------------- the entry


def entry() -> None:
    """The console script."""
    gc.freeze()  # what is loaded stays
    output.prepare()
    sys.exit(main(sys.argv[1:]))


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
            status = OK
        else:
            request = Request(words, flag.complete(FLAGS, given))
            form = request.form
            status = _dispatch(request)
    except (Exception, KeyboardInterrupt) as error:
        status = _answer(error, argv, form)
    try:
        sys.stdout.flush()
    except (OutputError, BrokenPipeError) as error:
        status = _answer(error, argv, form)
    return status


def help_text() -> str:
    """What `tlc --help` prints."""
    usage = [("tlc [flags] PROGRAM.tl [flags of its main]", "compile a program and run it")]
    usage += [("tlc [flags] FILE [flags]", f"run an intermediate form: {' '.join(RUN)}")]
    usage += [("tlc [flags]", "the prompt; without a terminal it reads entries")]
    usage += [(f"tlc [flags] {command.name} {command.words}".rstrip(), command.doc) for command in COMMANDS if command.run is not None]
    width = max(len(left) for left, _ in usage)
    lines = [f"  {left:{width}}  {right}" for left, right in usage]
    return "\n".join(["usage:", *lines, "", "flags of tlc, before the program:", *flag.help_lines(FLAGS)])


def _dispatch(request: Request) -> int:
    if request.flags["version"]:
        return _version()
    refuse(request)
    if not request.words:
        return _repl(request)
    first, *rest = request.words
    command = next((c for c in COMMANDS if c.name == first), None)
    if command is not None:
        if command.run is None:
            raise UsageError(f"`tlc {first}` is not supported yet")
        try:
            if command.asks_help(rest):
                raise HelpAsked
            return command.run(Request(rest, request.flags))
        except HelpAsked:
            print(command.help_text())
            return OK
    if Path(first).suffix:
        refuse_device(request, first)
        return RUN.get(Path(first).suffix, _run)(request)
    hint = f"; did you mean `{first}.tl`?" if Path(f"{first}.tl").is_file() else flag.near(first, [c.name for c in COMMANDS if c.run])
    raise UsageError(f"`{first}` is neither a program (its name ends in `.tl`) nor a command of tlc{hint}")


# ---------------------------------------------------------------- the commands


def _run(request: Request) -> int:
    """`tlc prog.tl`"""
    path, *args = request.words
    source = read_source(path)
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

    program = checked(request, source)
    values = main_flags(source.path, program, args)
    if values is not None:
        pipeline.interpret(program, request.options(values), services)


def _run_native(request: Request, source: Source, args: list[str], services: Services) -> None:
    """A program that was compiled before, with the same flags, is not compiled again."""
    from tlc.backends.runtime.native import Native
    from tlc.driver.cache import Cache, command_key
    from tlc.frontend.disk_cache import NOWHERE

    # what runs on a device is no object: a GPU keeps its own
    keeps = request.flags["cache"] and request.flags["device"] != "cuda" and not request.flags["check_kernels"]
    kept = Cache() if keeps and not request.flags["verify"] and not request.watched else Cache(NOWHERE)
    command = command_key(source, request.options(), args)
    executable = kept.find(command)
    if executable is None:
        from tlc.driver import pipeline

        watch = request.watch()
        with watch.stage("front"):
            program = checked(request, source)
        values = main_flags(source.path, program, args)
        if values is None:
            return
        executable = pipeline.build(program, request.options(values), kept, watch)
        watch.say()
        if not program.warnings:  # they are said again each time
            kept.keep(command, executable, program.sources)
    Native(executable, services, request.threads).run()


def _check(request: Request) -> int:
    """Every program is looked at, whatever the others say."""
    if not request.words:
        raise UsageError("`tlc check` needs a program")
    sources = [read_source(path) for path in request.words]
    status = OK
    for source in sources:
        try:
            checked(request, source)
        except CompileError as error:
            report.diagnostics(error.diagnostics, request.form)
            status = COMPILE
    return status


def _emit(request: Request) -> int:
    """`tlc emit STAGE prog.tl [--fn NAME] [flags of main]`: what `tlc prog.tl [flags of main]` would make. Before the program,
    `ptx` takes `--sm N`, and `cuda` and `ptx` take `--tensor-cores`.
    """
    function, words = _take_fn(request.words)
    if not words:
        raise UsageError(f"`tlc emit` needs a stage ({', '.join(STAGES)}) and a program")
    stage, *words = words
    if stage not in STAGES:
        raise UsageError(f"there is no stage `{stage}`{flag.near(stage, STAGES)}; the stages are {', '.join(STAGES)}")
    if stage in ("cuda", "ptx"):
        request, words = _take_gpu(request, words, stage)
    if not words:
        raise UsageError(f"`tlc emit {stage}` needs a program")
    from tlc.driver.excerpt import definitions, excerpt

    refuse_device(request, words[0])
    text = EMIT.get(Path(words[0]).suffix, _emit_program)(request, stage, words)
    if text is None:
        return OK
    text = text.rstrip("\n")
    if function:
        part = excerpt(text, function)
        if not part:
            names = [name for name, _ in definitions(text)]
            gone = "; what is called in few places becomes part of its callers" if stage not in ("ast", "typed", "cfg") else ""
            hint = flag.near(function, names) or gone
            raise UsageError(f"there is no function `{function}` in `{stage}`{hint}; there are {', '.join(names)}")
        text = part
    print(text)
    return OK


def _emit_program(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a program; None where `--help` was asked for."""
    from tlc.driver import pipeline, stage_texts
    from tlc.driver.token_text import token_text

    path, *args = words
    source = read_source(path)
    if stage == "tokens":
        return token_text(source)
    if not args and stage in EARLY_STAGES:
        return stage_texts.early_text(source, stage)
    program = pipeline.front(source)
    values = main_flags(path, program, args, f"emit {stage}")
    if values is None:
        return None
    if stage in EARLY_STAGES:
        return stage_texts.early_text(source, stage)
    watch = request.watch()
    text = stage_texts.stage_text(program, stage, request.options(values), path, watch)
    watch.say()
    return text


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


def _take_gpu(request: Request, words: list[str], stage: str) -> tuple[Request, list[str]]:
    """`--tensor-cores`, and of PTX `--sm N`, before the program become flags of the request; the other words."""
    sm = Flag("sm", Elem.I64, LEAST_SM, "the architecture of the GPU, as in `sm_90`")
    tensor_cores = next(f for f in FLAGS if f.name == "tensor_cores")
    given, rest = flag.parse_until_word((tensor_cores, sm) if stage == "ptx" else (tensor_cores,), words)
    if int(given.get("sm", LEAST_SM)) < LEAST_SM:
        raise UsageError(f"`--sm` needs an architecture from {LEAST_SM} on, as in `sm_{LEAST_SM}`, found {given['sm']}")
    request = Request(rest, {**request.flags, **given})
    if request.flags["tensor_cores"]:
        refuse(Request(rest, {**request.flags, "device": "cuda"}))
    return request, rest


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


def _doc(request: Request) -> int:
    from tlc.driver.doc_command import doc

    return doc(request)


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


TO_COME = ("fmt", "build", "explore", "bisect", "lsp")
# fmt: off
COMMANDS = (
    Command("check",   "PROGRAM.tl ...",                 "find the errors of programs, run nothing",        _check),
    Command("emit",    "STAGE PROGRAM.tl [--fn NAME]",   "print a stage; `tlc emit` alone names them",      _emit, (), True),
    Command("opt",     "FILE.ssa [--passes NAME,NAME]",  "run passes over a text of SSA and print it",      opt),
    Command("profile", "[flags] PROGRAM.tl",             "run a program and say where its time went",       profile, PROFILE_FLAGS, True),
    Command("tune",    "[flags] PROGRAM.tl",             "find the fastest schedules of a program's kernels", tune, TUNE_FLAGS, True),
    Command("explain", "CODE",                           "what a code of a diagnostic means",               _explain),
    Command("doc",     "[NAME | PROGRAM.tl [NAME]]",     "the documentation of the library, or of a program", _doc),
    Command("cache",   "[clear]",                        "show the cache of compiled programs, or empty it", _cache),
    Command("data",    "[get NAME ...]",                 "list the data sets, or fetch one",                _data),
    Command("repl",    "",                               "what `tlc` alone does",                           _repl),
    *(Command(name, "", "", None) for name in TO_COME),
)
# fmt: on

# ---------------------------------------------------------------- helpers


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
        case OutputError():
            report.message(str(error), form)
            return FAILED
        case BrokenPipeError():  # whoever read our output has gone
            return FAILED
        case _:
            return _failed(error, argv, form)


def _failed(error: BaseException, argv: Sequence[str], form: str) -> int:
    """The running program stopped itself, or the compiler has a fault."""
    from tlc.driver import crash
    from tlc.frontend.source import NOWHERE
    from tlc.ssa.world import RuntimeStop, Stop

    if isinstance(error, RuntimeStop):
        error = error.at(NOWHERE)
    if isinstance(error, Stop):
        report.stop(error, form)
        return FAILED
    if isinstance(error, MemoryError):
        report.stop(Stop("there is not enough memory for a tensor", NOWHERE, "memory"), form)
        return FAILED
    program = next((Path(word) for word in argv if word.endswith((".tl", *RUN)) and Path(word).is_file()), None)
    report.say(crash.describe(error, argv, program))
    return INTERNAL
