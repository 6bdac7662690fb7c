"""Every rewrite rule: both sides give the same bits on special and random values, and the right side is not larger."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.opt.rewrite import Lit, Pattern, Rule, Tree, Var
from tlc.opt.rules import RULES

ROUNDS = 60


def values(elem: Elem) -> list[Any]:
    """The values at which rules go wrong."""
    if elem is Elem.BOOL:
        return [False, True]
    if elem is Elem.STR:
        return ["", "a", "b"]
    if elem.is_real:
        return [0.0, -0.0, 1.0, -1.0, 0.1, -2.5, np.inf, -np.inf, np.nan, np.finfo(DTYPES[elem]).max, np.finfo(DTYPES[elem]).tiny]
    if elem is Elem.KEY:
        return [0, 1, 2**64 - 1]
    info = np.iinfo(DTYPES[elem])
    return [0, 1, 2, 3, 7, info.max, info.min, info.max - 1, info.min + 1] + ([-1, -2] if info.min < 0 else [])


def bits(value: Any, elem: Elem) -> Any:
    if elem is Elem.STR:
        return value
    kind = DTYPES[elem].type
    return kind(np.nan).tobytes() if elem.is_real and np.isnan(value) else kind(value).tobytes()


def operand_elem(op: str, position: int, elem: Elem) -> Elem:
    """The element type of an operand of an op that gives `elem`."""
    if op == "select" and position == 0:
        return Elem.BOOL
    return Elem.I64 if SCALAR_OPS[op].gives == "bool" and elem is Elem.BOOL else elem


def evaluate(pattern: Pattern, elem: Elem, choose: dict[str, Any], rng: random.Random) -> Any:
    match pattern:
        case Lit():
            return pattern.value if elem is Elem.STR else DTYPES[elem].type(pattern.value)
        case Var():
            if pattern.name not in choose:
                picked = rng.choice(values(elem))
                choose[pattern.name] = picked if elem is Elem.STR else DTYPES[elem].type(picked)
            return choose[pattern.name]
        case Tree():
            args = [evaluate(a, operand_elem(pattern.op, k, elem), choose, rng) for k, a in enumerate(pattern.args)]
            return SCALAR_OPS[pattern.op].evaluate(elem, *args)


def size(pattern: Pattern) -> int:
    """How many instructions a side needs; an op of constants alone needs none."""
    if not isinstance(pattern, Tree) or all(isinstance(a, Lit) or (isinstance(a, Var) and a.constant) for a in pattern.args):
        return 0
    return 1 + sum(map(size, pattern.args))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.equation)
def test_both_sides_give_the_same_bits(rule: Rule) -> None:
    rng = random.Random(rule.equation)
    compares = SCALAR_OPS[rule.left.op].gives == "bool"
    for elem in rule.elems:
        if elem is Elem.BF16:
            continue
        for _ in range(ROUNDS):
            choose: dict[str, Any] = {}
            if compares:  # the rule's element type is that of the operands
                args = [evaluate(a, elem, choose, rng) for a in rule.left.args]
                left, result = SCALAR_OPS[rule.left.op].evaluate(Elem.BOOL, *args), Elem.BOOL
            else:
                left, result = evaluate(rule.left, elem, choose, rng), elem
            right = evaluate(rule.right, result, choose, rng)
            assert bits(left, result) == bits(right, result), (elem, choose)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.equation)
def test_the_right_side_is_not_larger(rule: Rule) -> None:
    assert size(rule.right) <= size(rule.left)


def test_equations_are_distinct() -> None:
    assert len({r.equation for r in RULES}) == len(RULES)
