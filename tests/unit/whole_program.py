"""For tests: whole programs from text, natively with every stage verified, and by the interpreter of unoptimized SSA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ssa_services import Recorder

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.ssa.interp import Stop

Values = Mapping[str, bool | int | float | str]


def both(text: str, values: Values | None = None, level: int = 2, strict: bool = False) -> list[str]:
    """The lines that a program prints, which are the same in both ways and with every host; a stop is the last line."""
    program = pipeline.front(Source("test.tl", text))
    expected = interpreted(program, values, strict)
    for host in pipeline.hosts():
        assert natively(program, values, level, strict, host) == expected, host
    return expected


def once(text: str) -> list[str]:
    """The same with one host."""
    program = pipeline.front(Source("test.tl", text))
    expected = interpreted(program)
    assert natively(program, host=pipeline.hosts()[-1]) == expected
    return expected


def options(program: Program, values: Values | None, level: int = 2, strict: bool = False, host: str = "llvm") -> Options:
    defaults = {f.name: f.default for f in program.flags if f.default is not None}
    return Options(level, verify=True, flags={**defaults, **(values or {})}, strict=strict, host=host)


def interpreted(program: Program, values: Values | None = None, strict: bool = False) -> list[str]:
    services = Recorder()
    try:
        pipeline.interpret(program, options(program, values, strict=strict), services)
    except Stop as e:
        services.lines.append(e.message)
    return "\n".join(services.lines).splitlines()


def natively(program: Program, values: Values | None = None, level: int = 2, strict: bool = False, host: str = "llvm") -> list[str]:
    services = Recorder()
    try:
        Native(pipeline.build(program, options(program, values, level, strict, host), {}), services).run()
    except Stop as e:
        services.lines.append(e.message)
    return "\n".join(services.lines).splitlines()


def stage(name: str, text: str) -> Any:
    """What this stage of the compiler makes of a program."""
    program = pipeline.front(Source("test.tl", text))
    return next(value for found, _, value in pipeline.middle(program, options(program, None)) if found == name)


def printed(definitions: str, whats: Mapping[str, str], run: Callable[[str], list[str]] = once) -> dict[str, list[str]]:
    """What `print` makes of each of these, in one program, by name."""
    body = "".join(f'  print("-- {name}")\n  print({what})\n' for name, what in whats.items())
    out: dict[str, list[str]] = {}
    for line in run(f"{definitions}fn main() {{\n{body}}}\n"):
        if line.startswith("-- "):
            out[line[3:]] = []
        else:
            out[next(reversed(out))].append(line)
    return out
