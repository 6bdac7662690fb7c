"""From blocks and jumps to the statements of C that people write: `if`, `for (;;)`, `while`, `break`.

Source: Ramsey, "Beyond Relooper: recursive translation of unstructured control flow to structured control flow" (2022). A block's code
is followed by that of the blocks which it dominates and which are joined from several sides, in reverse postorder; a block with one
predecessor stands where its predecessor jumps to it. A loop's header opens `for (;;)`; what leaves the loop stands behind
it. A jump to what follows anyway is nothing, one to the loop's header `continue`, one behind the loop `break`; the
rest are `goto`s. Where a cycle has no single entry, all jumps are `goto`s.

    head(n):  branch c, body, exit       for (;;) {              while (c) {
    body:     jump head(n + 1)             if (!c) break;    =     n = n + 1;
    exit:     return n                     n = n + 1;            }
                                         }                       return n;
                                         return n;
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

from tlc.backends.c.words import UNARY, Text
from tlc.frontend.records import dataclass
from tlc.ssa.cfg import predecessors
from tlc.ssa.dominance import dominance
from tlc.ssa.ir import Block, Region
from tlc.ssa.loops import Loop, loops


@dataclass(frozen=True)
class Line:
    """A statement. `ends`: nothing behind it is reached."""

    text: str
    ends: bool = False


@dataclass(frozen=True)
class Let:
    """A name for a value, until its braces close: hoisted to the top of the function if it is read outside of them."""

    type: str
    name: str
    value: str


@dataclass(frozen=True)
class Label:
    block: Block


@dataclass(frozen=True)
class Goto:
    block: Block
    ends: bool = True


@dataclass(frozen=True)
class If:
    cond: Text
    then: list[Item]
    other: list[Item]


@dataclass(frozen=True)
class Forever:
    body: list[Item]


Item = Line | Let | Label | Goto | If | Forever


@dataclass
class Code:
    """What `structure` asks for: the statements of a block, of an edge (the moves that it makes), and its condition if it branches; and
    what is not so (in C where nothing else is said).
    """

    block: Callable[[Block], list[Item]]
    edge: Callable[[Block, int], list[Item]]
    condition: Callable[[Block], Text]
    negated: Callable[[Text], Text] = field(default_factory=lambda: negated)


def structure(region: Region, code: Code) -> list[Item]:
    """The statements of a region, from its entry on."""
    return _Structure(region, code).run()


@dataclass(frozen=True)
class _Around:
    """The loop around a place: jumps to `head` are `continue`, those to `behind` are `break`."""

    head: Block
    behind: Block | None


@dataclass
class _Structure:
    region: Region
    code: Code
    around: list[_Around] = field(default_factory=list)

    def run(self) -> list[Item]:
        tree = dominance(self.region)
        self.order = {b: k for k, b in enumerate(tree.order)}
        self.children = tree.children()
        self.into = {b: [p for p in ps if p in self.order] for b, ps in predecessors(self.region).items()}
        self.innermost: dict[Block, Loop] = {}
        for loop in loops(self.region, tree):
            for b in loop.blocks:
                self.innermost[b] = loop
        single_entries = all(tree.dominates(t, b) for b in tree.order for t in b.terminator.targets if self.order[t] <= self.order[b])
        return self.tree(self.region.entry, None) if single_entries else self.flat(tree.order)

    # ------------------------------------------------------------ trees

    def tree(self, block: Block, follow: Block | None) -> list[Item]:
        """A block and all that it dominates; `follow` comes behind."""
        loop = self.innermost.get(block)
        if loop is None or loop.header is not block:
            return self.inside(block, follow)
        behind = self.behind(loop)
        self.around.append(_Around(block, behind[0] if behind else follow))
        body = self.inside(block, block)
        self.around.pop()
        return [Label(block), Forever(body), *self.sequence(behind, follow)]

    def behind(self, loop: Loop) -> list[Block]:
        """What stands behind a loop: blocks outside that its blocks dominate immediately, if they are in all loops around it."""
        out = [c for b in loop.blocks for c in self.children[b] if c not in loop and (loop.parent is None or c in loop.parent)]
        return sorted(out, key=self.order.__getitem__)

    def sequence(self, blocks: list[Block], follow: Block | None) -> list[Item]:
        out: list[Item] = []
        for k, b in enumerate(blocks):
            if not self.is_header(b):
                out.append(Label(b))
            out += self.tree(b, blocks[k + 1] if k + 1 < len(blocks) else follow)
        return out

    def is_header(self, block: Block) -> bool:
        loop = self.innermost.get(block)
        return loop is not None and loop.header is block

    def together(self, a: Block, b: Block) -> bool:
        """b lies in every loop in which a lies."""
        loop = self.innermost.get(a)
        return loop is None or b in loop

    def inside(self, block: Block, follow: Block | None) -> list[Item]:
        """A block, without the loop that it may open."""
        joined = [c for c in self.children[block] if self.together(block, c) and not self.is_single(c)]
        after = joined[0] if joined else follow
        return [*self.code.block(block), *self.ending(block, after), *self.sequence(joined, follow)]

    def is_single(self, block: Block) -> bool:
        return len(self.into[block]) == 1

    def ending(self, block: Block, follow: Block | None) -> list[Item]:
        targets = block.terminator.targets
        if not targets:
            return []
        arms = [self.arm(block, k, follow) for k in range(len(targets))]
        return arms[0] if len(arms) == 1 else choose(self.code.condition(block), arms[0], arms[1], self.code.negated)

    def arm(self, block: Block, edge: int, follow: Block | None) -> list[Item]:
        target = block.terminator.targets[edge]
        moves = self.code.edge(block, edge)
        if self.is_single(target) and self.together(block, target):
            return [*moves, *self.tree(target, follow)]
        return [*moves, *self.jump(target, follow)]

    def jump(self, target: Block, follow: Block | None) -> list[Item]:
        if target is follow:
            return []
        if self.around and target is self.around[-1].head:
            return [Line("continue;", ends=True)]
        if self.around and target is self.around[-1].behind:
            return [Line("break;", ends=True)]
        return [Goto(target)]

    # ------------------------------------------------------------ without structure

    def flat(self, order: list[Block]) -> list[Item]:
        out: list[Item] = []
        for k, b in enumerate(order):
            follow = order[k + 1] if k + 1 < len(order) else None
            out += [Label(b), *self.code.block(b)]
            arms = [[*self.code.edge(b, e), *self.jump(t, follow)] for e, t in enumerate(b.terminator.targets)]
            if arms:
                out += arms[0] if len(arms) == 1 else choose(self.code.condition(b), arms[0], arms[1], self.code.negated)
        return out


def choose(cond: Text, then: list[Item], other: list[Item], negated: Callable[[Text], Text]) -> list[Item]:
    """A branch; an arm that does not come back needs no `else` behind it."""
    if not then and not other:
        return []
    if not then or (other and _ends(other) and not _ends(then)):
        cond, then, other = negated(cond), other, then
    return [If(cond, then, []), *other] if _ends(then) else [If(cond, then, other)]


def negated(cond: Text) -> Text:
    if cond.binds == UNARY and cond.text.startswith("!"):
        inner = cond.text[1:]
        return Text(inner[1:-1] if inner.startswith("(") else inner, UNARY)
    return Text(f"!{cond.at(UNARY)}", UNARY)


def _ends(items: list[Item]) -> bool:
    """Nothing behind the items is reached from them."""
    match items[-1] if items else None:
        case Line(_, True) | Goto():
            return True
        case If(_, then, other):
            return _ends(then) and _ends(other)
        case Forever(body):
            return not any(_breaks(x) for x in body)
        case _:
            return False


def _breaks(item: Item) -> bool:
    match item:
        case Line("break;"):
            return True
        case If(_, then, other):
            return any(map(_breaks, (*then, *other)))
        case _:
            return False


# ---------------------------------------------------------------- printing


def lines(items: list[Item], names: Callable[[Block], str], depth: int = 1) -> Iterator[str]:
    """The statements as lines. Only labels that a `goto` names are printed."""
    yield from _print(items, names, set(_gotos(items)), depth)


def _gotos(items: list[Item]) -> Iterator[Block]:
    for x in items:
        match x:
            case Goto(block):
                yield block
            case If(_, then, other):
                yield from _gotos(then)
                yield from _gotos(other)
            case Forever(body):
                yield from _gotos(body)
            case _:
                pass


def _print(items: list[Item], names: Callable[[Block], str], needed: set[Block], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for x in items:
        match x:
            case Line(text):
                yield pad + text
            case Let(type, name, value):
                yield f"{pad}const {type} {name} = {value};"
            case Label(block) if block in needed:
                yield f"{pad[2:]}{names(block)}:;"
            case Label():
                pass
            case Goto(block):
                yield f"{pad}goto {names(block)};"
            case If(cond, [Line(text, True)], []):
                yield f"{pad}if ({cond}) {text}"
            case If(cond, [Goto(block)], []):
                yield f"{pad}if ({cond}) goto {names(block)};"
            case If(cond, then, other):
                yield f"{pad}if ({cond}) {{"
                yield from _print(then, names, needed, depth + 1)
                if other:
                    yield f"{pad}}} else {{"
                    yield from _print(other, names, needed, depth + 1)
                yield f"{pad}}}"
            case Forever([If(cond, [Line("break;")], []), *body]):
                yield f"{pad}while ({negated(cond)}) {{"
                yield from _print(body, names, needed, depth + 1)
                yield f"{pad}}}"
            case Forever(body):
                yield f"{pad}for (;;) {{"
                yield from _print(body, names, needed, depth + 1)
                yield f"{pad}}}"
