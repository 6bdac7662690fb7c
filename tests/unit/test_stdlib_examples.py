"""The examples of the standard library: `>>> expression` in a `##` comment, and what `print` writes for it in the lines behind.

The examples of a module are one program, so that they cost one compilation. Expected texts are worked out by hand, NumPy or PyTorch.
"""

from __future__ import annotations

import pytest
from whole_program import interpreted, natively

from tlc.driver import documentation as docs
from tlc.driver import pipeline
from tlc.driver.builtin_docs import ROWS
from tlc.frontend.check.builtins import BUILTINS
from tlc.frontend.check.callee import TRANSFORMS
from tlc.frontend.source import Source

OUTSIDE = {"data", "io", "plot"}  # what these do depends on files
MODULES = [name for name in docs.names() if name not in OUTSIDE]
SLOW = {"linalg", "random"}  # much code: native code of it runs in tests of their own
NO_VALUE = {"fail", "clock"}


def entries(module: str) -> tuple[docs.Entry, ...]:
    page = docs.page(module)
    assert page is not None
    return page.entries


def functions(module: str) -> list[docs.Entry]:
    """What programs call."""
    return [e for e in entries(module) if not e.head.startswith(("struct", "const"))]


@pytest.mark.parametrize("module", MODULES)
def test_every_function_has_an_example(module: str) -> None:
    assert [e.name for e in functions(module) if not e.examples and e.name not in NO_VALUE] == []


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    wanted = [(e.name, *example) for e in functions(module) for example in e.examples]
    uses = "\n".join(f"use {name}" for name in MODULES if name not in (docs.BUILTINS, *docs.ALWAYS))
    body = "\n".join(f'  print("----")\n  print({expression})' for _, expression, _ in wanted)
    program = pipeline.front(Source("examples.tl", f"{uses}\nfn main() {{\n{body}\n}}\n"))
    printed = [interpreted(program)]
    if module not in SLOW:
        printed.append(natively(program, level=1))
    for lines in printed:
        found = [text.rstrip("\n") for text in "\n".join(lines).split("----\n")[1:]]
        assert [(name, e, f) for (name, e, _), f in zip(wanted, found, strict=True)] == wanted


def test_every_builtin_is_documented() -> None:
    assert set(ROWS) == {*BUILTINS, *TRANSFORMS}
