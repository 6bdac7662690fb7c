"""The examples of the modules that deal with files and the terminal: lines behind `>>>` in a `##` comment, and what they write.

A line without anything behind it is a statement; an expression is printed. All of a module run in one program, in a folder of their own.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tlc.backends.runtime.externs import EXTERNS, SPEAKING, extern
from tlc.backends.runtime.native import Native
from tlc.backends.runtime.services import WorldServices
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend import ast, modules
from tlc.frontend.source import Source

MODULES = ("data", "io", "plot")
WITHOUT = {"io.read_line"}  # waits for somebody


def functions(module: str) -> list[ast.Function]:
    tree = modules.library(module)
    assert tree is not None
    return [d for d in tree.definitions if isinstance(d, ast.Function) and d.doc]


def examples(f: ast.Function) -> list[tuple[str, str]]:
    """The lines of code, each with what is written for it."""
    found: list[tuple[str, list[str]]] = []
    for line in f.doc.split("\n"):
        if line.startswith(">>> "):
            found.append((line[4:], []))
        elif found:
            found[-1][1].append(line)
    return [(code, "\n".join(lines)) for code, lines in found]


def test_every_function_has_an_example() -> None:
    missing = {f"{m}.{f.name}" for m in MODULES for f in functions(m) if not examples(f)}
    assert missing == WITHOUT


def test_every_service_has_a_row() -> None:
    """The `extern fn`s of the library, and what the compiler calls by itself: `clock()`, and `print` with an `end`."""
    library = {name: modules.library(name) for name in modules.library_names()}
    declared = [f"{m}.{d.name}" for m, tree in library.items() if tree is not None for d in tree.definitions if isinstance(d, ast.Function) and d.extern]
    assert sorted([*declared, "clock", "put"]) == sorted([*EXTERNS, *SPEAKING])
    assert all(callable(extern(name)) for name in (*EXTERNS, *SPEAKING))


@pytest.mark.parametrize("way", ["interp", *pipeline.hosts()])
@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TLC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save("x.npy", np.arange(6.0).reshape(2, 3))
    acts = {f"{m}.{f.name}(" for m in MODULES for f in functions(m) if f.result is None}
    body, wanted = "", []
    for f in functions(module):
        for code, text in examples(f):
            statement = not text or any(code.startswith(act) for act in acts)
            body += f'  print("----")\n  {code if statement else f"print({code})"}\n'
            wanted.append((f.name, code, text))
    uses = "".join(f"use {m}\n" for m in MODULES)
    program = pipeline.front(Source("examples.tl", f"{uses}fn main() {{\n{body}}}\n"))
    output = io.StringIO()
    services = WorldServices(output)
    if way == "interp":
        pipeline.interpret(program, Options(flags={}, verify=True), services)
    else:
        Native(pipeline.build(program, Options(1, verify=True, flags={}, host=way), {}), services).run()
    found = [text.rstrip("\n") for text in output.getvalue().split("----\n")[1:]]
    assert [(name, code, text) for (name, code, _), text in zip(wanted, found, strict=True)] == wanted
