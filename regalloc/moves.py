"""Parallel moves to sequences.

All sources of a parallel move are read before any target is written. A move may be made as soon as no other one still has to
read its target; when none can, the rest are cycles, and one of each is broken by keeping what its target holds in the scratch
register of the bank. A move from slot to slot goes through the same register, so a cycle that has one keeps the
value in a spare slot instead. What is made anew (`remat`) reads nothing and comes last.

    rax <- rcx, rcx <- rax, rdx <- rax        rdx <- rax, r11 <- rax, rax <- rcx, rcx <- r11

After Boissinot et al. 2009, algorithm 1, without its counters: k moves are looked through at most k times, and k is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.regalloc.ir import ANY, Bank, Inst, Place, Reg, Slot, VReg


@dataclass(frozen=True)
class Transfer:
    """`target <- source`; the source is a place or the instruction that makes the value. The registers are for checkers and readers."""

    target: Place
    source: Place | Inst
    made: VReg
    read: VReg


def sequence(transfers: list[Transfer], scratch: Mapping[Bank, Reg], spare: Callable[[], Slot]) -> list[Transfer]:
    """Transfers in order: none from a place to itself, none from slot to slot, none of an instruction to a slot unless it defines in any
    place. `spare` gives a slot that is free here.
    """
    if len(transfers) == 1:
        only = transfers[0]
        return [] if only.target == only.source else _through(only, scratch)
    waiting: dict[Place, Transfer] = {}
    last: list[Transfer] = []
    for t in transfers:
        if t.target in waiting or any(t.target == other.target for other in last):
            if waiting.get(t.target) == t or t in last:
                continue
            raise InternalError(f"`{t.target}` is the target of two moves at once", "register allocation")
        if isinstance(t.source, Inst):
            last.append(t)
        else:
            waiting[t.target] = t
    readers: dict[Place, int] = {}
    for place in list(waiting):
        t = waiting[place]
        if t.target == t.source:
            # It stays: nobody else writes it, so readers may come at any time.
            del waiting[place]
        else:
            assert not isinstance(t.source, Inst)
            readers[t.source] = readers.get(t.source, 0) + 1
    result: list[Transfer] = []
    ready = [place for place in waiting if not readers.get(place)]
    while waiting:
        while ready:
            t = waiting.pop(ready.pop(0))
            result += _through(t, scratch)
            assert not isinstance(t.source, Inst)
            readers[t.source] -= 1
            if not readers[t.source] and t.source in waiting:
                ready.append(t.source)
        if waiting:
            # Every target is still to be read, and each place is written once: only cycles are left.
            first = next(iter(waiting.values()))
            cycle = [first]
            while cycle[-1].source != first.target:
                source = cycle[-1].source
                assert not isinstance(source, Inst)
                cycle.append(waiting[source])
            has_slots = any(isinstance(t.target, Slot) and isinstance(t.source, Slot) for t in cycle)
            refuge: Place = spare() if has_slots else scratch[first.made.bank]
            reader = cycle[-1]
            result += _through(Transfer(refuge, first.target, reader.read, reader.read), scratch)
            waiting[reader.target] = Transfer(reader.target, refuge, reader.made, reader.read)
            readers[first.target] -= 1
            readers[refuge] = 1
            ready.append(first.target)
    for t in last:
        result += _through(t, scratch)
    return result


def _through(t: Transfer, scratch: Mapping[Bank, Reg]) -> list[Transfer]:
    direct = isinstance(t.source, Reg) or (isinstance(t.source, Inst) and t.source.operands[0].constraint is ANY)
    if isinstance(t.target, Slot) and not direct:
        reg = scratch[t.read.bank]
        return [Transfer(reg, t.source, t.read, t.read), Transfer(t.target, reg, t.made, t.read)]
    return [t]
