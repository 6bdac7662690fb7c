"""The best choice of knobs for a kernel, by measurement (`tlc tune`).

Requires  what becomes the kernel, and a race: something that runs kernels of one work on the same data, checks that they give the same
          bits, and says how long each takes.
Gives     the choice that was faster than the rules, or none.

The search goes down along one knob after the other (coordinate descent, as in ATLAS: Whaley, Petitet, Dongarra 2001): all values of a knob
run against the best so far, the best of them is kept, and a second pass begins if the first found anything. A kernel is measured once,
however many choices make it, and a knob that appears with another's value is turned too. Measurements have noise, and the least of many has
luck: so what was found has to win twice more, alone against the rules, by a margin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tlc.frontend.records import dataclass
from tlc.tensor.graph.ir import Expr, Tensor, walk
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.knobs import VALUES, Choice, choice_text, turned
from tlc.tensor.lower import Work, nodes_of, scheduled_as
from tlc.tensor.schedule import RULES, Scheduled, Target

MARGIN = 1.03  # how much faster a choice has to be, twice
BETTER = 1.01  # and how much on the way
PASSES = 2


class Race(Protocol):
    """Runs kernels of one work on the same data."""

    def seconds(self, kernels: Sequence[Scheduled]) -> list[float]:
        """What a call of each takes. Raises `InternalError` where one gives other bits than the first."""
        ...


@dataclass(frozen=True)
class Found:
    """Seconds of a call by the rules, and of one as chosen; `choice` is empty if the rules were best."""

    by_rule: float
    best: float
    choice: Choice

    @property
    def ratio(self) -> float:
        return self.by_rule / self.best if self.best else 1.0


def tune(
    work: Work, target: Target, race: Race, turns: Callable[[str], bool], say: Callable[[str], None], late: Callable[[], bool]
) -> Found:
    """The best choice for a work. `turns` says which knobs are turned, `say` is told what is tried, `late` whether time is up."""
    rules = best = scheduled_as(work, target)
    found = RULES
    seen = {rules.kernel}
    for _ in range(PASSES):
        before = found
        for knob in [k for k in VALUES if turns(k)]:
            others = list(_others(work, target, knob, best, found, seen))
            if not others or late():
                continue
            say(f"{knob} of {len(others) + 1}")
            times = race.seconds([best, *(s for _, s in others)])
            first = min(range(len(times)), key=times.__getitem__)
            if times[0] > BETTER * times[first]:
                found, best = others[first - 1]
        if found == before or late():
            break
    if best is rules:
        (seconds,) = race.seconds([rules])
        return Found(seconds, seconds, RULES)
    say(choice_text(found))
    finals = [race.seconds([rules, best]) for _ in range(2)]
    by_rule, chosen = (min(f[k] for f in finals) for k in (0, 1))
    if all(slow > MARGIN * fast for slow, fast in finals):
        return Found(by_rule, chosen, found)
    return Found(by_rule, by_rule, RULES)


def _others(work: Work, target: Target, knob: str, best: Scheduled, found: Choice, seen: set[Kernel]) -> Iterator[tuple[Choice, Scheduled]]:
    """The kernels not seen yet that come of turning one knob, with the choices that make them."""
    asked = best.asked.get(knob)
    for value in asked.values if asked else ():
        scheduled = scheduled_as(work, target, {**found, knob: value})
        if scheduled.kernel not in seen:
            seen.add(scheduled.kernel)
            yield turned(scheduled.asked), scheduled


# ---------------------------------------------------------------- what a kernel's indices come from


def needed_inputs(work: Work, scheduled: Scheduled) -> frozenset[int]:
    """The inputs whose contents a kernel needs to be run alone, by position: those that are no reals, and those that indices, guards or
    lengths are computed from. Any other may hold any numbers.
    """
    behind = {e.data.tensor for e in walk(_places(work)) if e.op == "load"}
    own = enumerate(scheduled.operands)
    return frozenset(k for k, x in own if isinstance(x, Tensor) and (not x.elem.is_real or x in behind))


def depends_on_itself(work: Work) -> bool:
    """Whether indices, guards or lengths come from what the kernel computes."""
    made = {t for node in nodes_of(work) for t in node.results}
    return any(e.op == "load" and e.data.tensor in made for e in walk(_places(work)))


def _places(work: Work) -> list[Expr]:
    """The expressions that say where and how much is read and written."""
    out: list[Expr] = []
    for node in nodes_of(work):
        out += node.domain
        out += node.scatter.targets if node.scatter else ()
        out += [a for e in walk(node.roots) if e.op == "load" for a in e.args]
    return out
