"""Which accesses of a vector loop are accesses to several elements at once: of 16 bytes, or of 8 or 4 where there are no wider ones.

    vector<4> l in 0..4 { y[4 * t + l] = x[4 * t + l] * 2.0 }        x[4 t .. 4 t + 3] is one load, and y one store

They are to neighbours along the lanes, at positions that are provably multiples of their number. All loads are done before the lanes and
all stores behind them, so no lane may read what the loop stores, and nothing is stored twice.
"""

from __future__ import annotations

from collections import Counter

from tlc.backends.cuda.index import Indices
from tlc.frontend.records import dataclass
from tlc.tensor.graph import ir as algebra
from tlc.tensor.kernel.ir import Buffer, Expr, For, Let, Load, Space, Store, expressions, subexpressions

SIZES = (16, 8, 4)  # bytes of an access


@dataclass(frozen=True)
class Wide:
    """Accesses to `count` elements at once."""

    count: int
    loads: tuple[Load, ...]
    stores: tuple[Store, ...]


def wide_accesses(s: For, trips: int, indices: Indices) -> Wide | None:
    """Those of a loop with so many lanes, of the narrowest elements that have some; None if there are none."""
    if any(not isinstance(x, Let | Store) for x in s.body):
        return None
    loads = [e for x in s.body for root in expressions(x) for e in subexpressions(root) if isinstance(e, Load)]
    stores = [x for x in s.body if isinstance(x, Store)]
    loaded, stored = {e.buffer for e in loads}, Counter(x.buffer for x in stores)
    with indices.loop(s, "lane"):
        axis = algebra.axis(len(indices.axes) - 1)

        def aligned(b: Buffer, at: tuple[Expr, ...], size: int) -> bool:
            count = size // b.elem.bytes
            return b.space is not Space.LOCAL and count > 1 and trips % count == 0 and indices.aligned(at, b.shape, axis, count)

        may_load = [e for e in dict.fromkeys(loads) if e.guard is None and e.buffer not in stored]
        may_store = [x for x in stores if x.buffer not in loaded and stored[x.buffer] == 1]
        for size in SIZES:
            wide_loads = [e for e in may_load if aligned(e.buffer, e.indices, size)]
            wide_stores = [x for x in may_store if aligned(x.buffer, x.indices, size)]
            narrowest = min([*(e.elem.bytes for e in wide_loads), *(x.buffer.elem.bytes for x in wide_stores)], default=0)
            if narrowest:
                return Wide(
                    size // narrowest,
                    tuple(e for e in wide_loads if e.buffer.elem.bytes == narrowest),
                    tuple(x for x in wide_stores if x.buffer.elem.bytes == narrowest),
                )
    return None
