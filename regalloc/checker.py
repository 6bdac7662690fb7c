"""A proof that an allocation computes what the machine IR before it computes. Shares no code with the allocator.

What is proved. Before: a function in SSA form. After: the same instructions with places on their operands, and between them moves and
constants made again. The proof runs the allocated code on symbols instead of values:

    A state says for each place (register or slot) which virtual registers it surely holds the value of: a set. A place that
    is not mentioned holds nothing that is known. Where edges meet, a place holds what it holds on all of them: sets intersect, so
    states only shrink and the search ends. A block that was not reached yet has no state (every set: the top of the lattice).

  a move          the target holds what the source holds, nothing else
  a constant      made again: the target holds its virtual register, if op and attributes are those of its definition
  an instruction  every use's place must hold its virtual register; clobbers and definitions then lose what they held; a new
                  definition of %v makes any other place's claim to hold %v false (%v may be an old one, of the last round of a loop)
  a copy before   (move, pmove; not there any more): what holds the source holds the target too
  an edge         block parameters are copies of its arguments: what holds an argument holds the parameter, and nothing else does

Then, at each instruction:
  1. op, attributes and operands are those from before; uses may have changed places where the row says so (`commutes`)
  2. every operand has a place of its bank that its constraint allows: ANY a register or a slot of the frame, REGISTER a register,
     Fixed its own, Reuse that of the operand; registers are allocatable ones unless fixed
  3. every use's place holds its virtual register
  4. a late use is in no place that the instruction defines or destroys
  5. an early definition is in no place of a use; one that reuses is in no place of another use, unless that reads the same value
  6. two definitions are in two places, none of which is destroyed
And everywhere:
  7. nothing but moves, unused constants and blocks' parameters is missing; nothing but moves, constants and jumps on edges was added
  8. moves are not from slot to slot, and go to allocatable registers, scratch registers, slots, or what a neighbour has fixed
  9. scratch registers hold nothing across an instruction from before
 10. callee-saved registers that are written are those that the prologue is told to save

Method: regalloc2's `checker.rs` (Fallin 2021), after Rideau and Leroy, "Validating register allocation and spilling" (CC 2010).

Worked example: %x is in rcx, `rax <- slot0` where %y was stored, then `%z = add %y, %x` in rax and rcx. State before the addition:
{rax: {%y}, rcx: {%x}, slot0: {%y}}, so its uses hold; behind it: {rax: {%z}, rcx: {%x}, slot0: {%y}}. Without the load, rax would
hold nothing known, and the use of %y would be refused.
"""

from __future__ import annotations

from dataclasses import field

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.regalloc.ir import Any, Attr, Bank, Block, Constraint, Fixed, Function, Inst, Place, Reg, Register, Reuse, Slot
from tlc.regalloc.target import Kind, MachineEnv, Row, Target

State = dict[Place, frozenset[int]]
Renaming = tuple[tuple[int, int], ...]  # (target, source) of copies that happen at once


@dataclass(frozen=True)
class Before:
    """An instruction before allocation. Operands: number of the virtual register, definition, constraint, late, bank."""

    inst: Inst
    op: str
    attrs: dict[str, Attr]
    clobbers: frozenset[Reg]
    operands: tuple[tuple[int, bool, Constraint, bool, Bank], ...]


@dataclass(frozen=True)
class Edge:
    target: Block
    copies: Renaming


@dataclass
class Program:
    """A function as it was in SSA form. `same`: parameters of blocks with one predecessor -> what they are another name for."""

    name: str
    entry: Block
    blocks: dict[Block, list[Before]] = field(default_factory=dict)
    edges: dict[Block, list[Edge]] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    constants: dict[int, tuple[str, dict[str, Attr]]] = field(default_factory=dict)

    def name_of(self, number: int) -> int:
        while number in self.same:
            number = self.same[number]
        return number


