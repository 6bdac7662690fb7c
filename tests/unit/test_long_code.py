"""Code that a program writes by the thousand: chains of operators, statements that become one kernel, elements of a literal."""

from __future__ import annotations

import pytest
from whole_program import once, options

from tlc.driver import pipeline
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.source import Source
from tlc.tensor.kernel.ir import Kernel


def test_a_chain_may_be_as_long_as_it_likes() -> None:
    """Operators that group to the left: integers, mixed ones, `and`, whose right side is not evaluated, and reals in their order."""
    lines = once(f"""
fn main(n: i64 = 1) {{
  print({" + ".join(["n"] * 300)}, {" + n - ".join(["n"] * 150)})
  print({" and ".join(["n > 0"] * 250)} and n > 1 and 1 // (n - 1) > 0)
  let third = 1.0f64 / 3.0
  print({" + ".join(["third"] * 250)})
}}
""")
    total = 0.0
    for _ in range(250):
        total += 1 / 3
    assert lines == ["300 1", "false", repr(total)]


def test_other_nesting_has_a_limit() -> None:
    for text in (f"const X = {' + '.join(['1'] * 500)}\n", f"fn main() {{ print({'-' * 500}1) }}\n"):
        with pytest.raises(CompileError) as error:
            pipeline.front(Source("test.tl", text))
        assert [d.code for d in error.value.diagnostics] == ["E0114"]


def test_what_fuses_stays_shallow() -> None:
    """Hundreds of statements on one tensor, and one comprehension as deep: `b -> b / 2 + 1` ends at 2."""
    assert once("fn main(n: i64 = 3) {\n  var b = for[i < n] f64(i)\n" + "  b = b * 0.5 + 1.0\n" * 170 + "  print(b)\n}\n") == ["[2. 2. 2.]"]
    deep = "fn main(n: i64 = 3) {\n  let a = for[i < n] 1.0f64\n  print(for[i] " + " * ".join(["a[i]"] * 400) + ")\n}\n"
    assert once(deep) == ["[1. 1. 1.]"]


def test_a_literal_is_linear() -> None:
    """Each element is written down once: twice the elements, twice the instructions."""
    sizes = []
    for count in (100, 200):
        program = pipeline.front(Source("test.tl", f"fn main() {{ print(sum([{', '.join(f'{k}.5' for k in range(count))}])) }}"))
        memory = next(value for name, _, value in pipeline.middle(program, options(program, None)) if name == "memory")
        assert all(isinstance(k, Kernel) for k in memory.kernels.values())
        sizes.append(sum(len(b.instrs) for b in memory.module.functions["main"].blocks))
    assert sizes[1] < 2.1 * sizes[0]
