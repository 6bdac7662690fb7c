"""Functions of the C library: the interpreter calls them through ctypes, native code by the C ABI; both give the same."""

from __future__ import annotations

import pytest
from whole_program import both


def test_every_kind_of_scalar_passes() -> None:
    text = (
        "extern fn labs(x: i64) -> i64\nextern fn abs(x: i32) -> i32\nextern fn powf(x: f32, y: f32) -> f32\n"
        "extern fn fmax(x: f64, y: f64) -> f64\nextern fn toupper(c: i32) -> i32\nextern fn srand(seed: u32)\nextern fn rand() -> i32\n"
        "fn main(n: i64 = 5) {\n"
        "  print(labs(-n), abs(-3i32), powf(2.0, f32(n)), fmax(f64(n), 7.5), toupper(97i32))\n"
        "  srand(7u32)\n  let first = rand()\n  srand(7u32)\n  print(first == rand())\n}\n"
    )
    assert both(text) == ["5 3 32.0 7.5 65", "true"]


def test_one_function_may_be_declared_in_two_ways() -> None:
    """A number of 32 bits comes back sign-extended in its register, so reading 64 would show whether it was passed as declared."""
    text = "extern fn abs(x: i32) -> i32\nfn main(n: i64 = -7) {\n  print(i64(abs(i32(n))) + 1)\n}\n"
    assert both(text) == ["8"]


@pytest.mark.parametrize("name", ["free", "clock_gettime", "memcpy"])
def test_names_of_the_run_time_do_not_clash(name: str) -> None:
    """The program's own declaration stands beside the one that the run-time support has; it is not called."""
    text = f"extern fn {name}(x: i64) -> i64\nfn main(n: i64 = 1) {{\n  if n > 1 {{ print({name}(n)) }}\n  print(n)\n}}\n"
    assert both(text) == ["1"]


def test_in_a_comprehension_and_lifted() -> None:
    text = (
        "extern fn fabs(x: f64) -> f64\nextern fn labs(x: i64) -> i64\n"
        "fn main(n: i64 = 4) {\n  print(for[i < n] if i % 2 == 0 { labs(-i) } else { 7 })\n  print(fabs(for[i < n] f64(i) - 1.5))\n}\n"
    )
    assert both(text) == ["[0 7 2 7]", "[1.5 0.5 0.5 1.5]"]
