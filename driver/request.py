"""What the command line asks for: the flags of `tlc`, a command with its words, and reading what the words name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from tlc.driver import flags as flag
from tlc.driver import report
from tlc.driver.flags import Flag, HelpAsked, UsageError, Value
from tlc.driver.options import DEVICES, HOSTS, LEAST_SM, REGISTERS, Options, default_host, default_registers
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

if TYPE_CHECKING:
    from tlc.driver.watch import Watch
    from tlc.frontend.source import Source
    from tlc.frontend.typed import Program
    from tlc.tensor.fuse import Decision

OK, FAILED, USAGE, COMPILE, INTERNAL = 0, 1, 2, 3, 4

# fmt: off
FLAGS = (
    Flag("level", Elem.I64, 2, "how much to optimize", words=(("-O0", 0), ("-O1", 1), ("-O2", 2))),
    Flag("interp", Elem.BOOL, False, "run the interpreter of unoptimized SSA: slow, plain, the meaning of the language"),
    Flag("threads", Elem.I64, 0, "threads of the running program; 0: TLC_THREADS, or as many as there are cores"),
    Flag("host", Elem.STR, default_host(), "what makes the scalar code; TLC_HOST gives the default", choices=HOSTS),
    Flag("device", Elem.STR, "cpu", "where tensors are computed", choices=DEVICES, meant=(("gpu", "cuda"),)),
    Flag("tensor_cores", Elem.BOOL, False, "products on the tensor cores of a GPU: faster, of f32 less exact (needs `--device`)"),
    Flag("check_kernels", Elem.BOOL, False, "look for races and other faults in kernels for a GPU (very slow where it is emulated)"),
    Flag("strict_fp", Elem.BOOL, False, "reductions from left to right, without fused multiply-adds"),
    Flag("trap_nan", Elem.BOOL, False, "stop at the first infinity or NaN that finite numbers give, with its place (slow)"),
    Flag("flash", Elem.BOOL, True, "matrices between products, as in attention, are made by blocks of rows"),
    Flag("cache", Elem.BOOL, True, "keep compiled programs and use them again"),
    Flag("tuned", Elem.BOOL, True, "use the schedules that `tlc tune` found for this processor"),
    Flag("verify", Elem.BOOL, False, "check the program's form after every pass, and every allocation of registers"),
    Flag("passes", Elem.STR, "", "passes to run in place of the level's, separated by commas"),
    Flag("disable", Elem.STR, "", "passes to leave out, separated by commas"),
    Flag("dump_after", Elem.STR, "", "print the program after these passes, or after `all`"),
    Flag("time_passes", Elem.BOOL, False, "print how long each pass and stage took"),
    Flag("stats", Elem.BOOL, False, "print what passes change, and how own code uses registers"),
    Flag("explain_fusion", Elem.BOOL, False, "print which array operations became one kernel, and why others did not"),
    Flag("registers", Elem.STR, default_registers(), "for tests: how many own code may use, three of each kind if few", choices=REGISTERS),
    Flag("error_format", Elem.STR, "text", "how diagnostics are written", choices=report.FORMATS),
    Flag("version", Elem.BOOL, False, "print the version and stop"),
)
# fmt: on

STAGES = ("tokens", "ast", "typed", "cfg", "ssa", "opt", "graph", "kernels", "memory", "mir", "asm", "llvm", "c", "cuda", "ptx")
EARLY_STAGES = ("tokens", "ast", "typed")  # those that the values of main's flags cannot change


@dataclass(frozen=True)
class Command:
    """`tlc NAME WORDS`. `run` is None for what the design has and this version has not. `flags` are its own, before its words."""

    name: str
    words: str
    doc: str
    run: Callable[[Request], int] | None
    flags: tuple[Flag, ...] = ()
    takes_main: bool = False  # whether what follows a file belongs to its `main`, `--help` too

    def asks_help(self, words: Sequence[str]) -> bool:
        """Whether the words behind the name ask what the command does."""
        if self.takes_main:
            words = list(takewhile(lambda word: word.startswith("-") or not Path(word).suffix, words))
        return "--help" in words or "-h" in words

    def help_text(self) -> str:
        """What `tlc NAME --help` prints."""
        usage = f"usage: tlc [flags] {self.name} {self.words}".rstrip() + f"\n\n{self.doc}"
        return "\n".join([usage, "", "flags:", *flag.help_lines(self.flags)]) if self.flags else usage


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
        return Options(
            int(self.flags["level"]),
            bool(self.flags["verify"]),
            self.names("disable"),
            values,
            bool(self.flags["strict_fp"]),
            str(self.flags["host"]),
            self.names("passes") or None,
            str(self.flags["registers"]),
            flash=bool(self.flags["flash"]),
            device=str(self.flags["device"]),
            checked=bool(self.flags["check_kernels"]),
            tensor_cores=bool(self.flags["tensor_cores"]),
            sm=int(self.flags.get("sm", LEAST_SM)),
            tuned=bool(self.flags["tuned"]) and self.flags["device"] == "cpu",
            traps=bool(self.flags["trap_nan"]),
        )

    def names(self, name: str) -> tuple[str, ...]:
        """The names of passes that a flag lists."""
        return tuple(word for word in str(self.flags[name]).split(",") if word)

    @property
    def watched(self) -> bool:
        """Whether the compiler is to say something about its work: then it has to work."""
        return any(self.flags[name] for name in ("dump_after", "time_passes", "stats", "explain_fusion"))

    def watch(self) -> Watch:
        from tlc.driver.watch import Watch

        decisions: list[Decision] | None = [] if self.flags["explain_fusion"] else None
        return Watch(self.names("dump_after"), bool(self.flags["time_passes"]), bool(self.flags["stats"]), decisions)


def _threads_of_environment() -> int:
    """What `TLC_THREADS` says, 0 if it says nothing."""
    text = os.environ.get("TLC_THREADS", "").strip() or "0"
    if not text.isdecimal():
        raise UsageError(f"`TLC_THREADS` needs a number of threads, found `{text}`")
    return int(text)


def refuse(request: Request) -> None:
    """Flags that the design has and this version or this machine has not, and names of passes that there are not."""
    for name, choices in (("host", HOSTS), ("registers", REGISTERS)):
        if request.flags[name] not in choices:  # only the default may be none of them
            raise UsageError(f"`TLC_{name.upper()}` needs one of {', '.join(choices)}, found `{request.flags[name]}`")
    if request.flags["host"] == "x86":
        from tlc.backends.cpu import missing_for_own_code

        missing = missing_for_own_code()
        if missing:
            raise UsageError(f"`--host x86` cannot be had: {missing}")
    if request.flags["interp"] and request.flags["device"] != "cpu":
        raise UsageError(f"`--interp` and `--device {request.flags['device']}` exclude each other: the interpreter runs on the CPU")
    if request.flags["tensor_cores"]:
        if request.flags["device"] == "cpu":
            raise UsageError("`--tensor-cores` is for a GPU: it needs `--device cuda` or `--device cuda-emulated`")
        if request.flags["strict_fp"]:
            raise UsageError("`--tensor-cores` and `--strict-fp` exclude each other: tensor cores add in an order of their own")
    if request.flags["check_kernels"] and request.flags["device"] == "cpu":
        raise UsageError("`--check-kernels` looks at kernels for a GPU: it needs `--device cuda-emulated` or `--device cuda`")
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


# ---------------------------------------------------------------- what words name


def read_source(path: str, suffix: str = ".tl") -> Source:
    """Read a program. A file that cannot be read is wrong usage."""
    from tlc.frontend.source import Source

    if not path.endswith(suffix):
        what = {".tl": "a program", ".ssa": "a file of SSA"}.get(suffix, f"a file of `{suffix}`")
        raise UsageError(f"`{path}` is not {what}: its name does not end in `{suffix}`")
    try:
        return Source(path, Path(path).read_bytes().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {(error.strerror or str(error)).lower()}") from None


def checked(request: Request, source: Source) -> Program:
    """The checked program, when its warnings are said."""
    from tlc.driver import pipeline

    program = pipeline.front(source)
    if program.warnings:
        report.diagnostics(program.warnings, request.form)
    return program


def main_flags(path: str, program: Program, args: Sequence[str], command: str = "") -> dict[str, Value] | None:
    """The values for main's parameters; None after printing them for `--help`. `command`: the words between `tlc` and the program."""
    if program.main is None:
        raise UsageError(f"`{path}` has nothing to run: it has no `main` and no statements")
    return flag_values(path, flag.of_main(program.flags), args, program.doc, command)


def flag_values(path: str, flags: Sequence[Flag], args: Sequence[str], about: str = "", command: str = "") -> dict[str, Value] | None:
    """The values of a program's flags; None after printing them for `--help`."""
    try:
        return flag.parse(flags, args, before=FLAGS)
    except HelpAsked:
        doc = f"{about.strip()}\n\n" if about.strip() else ""
        print(f"{doc}usage: {' '.join(filter(None, ('tlc', command, path)))} [flags]\n\nflags:\n" + "\n".join(flag.help_lines(flags)))
        return None
