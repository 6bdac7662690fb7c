"""What a `trap` runs where it fails: a function that looks again, slowly and exactly, and stops with all that is to be said.

It belongs to its instruction and not to the module: no pass, no schedule and no backend spends time on what runs once, if ever. The
interpreter runs it, of a compiled program too, on the values that the `trap` is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.ssa.clone import clone_region
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Value, drop_block, ret, walk
from tlc.ssa.liveness import free_values

if TYPE_CHECKING:
    from tlc.ssa.world import Services


Look = Callable[[Function], None]


@dataclass(frozen=True)
class Written:
    """A function as text, with what text does not have: the spans of its instructions, and the recipes of the traps in it."""

    text: str
    spans: tuple[Span, ...] = ()
    inner: tuple[Recipe, ...] = ()

    def function(self) -> Function:
        from tlc.ssa.text import parse_module

        (function,) = parse_module(self.text).functions.values()
        instrs = list(walk(function.body))
        for instr, span in zip(instrs, self.spans, strict=False):
            instr.span = span
        for trap, recipe in zip((i for i in instrs if i.op == "trap"), self.inner, strict=False):
            trap.attrs["recipe"] = recipe
        return function


class Recipe:
    """A function without results whose parameters are the values of the `trap`. `look`, which can be pickled, puts checks into
    it. That is done, as is reading it, when it is first run or printed, which for most is never.
    """

    def __init__(self, source: Function | Written, look: Look | None = None) -> None:
        self._source = source
        self._look = look

    def function(self) -> Function:
        """The function as it is run."""
        function = self._source.function() if isinstance(self._source, Written) else self._source
        if self._look is not None:
            self._look(function)
        self._source, self._look = function, None
        return function

    def __str__(self) -> str:
        return _printed(self.function())

    def __repr__(self) -> str:
        return json.dumps(str(self), ensure_ascii=False)

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._source, Written):
            return Recipe, (self._source, self._look)
        instrs = list(walk(self._source.body))
        traps = {i: recipe_of(i) for i in instrs if i.op == "trap"}
        for trap in traps:
            trap.attrs["recipe"] = ""  # they are beside the text
        text = _printed(self._source)
        for trap, recipe in traps.items():
            trap.attrs["recipe"] = recipe
        return Recipe, (Written(text, tuple(i.span for i in instrs), tuple(traps.values())), self._look)

    def run(self, values: Sequence[Any], services: Services) -> None:
        """Raises `Stop` if there is a reason to."""
        from tlc.ssa.interp import Interpreter

        function, module = self.function(), Module()
        module.add(function)
        Interpreter(module, services).call(function.name, values)


def _printed(function: Function) -> str:
    from tlc.ssa.text import print_module

    module = Module()
    module.add(function)
    return print_module(module)


def recipe_of(instr: Instr) -> Recipe:
    """That of a `trap`, of which a text has but the text."""
    recipe = instr.attrs["recipe"]
    return recipe if isinstance(recipe, Recipe) else Recipe(Written(str(recipe)))


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
