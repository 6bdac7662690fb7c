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


def operand_elem(op: str, position: int, elem: Elem, compared: Elem) -> Elem:
    """The element type of an operand of an op that gives `elem`; comparisons are of `compared`."""
    if op == "select" and position == 0:
        return Elem.BOOL
    return compared if SCALAR_OPS[op].gives == "bool" else elem


def evaluate(pattern: Pattern, elem: Elem, compared: Elem, choose: dict[str, Any], rng: random.Random) -> Any:
    match pattern:
        case Lit():
            return pattern.value if elem is Elem.STR else DTYPES[elem].type(pattern.value)
        case Var():
            if pattern.elems and elem not in pattern.elems:
                (elem,) = pattern.elems
            if pattern.name not in choose:
                picked = rng.choice(values(elem))
                choose[pattern.name] = picked if elem is Elem.STR else DTYPES[elem].type(picked)
            return choose[pattern.name]
        case Tree():
            operands = [operand_elem(pattern.op, k, elem, compared) for k in range(len(pattern.args))]
            args = [evaluate(a, e, compared, choose, rng) for a, e in zip(pattern.args, operands, strict=True)]
            return SCALAR_OPS[pattern.op].evaluate(elem, *args)


def variables(pattern: Pattern) -> list[Var]:
    match pattern:
        case Var():
            return [pattern]
        case Tree():
            return [v for a in pattern.args for v in variables(a)]
    return []


def compared_elems(rule: Rule, elem: Elem) -> tuple[Elem, ...]:
    """What comparisons inside of a rule compare: of a rule of bools, whatever they may."""
    if elem is not Elem.BOOL or rule.left.op == "select" or SCALAR_OPS[rule.left.op].gives == "bool":
        return (elem,)
    of_integers = any(v.elems for v in variables(rule.left))
    return (Elem.I64, Elem.U8) if of_integers else (Elem.I64, Elem.U8, Elem.F64)


def size(pattern: Pattern) -> int:
    """How many instructions a side needs; an op of constants alone needs none."""
    if not isinstance(pattern, Tree) or all(isinstance(a, Lit) or (isinstance(a, Var) and a.constant) for a in pattern.args):
        return 0
    return 1 + sum(map(size, pattern.args))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.equation)
def test_both_sides_give_the_same_bits(rule: Rule) -> None:
    rng = random.Random(rule.equation)
    compares = SCALAR_OPS[rule.left.op].gives == "bool"  # then the rule's element type is that of the operands
    for elem in rule.elems:
        if elem is Elem.BF16:
            continue
        for compared in compared_elems(rule, elem):
            for _ in range(ROUNDS):
                choose: dict[str, Any] = {}
                result = Elem.BOOL if compares else elem
                left = evaluate(rule.left, result, compared, choose, rng)
                right = evaluate(rule.right, result, compared, choose, rng)
                assert bits(left, result) == bits(right, result), (elem, compared, choose)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.equation)
def test_the_right_side_is_not_larger(rule: Rule) -> None:
    assert size(rule.right) <= size(rule.left)


def test_equations_are_distinct() -> None:
    assert len({r.equation for r in RULES}) == len(RULES)