def record(function: Function, target: Target) -> Program:
    """Keep what a later `check` compares with, before anything is changed: the blocks that the entry reaches."""
    program = Program(function.name, function.entry)
    entering: dict[Block, int] = {}
    defined: set[int] = set()
    reached = {function.entry}
    work = [function.entry]
    while work:
        for successor, _ in work.pop().terminator.targets:
            entering[successor] = entering.get(successor, 0) + 1
            if successor not in reached:
                reached.add(successor)
                work.append(successor)
    blocks = [block for block in function.blocks if block in reached]
    for block in blocks:
        for successor, arguments in block.terminator.targets:
            if entering[successor] == 1:
                program.same.update((p.number, a.number) for p, a in zip(successor.params, arguments, strict=True))
    for block in blocks:
        program.blocks[block] = [
            Before(
                inst,
                inst.op,
                dict(inst.attrs),
                frozenset(inst.clobbers),
                tuple((program.name_of(o.vreg.number), o.is_def, o.constraint, o.late, o.vreg.bank) for o in inst.operands),
            )
            for inst in block.insts
        ]
        program.edges[block] = [
            Edge(
                successor,
                tuple(
                    (p.number, program.name_of(a.number))
                    for p, a in zip(successor.params, arguments, strict=True)
                    if p.number not in program.same
                ),
            )
            for successor, arguments in block.terminator.targets
        ]
        for inst in block.insts:
            for operand in inst.operands:
                if operand.is_def:
                    number = operand.vreg.number
                    if target.rows[inst.op].remat and number not in defined:
                        program.constants[number] = (inst.op, dict(inst.attrs))
                    else:
                        program.constants.pop(number, None)
                    defined.add(number)
    return program


def check(program: Program, function: Function, target: Target, env: MachineEnv, saved: tuple[Reg, ...]) -> None:
    """InternalError at the first thing that is not proved."""
    _Checker(program, function, target, env, saved).run()


