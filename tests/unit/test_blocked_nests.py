"""Products whose reduction goes down both operands: by blocks, in pieces, with the bits of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_run import compare, function, product, tensor

from tlc.ssa.builder import Builder
from tlc.ssa.ir import Module, Value
from tlc.tensor import blocked_nests, schedule
from tlc.tensor.schedule import Target

RANDOM = np.random.default_rng(5)


def weights_gradient(m: int, n: int, depth: int) -> Module:
    """y[i, j] = y[i, j] + sum[k] a[k, i] * b[k, j]."""

    def body(b: Builder, y: Value, x: Value, d: Value) -> list[Value]:
        y, x, d = (b.reshape(v, [b.i64(p), b.i64(q)]) for v, (p, q) in ((y, (m, n)), (x, (depth, m)), (d, (depth, n))))

        def element(b: Builder, i: Value, j: Value) -> Value:
            total = b.reduce("sum", [b.i64(depth)], lambda b, k: product(b, x, [k, i], d, [k, j]), "chain")
            return b.op("add", b.index(y, i, j), total)

        return [b.tabulate([b.i64(m), b.i64(n)], element)]

    return function([tensor(2), tensor(2), tensor(2)], [tensor(2)], body)


@pytest.mark.parametrize("target", [Target(16, 16), Target(64, 32)], ids=str)
@pytest.mark.parametrize(("m", "n"), [(13, 37), (37, 20), (96, 32)])
@pytest.mark.parametrize("depth", [8, 19])
def test_blocks_in_one_piece_and_in_several(m: int, n: int, depth: int, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "is_worth_blocks", lambda *_: True)
    monkeypatch.setattr(blocked_nests, "WHOLE", 10)
    monkeypatch.setattr(blocked_nests, "PIECE", 8)
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((m, n), (depth, m), (depth, n))]
    (kernel,) = compare(weights_gradient(m, n, depth), *arrays, target=target).kernels.values()
    assert kernel.notes[-1].startswith("blocks: ")
    assert len(kernel.outputs) == (3 if depth > 10 else 2)  # the result, a copy and, if there are pieces, sums


@pytest.mark.parametrize(("extent", "multiple", "size"), [(512, 1, 64), (1536, 1, 96), (128, 1, 32), (512, 32, 64), (131, 1, 33), (70, 32, 32)])
def test_blocks_are_of_equal_size_if_they_can_be(extent: int, multiple: int, size: int) -> None:
    assert blocked_nests.block(extent, multiple) == size


def test_what_the_cache_holds_is_not_copied() -> None:
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((20, 30), (10, 20), (10, 30))]
    (kernel,) = compare(weights_gradient(20, 30, 10), *arrays).kernels.values()
    assert kernel.notes[-1].startswith("tile: ")
