"""How values print."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlc.ssa.formatting import count_leaves, fill, leaf, render, shortest, template_leaves


@given(st.floats())
def test_f64_prints_as_python(x: float) -> None:
    assert shortest(np.float64(x)) == repr(x)


@given(st.floats(width=32))
def test_f32_reads_back(x: float) -> None:
    value = np.float32(x)
    assert np.array_equal(np.float32(shortest(value)), value, equal_nan=True)
    assert len(digits(shortest(value))) <= len(digits(repr(x)))


def digits(text: str) -> str:
    """The digits of a number that say something."""
    return text.partition("e")[0].replace(".", "").strip("-0")


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (np.float32(0.1), "", "0.1"),
        (np.float32(1e-5), "", "1e-05"),
        (np.float32(1), "", "1.0"),
        (np.float32(1e16), "", "1e+16"),
        (np.float32(0.1), ".2%", "10.00%"),
        (np.float16(0.1), "", "0.1"),
        (np.int64(-3), "4", "  -3"),
        (np.bool_(True), "", "true"),
        (np.bool_(False), ">6", " false"),
        ("text", "", "text"),
        ("text", ">6", "  text"),
        (np.array([1.0, 0.5], np.float32), "", "[1.  0.5]"),
        (np.array([1.0, 0.5], np.float32), ".2f", "[1.00 0.50]"),
        (np.array([[1, 20], [3, 4]]), "", "[[ 1 20]\n [ 3  4]]"),
        (np.array([True, False]), "", "[ true false]"),
        (np.array([True, True]), "", "[true true]"),
        (np.array(["a", "b"], dtype=object), "", "['a' 'b']"),
        (np.arange(2000), "", "[   0    1    2 ... 1997 1998 1999]"),
        (np.array([], np.float32), "", "[]"),
        (np.array(2.5, np.float32), "", "2.5"),
    ],
)
def test_leaves(value: object, spec: str, text: str) -> None:
    assert leaf(value, spec) == text


def test_print_options_do_not_matter() -> None:
    with np.printoptions(precision=2, threshold=3, suppress=True):
        assert leaf(np.array([0.123456, 1.0, 1.0, 1.0])) == "[0.123456 1.       1.       1.      ]"


def test_layouts() -> None:
    layout = ("struct", "Model", ("w", "rest"), ("leaf", ("tuple", ("leaf", ("tuple", ("leaf",))))))
    template = ("m = ", ("hole", ".1f", layout), "; n = ", ("hole", "", "leaf"))
    assert count_leaves(layout) == 3
    assert template_leaves(template) == 4
    leaves = [np.float32(0.25), np.float64(1), np.array([1.0, 2.0]), np.int64(3)]
    assert render(template, leaves) == "m = Model(w = 0.2, rest = (1.0, ([1.0 2.0],))); n = 3"


def test_messages() -> None:
    assert fill("index {0} is out of range for {1} {x}", [np.int64(7), np.int64(3)]) == "index 7 is out of range for 3 {x}"
