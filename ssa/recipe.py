"""What a `trap` runs where it fails: a function that looks again, slowly and exactly, and stops with all that is to be said.

It belongs to its instruction and not to the module: no pass, no schedule and no backend spends time on what runs once, if ever. The
interpreter runs it, of a compiled program too, on the values that the `trap` is given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tlc.frontend.source import Span
from tlc.ssa.clone import clone_region
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Value, drop_block, ret, walk
from tlc.ssa.liveness import free_values

if TYPE_CHECKING:
    from tlc.ssa.world import Services


class Recipe:
    """A function without results whose parameters are the values of the `trap`. Immutable. It is pickled and printed as text; what text
    does not have is pickled beside that.
    """

    def __init__(self, function: Function) -> None:
        self.module = Module()
        self.function = self.module.add(function)

    def __str__(self) -> str:
        from tlc.ssa.text import print_module

        return print_module(self.module)

    def __repr__(self) -> str:
        return json.dumps(str(self), ensure_ascii=False)

    def __reduce__(self) -> tuple[Any, ...]:
        instrs = list(walk(self.function.body))
        return read_recipe, (str(self), tuple(i.span for i in instrs), tuple(recipe_of(i) for i in instrs if i.op == "trap"))

    def run(self, values: Sequence[Any], services: Services) -> None:
        """Raises `Stop` if there is a reason to."""
        from tlc.ssa.interp import Interpreter

        Interpreter(self.module, services).call(self.function.name, values)


def read_recipe(text: str, spans: Sequence[Span] = (), inner: Sequence[Recipe] = ()) -> Recipe:
    """The recipe of a text that was printed, with the spans of its instructions, and the recipes of the traps in it."""
    from tlc.ssa.text import parse_module

    (function,) = parse_module(text).functions.values()
    instrs = list(walk(function.body))
    for instr, span in zip(instrs, spans, strict=False):
        instr.span = span
    for trap, recipe in zip((i for i in instrs if i.op == "trap"), inner, strict=False):
        trap.attrs["recipe"] = recipe
    return Recipe(function)


def recipe_of(instr: Instr) -> Recipe:
    """That of a `trap`, of which a text has but the text."""
    recipe = instr.attrs["recipe"]
    return recipe if isinstance(recipe, Recipe) else read_recipe(str(recipe))


def watched_by(trap: Instr) -> int:
    """How many values a `trap` watches."""
    watched = trap.attrs["watched"]
    assert isinstance(watched, int)
    return watched


def closed(block: Block) -> tuple[Recipe, list[Value]]:
    """The recipe of a block that has no end yet, and the values around that it reads. The block itself is used up."""
    block.terminator = ret((), block.instrs[-1].span)
    region = Region([block])
    captured = list(free_values(region))
    entry = Block("entry")
    values: dict[Value, Value] = {v: entry.add_param(v.type, v.name) for v in captured}
    body = clone_region(region, values)
    for p in entry.params:
        p.owner = body.entry
    body.entry.params = entry.params
    drop_block(block)
    return Recipe(Function("trap", body, (), block.instrs[-1].span)), captured
