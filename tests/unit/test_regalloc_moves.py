"""Parallel moves become sequences: all that there are over three registers and two slots, simulated."""

from __future__ import annotations

import itertools

from mir_toy import SCRATCH, I, make

from tlc.regalloc.ir import Bank, Inst, Place, Slot, VReg
from tlc.regalloc.moves import Transfer, sequence

PLACES: tuple[Place, ...] = (*I[:3], Slot(0), Slot(1))
SPARE = Slot(9)
V = VReg(0, Bank.INT)


def _moves(pairs: dict[Place, Place]) -> list[Transfer]:
    return [Transfer(target, source, V, V) for target, source in pairs.items()]


def _simulate(moves: list[Transfer]) -> dict[Place, object]:
    state: dict[Place, object] = {p: str(p) for p in PLACES}
    for t in moves:
        state[t.target] = t.source.attrs["imm"] if isinstance(t.source, Inst) else state[t.source]
    return state


def test_all_of_them() -> None:
    """Every place gets the value of any place, or none: 6 ** 5 parallel moves."""
    for sources in itertools.product((None, *PLACES), repeat=len(PLACES)):
        pairs = {t: s for t, s in zip(PLACES, sources, strict=True) if s is not None}
        result = sequence(_moves(pairs), SCRATCH, lambda: SPARE)
        after = _simulate(result)
        for place in PLACES:
            assert after[place] == str(pairs.get(place, place))
        for t in result:
            assert t.target != t.source
            assert not (isinstance(t.target, Slot) and isinstance(t.source, Slot))


def test_lengths() -> None:
    """k moves without a cycle of registers take k; each cycle one more; a slot to a slot takes two."""
    a, b, c = I[:3]
    for pairs, length in (
        ({a: b}, 1),
        ({a: b, b: c}, 2),
        ({a: b, b: a}, 3),
        ({a: b, b: a, c: a}, 4),
        ({a: b, b: c, c: a}, 4),
        ({a: a, b: a}, 1),
        ({Slot(0): Slot(1)}, 2),
        ({a: Slot(0), Slot(0): a}, 3),
        ({Slot(0): Slot(1), Slot(1): Slot(0)}, 6),
    ):
        assert len(sequence(_moves(pairs), SCRATCH, lambda: SPARE)) == length, pairs


def test_constants_come_last() -> None:
    """What a constant overwrites may have to be read before; into a slot it goes through the scratch register."""
    constant = make("const", V, imm=7)
    result = sequence([Transfer(I[0], constant, V, V), Transfer(I[1], I[0], V, V)], SCRATCH, lambda: SPARE)
    assert [t.target for t in result] == [I[1], I[0]]
    result = sequence([Transfer(Slot(0), constant, V, V)], SCRATCH, lambda: SPARE)
    assert [t.target for t in result] == [SCRATCH[Bank.INT], Slot(0)]
