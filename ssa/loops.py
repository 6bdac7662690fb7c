"""Natural loops of one region.

A back edge goes to a block that dominates its source; that block is the loop's header. The loop's body is what reaches
the back edge without passing the header; back edges to one header make one loop. Loops nest: two are disjoint, or one holds the other.
"""

from __future__ import annotations

from tlc.frontend.records import dataclass
from tlc.ssa.cfg import predecessors, successors
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.ir import Block, Region


@dataclass(eq=False)
class Loop:
    """One natural loop. `blocks` and `latches` (sources of back edges) stand in reverse postorder, the header first."""

    header: Block
    blocks: list[Block]
    latches: list[Block]
    parent: Loop | None = None

    def __post_init__(self) -> None:
        self._members = frozenset(self.blocks)

    @property
    def depth(self) -> int:
        """1 for an outermost loop."""
        return 1 if self.parent is None else self.parent.depth + 1

    def __contains__(self, block: Block) -> bool:
        return block in self._members

    def exits(self) -> list[tuple[Block, Block]]:
        """Edges that leave the loop."""
        return [(b, t) for b in self.blocks for t in successors(b) if t not in self]

    def preheader(self) -> Block | None:
        """The one block outside that enters the loop, if there is one and it goes nowhere else."""
        assert self.header.region is not None
        outside = [p for p in predecessors(self.header.region)[self.header] if p not in self]
        return outside[0] if len(outside) == 1 and len(successors(outside[0])) == 1 else None


def loops(region: Region, tree: Dominance | None = None) -> list[Loop]:
    """The natural loops, outer before inner."""
    tree = tree or dominance(region)
    before = predecessors(region)
    number = {b: k for k, b in enumerate(tree.order)}
    found: list[Loop] = []
    for header in tree.order:
        latches = sorted({b for b in before[header] if tree.dominates(header, b)}, key=number.__getitem__)
        if not latches:
            continue
        body = {header}
        work = list(latches)
        while work:
            b = work.pop()
            if b not in body:
                body.add(b)
                work += [p for p in before[b] if p in tree.immediate]
        # An outer header comes before an inner one in reverse postorder, so the last found loop around is the innermost.
        parent = next((outer for outer in reversed(found) if header in outer), None)
        found.append(Loop(header, sorted(body, key=number.__getitem__), latches, parent))
    return found
