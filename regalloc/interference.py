"""The interference graph of a function as data, for drawing. The allocator itself never builds it (see `ranges.py`)."""

from __future__ import annotations

from tlc.frontend.records import dataclass
from tlc.regalloc.assign import Assignment
from tlc.regalloc.ir import Bank, VReg
from tlc.regalloc.ranges import Ranges


@dataclass(frozen=True)
class Graph:
    """Nodes are numbers of virtual registers, ascending, with a name to show. Two interfere if they are live at once and of one bank.
    `copies` are the pairs that would like one place, with how often they are copied. `colours`: the registers that hold a
    node, in the order of its life; "frame" where it is in the frame.
    """

    nodes: tuple[tuple[int, str, Bank], ...]
    edges: tuple[tuple[int, int], ...]
    copies: tuple[tuple[int, int, float], ...]
    colours: dict[int, tuple[str, ...]]


def graph(ranges: Ranges, assignment: Assignment) -> Graph:
    nodes: list[tuple[int, str, Bank]] = []
    points: dict[int, int] = {}
    colours: dict[int, tuple[str, ...]] = {}
    for n, vreg in enumerate(ranges.vregs):
        bundle = assignment.bundle_of[n]
        if vreg is None or bundle is None:
            continue
        nodes.append((n, vreg.name or str(vreg), vreg.bank))
        points[n] = rest = ranges.bits(n)
        held: list[tuple[int, str]] = []
        for piece in bundle.pieces:
            common = piece.points & points[n]
            if common:
                rest &= ~common
                held.append(((common & -common).bit_length(), str(piece.reg)))
        if rest:
            held.append(((rest & -rest).bit_length(), "frame"))
        colours[n] = tuple(dict.fromkeys(name for _, name in sorted(held)))
    edges = tuple(
        (a, b) for k, (a, _, bank) in enumerate(nodes) for b, _, other in nodes[k + 1 :] if bank is other and points[a] & points[b]
    )
    weights: dict[tuple[int, int], float] = {}
    for copy in ranges.copies:
        if isinstance(copy.target, VReg) and isinstance(copy.source, VReg):
            a, b = sorted((copy.target.number, copy.source.number))
            if a != b:
                weights[a, b] = weights.get((a, b), 0.0) + copy.weight
    copies = tuple((a, b, w) for (a, b), w in sorted(weights.items()))
    return Graph(tuple(nodes), edges, copies, colours)
