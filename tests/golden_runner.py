"""Golden tests: a file tells the whole story.

    # Why this test is there, in one line.
    # pipeline: ast
    fn f(x: f32) -> f32 = x + 1.0
    ----
    fn f(x: f32) -> f32 =
      (x + 1.0)

The text above `----` is the input (its comments too, so that line numbers are those of the file), the text below is what
the pipeline must give. A folder's test is three lines:

    @pytest.mark.parametrize("case", cases("golden/ast"), ids=str)
    def test_ast(case: Case, bless: bool) -> None:
        case.check(lambda source: dump(parse(source)), bless)

`pytest --bless` writes the expectation. A run may look at `case.pipeline` to choose what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tlc.driver.render import render_all
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.modules import STDLIB
from tlc.frontend.source import Source

TESTS = Path(__file__).parent
SEPARATOR = "----"


@dataclass(frozen=True)
class Case:
    """One file. `pipeline` is what its second line says; `expected` is None before the first `--bless`."""

    path: Path
    why: str
    pipeline: str
    text: str
    expected: str | None

    def __str__(self) -> str:
        return self.path.stem

    @property
    def source(self) -> Source:
        return Source(self.path.name, self.text)

    def check(self, run: Callable[[Source], str], bless: bool) -> None:
        """Run and compare. The rendered diagnostics are the output of a program that does not compile."""
        try:
            actual = run(self.source)
        except CompileError as error:
            actual = render_all(error.diagnostics)
        actual = actual.replace(f"{STDLIB}/", "stdlib/").rstrip("\n") + "\n"
        if bless:
            if actual != self.expected:
                self.path.write_text(f"{self.text}{SEPARATOR}\n{actual}", encoding="utf-8")
            return
        if self.expected is None:
            pytest.fail(f"{self.path.name} expects nothing yet: run pytest with --bless and read what it wrote")
        assert actual == self.expected


def cases(folder: str, pattern: str = "*") -> list[Case]:
    """The cases of a folder below `tests/`, by name."""
    return [read_case(path) for path in sorted((TESTS / folder).glob(pattern)) if path.is_file()]


def read_case(path: Path) -> Case:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) > 2 and lines[0].startswith("# "), f"{path}: the first line says why the test is there"
    assert lines[1].startswith("# pipeline: "), f"{path}: the second line names the pipeline"
    cut = next((i for i, line in enumerate(lines) if line.rstrip("\n") == SEPARATOR), len(lines))
    expected = "".join(lines[cut + 1 :]) if cut < len(lines) else None
    text = "".join(lines[:cut])
    return Case(
        path, lines[0][2:].strip(), lines[1].removeprefix("# pipeline: ").strip(), text if text.endswith("\n") else text + "\n", expected
    )
