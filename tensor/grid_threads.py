"""What the threads of a row do together on a GPU: exchanges within a warp, and sums of long rows in their order."""

from __future__ import annotations

from math import prod

from tlc.frontend.types import Elem
from tlc.ssa.reductions import LANES
from tlc.tensor.emit import Emitter, Scope, minus, plus, times
from tlc.tensor.graph.ir import Node
from tlc.tensor.kernel.ir import Barrier, Buffer, Const, Exchange, How, If, Load, Space, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import Nest, combine

THREADS = 256  # of a long row
CHUNK = 4 * THREADS  # terms that are in shared memory at once
FEW = 1024  # rows: where there are more, sixteen threads each are enough
LONG = 2048  # elements of a row from which on it has a block


def are_few_and_long(node: Node, depth: int) -> bool:
    """Whether the rows over the first axes of a node are."""
    rows, domain = (prod(n.value or instead for n in axes) for axes, instead in ((node.domain[:depth], FEW), (node.domain[depth:], LONG)))
    return rows < FEW and domain >= LONG


def is_ordered(node: Node) -> bool:
    """Whether its reduction is a sum or product that rounds."""
    r = node.reduction
    return r is not None and r.op in ("sum", "prod") and r.terms[0].elem.is_real


def exchange(emitter: Emitter, scope: Scope, acc: Buffer, here: tuple[KExpr, ...], reducer: str, threads: int = LANES) -> None:
    """Make an accumulator of each of some threads that of all of them; of sixteen by the tree of the order `lanes`."""
    half = threads // 2
    while half:
        mine = Load(acc, here)
        scope.body.append(Store(acc, here, combine(reducer, mine, [exchanged(emitter, scope, mine, half)])))
        half //= 2


def exchanged(emitter: Emitter, scope: Scope, value: KExpr, bits: int) -> KExpr:
    """The value of the thread whose number differs in these bits."""
    wide = _wide(value.elem)
    other = Var(emitter.fresh("o"), wide)
    scope.body.append(Exchange(other, value if wide is value.elem else op("convert", value, elem=wide), How.XOR, const(bits)))
    return other if wide is value.elem else op("convert", other, elem=value.elem)


def _wide(elem: Elem) -> Elem:
    """The type in which values of a type are exchanged, which has 32 bits or more."""
    if elem.bytes >= 4:
        return elem
    return Elem.F32 if elem.is_real else Elem.I32


def in_order(nest: Nest, scope: Scope, t: Var, acc: Buffer, pool: dict[tuple[Elem, int], Buffer]) -> None:
    """The sums of the order `lanes` in accumulators of the first sixteen of `THREADS` threads of a block, which then exchange them: all
    compute terms, while those add. The shared buffers are those of the pool, by type and number; who uses them again waits first.
    """
    emitter, r, here = nest.emitter, nest.reduction, (const(0),)
    total = nest.positions(scope)
    for k, e in enumerate(r.terms):
        if (e.elem, k) not in pool:
            pool[e.elem, k] = Buffer(emitter.fresh("s"), e.elem, (const(2), const(CHUNK)), Space.SHARED)
    shared = [pool[e.elem, k] for k, e in enumerate(r.terms)]

    def chunk(s: Scope, number: KExpr, full: bool) -> None:
        low = nest.bound(s, times(number, const(CHUNK)))
        half = nest.bound(s, op("mod", number, const(2)))

        def term(x: Scope, n: Var) -> None:
            at = plus(times(n, const(THREADS)), t)
            position = nest.bound(x, plus(low, at))
            inner = Scope(x)
            nest.bind_position(inner, position)
            inner.body += [Store(c, (half, at), emitter.emit(e, inner)) for c, e in zip(shared, r.terms, strict=True)]
            x.body += inner.body if full else [If(op("lt", position, total), tuple(inner.body))]

        def add(x: Scope, k: Var) -> None:
            terms = [Load(c, (half, plus(times(k, const(LANES)), t))) for c in shared]
            x.body.append(Store(acc, here, combine(r.op, Load(acc, here), terms, r.step)))

        nest.unroll(s, CHUNK // THREADS, term)
        s.body.append(Barrier())
        steps: KExpr = const(CHUNK // LANES)
        mine = Scope(s)
        if not full:
            left = plus(minus(minus(total, low), t), const(LANES - 1))
            steps = nest.bound(mine, op("min", steps, op("floordiv", left, const(LANES))))
        emitter.loop(mine, "k", const(0), steps, add)
        s.body.append(If(op("lt", t, const(LANES)), tuple(mine.body)))

    def all_chunks(g: Scope) -> None:
        whole = const(int(total.value) // CHUNK) if isinstance(total, Const) else nest.bound(g, op("floordiv", total, const(CHUNK)))
        emitter.loop(g, "c", const(0), whole, lambda s, c: chunk(s, c, True))
        if not (isinstance(total, Const) and total.value % CHUNK == 0):
            chunk(g, whole, False)

    emitter.guarded(scope, r.extents, all_chunks)
    exchange(emitter, scope, acc, here, r.op)