class _Checker:
    def __init__(self, program: Program, function: Function, target: Target, env: MachineEnv, saved: tuple[Reg, ...]) -> None:
        self.program = program
        self.function = function
        self.rows = target.rows
        self.env = env
        self.saved = saved
        self.allocatable = frozenset(r for regs in env.allocatable.values() for r in regs)
        self.scratch = frozenset(env.scratch.values())
        self.fixed = frozenset(
            c.reg for insts in program.blocks.values() for inst in insts for _, _, c, _, _ in inst.operands if isinstance(c, Fixed)
        )
        self.strict = False  # the last round: what is not so is an error
        self.place_of_error = ""

    def run(self) -> None:
        if self.function.entry is not self.program.entry:
            self._fail("the entry is another block")
        sources = self._edge_blocks()
        entering: dict[Block, State] = {self.function.entry: {}}
        work = [self.function.entry]
        while work:
            block = work.pop()
            for successor, state in self._leave(block, self._walk(block, dict(entering[block])), sources):
                if successor in entering:
                    met = _meet(entering[successor], state)
                    if met == entering[successor]:
                        continue
                    entering[successor] = met
                else:
                    entering[successor] = state
                if successor not in work:
                    work.append(successor)
        self.strict = True
        for block in self.function.blocks:
            if block in entering:
                self._walk(block, dict(entering[block]))
            else:
                self._fail(f"block `{block.name}` is never reached")

    def _fail(self, message: str) -> None:
        where = f"register allocation of {self.program.name}" + (f", {self.place_of_error}" if self.place_of_error else "")
        raise InternalError(message, where)

    # ------------------------------------------------------------ control flow

    def _edge_blocks(self) -> dict[Block, tuple[Block, int]]:
        """The blocks on edges, with the edge: block before and number of its target. Checks that the flow of control is the same."""
        sources: dict[Block, tuple[Block, int]] = {}
        for block in self.function.blocks:
            self.place_of_error = block.name
            if block.params or any(arguments for _, arguments in block.terminator.targets):
                self._fail("parameters or arguments are left")
            if block not in self.program.blocks:
                if block.terminator.op != "jump" or len(block.terminator.targets) != 1:
                    self._fail("an added block ends in no jump")
                continue
            edges = self.program.edges[block]
            targets = block.terminator.targets
            if len(edges) != len(targets):
                self._fail("the number of successors changed")
            for k, (edge, (successor, _)) in enumerate(zip(edges, targets, strict=True)):
                if successor is edge.target:
                    continue
                if successor in self.program.blocks or successor in sources:
                    self._fail(f"successor {k} is `{successor.name}`, was `{edge.target.name}`")
                if successor.terminator.targets[0][0] is not edge.target:
                    self._fail(f"`{successor.name}` leads elsewhere than to `{edge.target.name}`")
                sources[successor] = (block, k)
        return sources

    def _leave(self, block: Block, state: State, sources: dict[Block, tuple[Block, int]]) -> list[tuple[Block, State]]:
        if block in sources:
            before, k = sources[block]
            edge = self.program.edges[before][k]
            return [(edge.target, _rename(state, edge.copies))]
        result: list[tuple[Block, State]] = []
        for edge, (successor, _) in zip(self.program.edges[block], block.terminator.targets, strict=True):
            result.append((successor, _rename(state, edge.copies) if successor is edge.target else dict(state)))
        return result

    # ------------------------------------------------------------ a block

    def _walk(self, block: Block, state: State) -> State:
        """The state behind the block."""
        before = self.program.blocks.get(block, [])
        position = {b.inst: k for k, b in enumerate(before)}
        done = 0
        added: list[Inst] = []
        for inst in block.insts:
            self.place_of_error = f"{block.name}, `{inst.op}`"
            if inst in position:
                at = position[inst]
                if at < done:
                    self._fail("instructions changed their order, or one stands twice")
                self._between(state, before[done:at], added)
                added = []
                self._instruction(state, before[at], inst)
                done = at + 1
            elif block not in self.program.blocks and inst is block.terminator:
                self._between(state, [], added)
                added = []
            else:
                added.append(inst)
        if added:
            self._fail("something stands behind the terminator")
        if done < len(before):
            self._fail(f"`{before[done].op}` is missing")
        return state

    def _between(self, state: State, missing: list[Before], added: list[Inst]) -> None:
        """What happens between two instructions from before: copies that have become moves, constants that are made elsewhere, moves.

        The copies are laws from here on: made true first, and again for each constant that is made.
        """
        laws: list[Renaming] = []
        for before in missing:
            row = self.rows[before.op]
            if row.kind is Kind.MOVE or row.kind is Kind.PMOVE:
                targets = [o[0] for o in before.operands if o[1]]
                reads = [o[0] for o in before.operands if not o[1]]
                laws.append(tuple(zip(targets, reads, strict=True)))
            elif not (row.remat and before.operands[0][0] in self.program.constants):
                self._fail(f"`{before.op}` is missing")
        for law in laws:
            renamed = _rename(state, law)
            state.clear()
            state.update(renamed)
        for inst in added:
            self._added(state, laws, inst)

    def _added(self, state: State, laws: list[Renaming], inst: Inst) -> None:
        row = self.rows[inst.op]
        target = inst.operands[0].place
        if target is None or not inst.operands[0].is_def:
            self._fail("an added instruction without a place")
        assert target is not None
        if isinstance(target, Reg):
            if target not in self.allocatable | self.scratch | self.fixed:
                self._fail(f"a move to `{target}`, which is reserved")
            self._saves(target)
        else:
            self._in_frame(target)
        if row.kind is Kind.MOVE:
            source = inst.operands[1].place
            if source is None:
                self._fail("a move from nowhere")
            assert source is not None
            if isinstance(source, Slot):
                self._in_frame(source)
                if isinstance(target, Slot):
                    self._fail("a move from slot to slot")
            elif isinstance(target, Reg) and source.bank is not target.bank:
                self._fail("a move from bank to bank")
            held = state.get(source, frozenset())
        elif row.remat and len(inst.operands) == 1:
            if isinstance(target, Slot) and not isinstance(inst.operands[0].constraint, Any):
                self._fail("a constant made in a slot")
            number = self.program.name_of(inst.operands[0].vreg.number)
            if self.program.constants.get(number) != (inst.op, inst.attrs):
                self._fail("a constant that is not the one of its definition")
            one: State = {target: frozenset((number,))}
            for law in laws:
                one = _rename(one, law)
            held = one[target]
        else:
            self._fail("an added instruction that neither moves nor makes a constant")
        _put(state, target, held)

    def _instruction(self, state: State, before: Before, inst: Inst) -> None:
        row = self.rows[before.op]
        operands = list(before.operands)
        if self.strict:
            operands = self._agrees(before, inst, row)
            self._constraints(before, inst, operands)
            self._holds(state, before, inst, operands)
        for reg in self.scratch | before.clobbers:
            state.pop(reg, None)
        for number, is_def, _, _, _ in operands:
            if is_def:
                for place, held in list(state.items()):
                    if number in held:
                        _put(state, place, held - {number})
        for (number, is_def, _, _, _), operand in zip(operands, inst.operands, strict=True):
            if is_def and operand.place is not None:
                state[operand.place] = frozenset((number,))

    # ------------------------------------------------------------ an instruction

    def _agrees(self, before: Before, inst: Inst, row: Row) -> list[tuple[int, bool, Constraint, bool, Bank]]:
        if inst.op != before.op or inst.attrs != before.attrs or frozenset(inst.clobbers) != before.clobbers:
            self._fail(f"was `{before.op}`, or had other attributes")
        if len(inst.operands) != len(before.operands):
            self._fail("the number of operands changed")
        expected = list(before.operands)
        reuse = expected[0][2] if expected else None
        if row.commutes and isinstance(reuse, Reuse):
            k = reuse.operand
            x, y = inst.operands[k], inst.operands[k + 1]
            if self.program.name_of(x.vreg.number) == expected[k + 1][0] and self.program.name_of(y.vreg.number) == expected[k][0]:
                a, b = expected[k], expected[k + 1]
                expected[k], expected[k + 1] = (b[0], *a[1:]), (a[0], *b[1:])
        for (number, is_def, constraint, late, _), operand in zip(expected, inst.operands, strict=True):
            if self.program.name_of(operand.vreg.number) != number:
                self._fail(f"operand {operand.vreg} was %{number}")
            if (operand.is_def, operand.constraint, operand.late) != (is_def, constraint, late):
                self._fail(f"the constraint of {operand.vreg} changed")
        return expected

    def _constraints(self, before: Before, inst: Inst, operands: list[tuple[int, bool, Constraint, bool, Bank]]) -> None:
        defined: set[Place] = set()
        for (number, is_def, constraint, _, bank), operand in zip(operands, inst.operands, strict=True):
            place = operand.place
            if place is None:
                self._fail(f"%{number} has no place")
                continue
            if isinstance(place, Slot):
                self._in_frame(place)
                if not isinstance(constraint, Any):
                    self._fail(f"%{number} must be in a register, is in `{place}`")
            else:
                if place.bank is not bank:
                    self._fail(f"%{number} is in `{place}`, of the other bank")
                if is_def:
                    self._saves(place)
            match constraint:
                case Fixed(reg) if place != reg:
                    self._fail(f"%{number} must be in `{reg}`, is in `{place}`")
                case Reuse(k) if place != inst.operands[k].place:
                    self._fail(f"%{number} must be in the place of %{operands[k][0]}")
                case Any() | Register() | Reuse() if isinstance(place, Reg) and place not in self.allocatable:
                    self._fail(f"%{number} is in `{place}`, which is reserved")
            if is_def:
                if place in defined:
                    self._fail(f"two definitions in `{place}`")
                if place in before.clobbers:
                    self._fail(f"%{number} is defined in `{place}`, which is destroyed")
                defined.add(place)

    def _holds(self, state: State, before: Before, inst: Inst, operands: list[tuple[int, bool, Constraint, bool, Bank]]) -> None:
        written = {o.place for o in inst.operands if o.is_def}
        for k, ((number, is_def, constraint, late, _), operand) in enumerate(zip(operands, inst.operands, strict=True)):
            place = operand.place
            if is_def:
                if isinstance(constraint, Reuse):
                    kept = operands[constraint.operand][0]
                    if any(not o.is_def and o.place == place and n[0] != kept for n, o in zip(operands, inst.operands, strict=True)):
                        self._fail(f"%{number} overwrites a use that it does not reuse")
                elif not late and any(not o.is_def and o.place == place for o in inst.operands):
                    self._fail(f"%{number} is written early, in the place of a use")
                continue
            assert place is not None
            if number not in state.get(place, frozenset()):
                held = ", ".join(f"%{n}" for n in sorted(state.get(place, ()))) or "nothing known"
                self._fail(f"operand {k}, %{number}, is read from `{place}`, which holds {held}")
            if late and (place in written or place in before.clobbers):
                self._fail(f"%{number} is read late from `{place}`, which is overwritten")

    def _in_frame(self, slot: Slot) -> None:
        if not 0 <= slot.number < self.function.slots:
            self._fail(f"`{slot}` is not in the frame")

    def _saves(self, reg: Reg) -> None:
        if reg in self.env.callee_saved and reg not in self.saved:
            self._fail(f"`{reg}` is written and not saved")


def _put(state: State, place: Place, held: frozenset[int]) -> None:
    if held:
        state[place] = held
    else:
        state.pop(place, None)


def _rename(state: State, copies: Renaming) -> State:
    """The state after copies that happen at once."""
    if not copies:
        return dict(state)
    targets = {t for t, _ in copies}
    result: State = {}
    for place, held in state.items():
        gained = {t for t, s in copies if s in held}
        _put(result, place, (held - targets) | gained)
    return result


def _meet(a: State, b: State) -> State:
    result: State = {}
    for place, held in a.items():
        _put(result, place, held & b.get(place, frozenset()))
    return result
