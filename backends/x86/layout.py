"""The order of the blocks in the code, and with it which jumps cost nothing.

    entry;  head: test;  body;  latch: jump head;  exit        ->        entry: jump head;  body;  latch;  head: test;  exit

The blocks of a loop stand together, in an order in which most edges lead to the next block. A loop that ends with a jump to its header is
turned: what stands before its first exit, and the exit's test, goes to the end. So an iteration takes one jump, that of the test, where
it took the jump at the end and the test. What hardly ever runs stands at the end of the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tlc.ssa.cfg import postorder
from tlc.ssa.ir import Block, Region
from tlc.ssa.loops import Loop


def layout(region: Region, loop_of: Mapping[Block, Loop]) -> list[Block]:
    """The blocks that the entry reaches, in the order of the code; the entry first."""
    order = _loops_together(region, loop_of)
    loops = list(dict.fromkeys(loop for b in order if (loop := loop_of.get(b)) is not None))
    for loop in sorted(loops, key=lambda loop: -loop.depth):
        order = _turned(order, loop)
    cold = [b for b in order if b.terminator.op == "unreachable"]
    return [b for b in order if b not in cold] + cold


def _loops_together(region: Region, loop_of: Mapping[Block, Loop]) -> list[Block]:
    """Reverse postorder of a search that leaves a loop before it goes on in it: what is found first stands last."""

    def depth(block: Block) -> int:
        loop = loop_of.get(block)
        return 0 if loop is None else loop.depth

    def following(block: Block) -> list[Block]:
        return sorted(block.terminator.targets, key=depth, reverse=True)[::-1]

    return postorder(region, following)[::-1]


def _turned(order: list[Block], loop: Loop) -> list[Block]:
    """The order with one loop turned, if that saves a jump."""
    inside = set(loop.blocks)
    first = next(k for k, b in enumerate(order) if b in inside)
    end = first + len(loop.blocks)
    body = order[first:end]
    if first == 0 or any(b not in inside for b in body) or body[-1].terminator.op != "jump" or body[0] is not loop.header:
        return order
    leaving = next((k for k, b in enumerate(body) if _leaves(b, inside)), None)
    if leaving is None or leaving == len(body) - 1:
        return order
    return [*order[:first], *body[leaving + 1 :], *body[: leaving + 1], *order[end:]]


def _leaves(block: Block, inside: set[Block]) -> bool:
    targets: Sequence[Block] = block.terminator.targets
    return len(targets) == 2 and any(t not in inside for t in targets)
