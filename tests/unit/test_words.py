"""Products of narrow numbers by words: the ops and the kernels in every way of running them, and the instructions that they become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product as pairs_of
from typing import Any

import numpy as np
import pytest
from c_run import Ways, needs_compiler
from ssa_services import Recorder
from tensor_run import function, lowered, same_bits, tensor

from tlc.backends import cpu
from tlc.backends.llvm import jit
from tlc.backends.llvm.kernel import print_kernel
from tlc.frontend.fma import fma32
from tlc.frontend.narrow_reals import rounded
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, Type, Value
from tlc.tensor.kernel.text import parse_kernel, print_kernels
from tlc.tensor.lower import Tensors
from tlc.tensor.schedule import Target

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(11)
LAYOUTS = tuple(pairs_of(("ik", "ki"), ("kj", "jk")))
SHAPES = [(0, 3, 5), (5, 0, 4), (4, 1, 4), (17, 3, 64), (6, 100, 17), (64, 33, 5)]
DOT4, DOT2, PAIRS = Target(64, 32, dots=4), Target(32, 16, 256, dots=2), Target(64, 32, pairs=True)


def products(left: Elem, right: Elem, wide: Elem, layouts: Sequence[tuple[str, str]] = LAYOUTS) -> Module:
    """For each pair of layouts the sums over k of products of elements, converted before."""

    def body(b: Builder, *tensors: Value) -> list[Value]:
        results = []
        for (a, w), x, m in zip(layouts, tensors[::2], tensors[1::2], strict=True):

            def element(b: Builder, i: Value, j: Value, a: str = a, w: str = w, x: Value = x, m: Value = m) -> Value:
                def term(b: Builder, q: Value) -> Value:
                    at = {"i": i, "j": j, "k": q}
                    return b.op("mul", *(b.convert(b.index(t, *(at[c] for c in how)), Type(wide)) for t, how in ((x, a), (m, w))))

                return b.reduce("sum", [b.dim(x, a.index("k"))], term, "chain")

            results.append(b.tabulate([b.dim(x, a.index("i")), b.dim(m, w.index("j"))], element))
        return results

    return function([tensor(2, e) for _ in layouts for e in (left, right)], None, body)


def operands(make: Any, shape: tuple[int, int, int], layouts: Sequence[tuple[str, str]] = LAYOUTS) -> list[Array]:
    size = dict(zip("ikj", shape, strict=True))
    return [make(k % 2, [size[c] for c in how]) for k, how in enumerate(how for pair in layouts for how in pair)]


def check(module: Module, tensors: Tensors, ways: Ways, args: list[Array]) -> None:
    """Kernels as LLVM, as C and in their interpreter give the bits of the SSA that they were made of."""
    found = Interpreter(tensors.module, Recorder(), ways.launch).call("f", args)
    same_bits(Interpreter(module, Recorder()).call("f", args), found)


def integers(left: Elem, right: Elem) -> Any:
    def make(side: int, shape: list[int]) -> Array:
        info = np.iinfo(DTYPES[(left, right)[side]])
        ends = RANDOM.choice([info.min, info.max, 0], shape)
        return np.where(RANDOM.random(shape) < 0.5, ends, RANDOM.integers(info.min, info.max + 1, shape)).astype(info.dtype)

    return make


@needs_compiler
@pytest.mark.parametrize(
    ("left", "right", "layouts", "target"),
    [
        (Elem.I8, Elem.I8, LAYOUTS, DOT4),
        (Elem.U8, Elem.U8, LAYOUTS[1:2], DOT4),
        (Elem.I8, Elem.U8, LAYOUTS[:1], DOT4),
        (Elem.U8, Elem.I8, LAYOUTS[3:], DOT4),
        (Elem.I8, Elem.U8, LAYOUTS[1:2], DOT2),
    ],
)
def test_products_of_bytes(left: Elem, right: Elem, layouts: Sequence[tuple[str, str]], target: Target) -> None:
    module = products(left, right, Elem.I32, layouts)
    tensors = lowered(module, target)
    assert f"dot{target.dots}(" in print_kernels(tensors.kernels)
    ways = Ways(tensors.kernels)
    for shape in SHAPES:
        check(module, tensors, ways, operands(integers(left, right), shape, layouts))
    info = [np.iinfo(DTYPES[e]) for e in (left, right)]
    least = lambda side, shape: np.full(shape, info[side].min or info[side].max, info[side].dtype)  # noqa: E731
    shape = (5, 140_003, 4)  # the sum of -128 * -128 and of 255 * 255 wraps
    args = operands(least, shape, layouts)
    expected = np.int64(args[0].flat[0]) * np.int64(args[1].flat[0]) * shape[1]
    for y in Interpreter(tensors.module, Recorder(), ways.launch).call("f", args):
        assert np.all(y == expected.astype(np.int32)) and abs(expected) >= 1 << 31


def reals(scale: float, special: float, *small: float) -> Any:
    def make(side: int, shape: list[int]) -> Array:
        x = RANDOM.standard_normal(shape) * scale
        odd = RANDOM.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, *small], shape)
        return np.asarray(rounded(np.where(RANDOM.random(shape) < special, odd, x).astype(np.float32), Elem.BF16))

    return make


def binade(*exponents: int) -> Any:
    """Numbers of one exponent each side, so that sums may nearly cancel."""

    def make(side: int, shape: list[int]) -> Array:
        size = np.float32(2.0) ** np.float32(exponents[side] - 7) * RANDOM.integers(128, 256, shape)
        return np.asarray(rounded((RANDOM.choice([-1, 1], shape) * size).astype(np.float32), Elem.BF16))

    return make


@needs_compiler
def test_products_of_bf16() -> None:
    """Ordinary numbers take the instruction; those whose products or sums may be subnormal must not."""
    module = products(Elem.BF16, Elem.BF16, Elem.F32)
    tensors = lowered(module, PAIRS)
    assert "fma2_normal(" in print_kernels(tensors.kernels)
    ways = Ways(tensors.kernels)
    for shape in SHAPES:
        check(module, tensors, ways, operands(reals(1.0, 0.0), shape))
    for scale, special in ((1e-21, 0.0), (1e-30, 0.0), (1.0, 0.02), (1e19, 0.0), (1e-16, 0.0), (2e-38, 0.0), (1.0, 0.2), (1e18, 0.1)):
        for small in ((), (1e-40, -1e-30)):
            check(module, tensors, ways, operands(reals(scale, special, *small), (8, 25, 17)))
    for exponents in ((-56, -56), (-57, -56), (-20, -92), (-126, 14), (-127, 15)):  # at the edge of what may be subnormal, and beyond
        check(module, tensors, ways, operands(binade(*exponents), (8, 25, 17)))


@needs_compiler
@pytest.mark.parametrize(("elem", "wide", "inner"), [(Elem.BF16, Elem.F32, 3), (Elem.BF16, Elem.F32, 9), (Elem.I8, Elem.I32, 3)])
def test_sums_over_two_axes(elem: Elem, wide: Elem, inner: int) -> None:
    """The order of a sum of reals is that of the axes, so only the last one can lie in words; integers may go along any."""

    def body(b: Builder, x: Value, m: Value) -> list[Value]:
        sizes = [b.i64(n) for n in (8, 10, inner)]
        x, m = (b.reshape(t, sizes) for t in (x, m))

        def element(b: Builder, i: Value, j: Value) -> Value:
            term = lambda b, p, q: b.op("mul", *(b.convert(b.index(t, k, p, q), Type(wide)) for t, k in ((x, i), (m, j))))  # noqa: E731
            return b.reduce("sum", sizes[1:], term, "chain")

        return [b.tabulate([sizes[0], sizes[0]], element)]

    module = function([tensor(3, elem), tensor(3, elem)], None, body)
    tensors = lowered(module, DOT4 if wide is Elem.I32 else PAIRS)
    assert any(name in print_kernels(tensors.kernels) for name in ("dot4(", "fma2(")) == (inner == 9 or wide is Elem.I32)
    make = integers(elem, elem) if wide is Elem.I32 else reals(1.0, 0.0)
    check(module, tensors, Ways(tensors.kernels), [make(0, [8, 10, inner]) for _ in range(2)])


# ---------------------------------------------------------------- ops


def parts(words: Array, dtype: Any) -> Array:
    return words.view(dtype).reshape(*words.shape, -1).astype(np.int64)


def test_meaning() -> None:
    """`dot4` and `dot2` by NumPy on parts, and `fma2` by two fused multiply-adds of what lies in the halves."""
    a, b, c = (RANDOM.integers(-(1 << 31), 1 << 31, 500).astype(np.int32) for _ in range(3))
    dot4 = c + (parts(a, np.int8) * parts(b, np.uint8)).sum(-1)
    dot2 = c + (parts(a, np.int16) * parts(b, np.int16)).sum(-1)
    assert np.array_equal(SCALAR_OPS["dot4"].evaluate(Elem.I32, a, b, c), dot4.astype(np.int32))
    assert np.array_equal(SCALAR_OPS["dot2"].evaluate(Elem.I32, a, b, c), dot2.astype(np.int32))
    x, y, z = (RANDOM.standard_normal(500).astype(np.float32) for _ in range(3))
    high = lambda w: (w.view(np.uint32) & 0xFFFF0000).astype(np.uint32).view(np.float32)  # noqa: E731
    low = lambda w: (w.view(np.uint32) << 16).astype(np.uint32).view(np.float32)  # noqa: E731
    with np.errstate(all="ignore"):
        expected = fma32(low(x), low(y), fma32(high(x), high(y), z))
        same_bits([expected], [SCALAR_OPS["fma2"].evaluate(Elem.F32, x, y, z)])


OPS = """
kernel ops(y: out ELEM[n, LANES], a: ELEM[n, LANES], b: ELEM[n], c: ELEM[n, LANES], n: i64) {
  for i in 0..n {
    vector<LANES> l in 0..COUNT {
      y[i, l] = OP(a[i, l], b[i], c[i, l])
    }
  }
}
"""


@needs_compiler
@pytest.mark.parametrize("name", ["dot2", "dot4", "fma2", "fma2_normal"])
def test_ops_on_vectors_of_all_lengths(name: str) -> None:
    elem = SCALAR_OPS[name].takes[0]
    kernels = {}
    for lanes, count in ((1, 1), (2, 2), (4, 3), (8, 8), (16, 16), (64, 50)):
        text = OPS.replace("LANES", str(lanes)).replace("COUNT", str(count)).replace("OP", name).replace("ELEM", str(elem))
        kernels[f"ops_{lanes}"] = parse_kernel(text.replace("kernel ops", f"kernel ops_{lanes}"))
    ways = Ways(kernels)
    n = 7
    for kernel in kernels.values():
        lanes = int(kernel.inputs[0].shape[1].value)  # type: ignore[union-attr]
        if elem is Elem.I32:
            a, b, c = (RANDOM.integers(-(1 << 31), 1 << 31, s).astype(np.int32) for s in ((n, lanes), n, (n, lanes)))
        else:
            a, b, c = (words_of_bf16((n, lanes)), words_of_bf16((n,)), RANDOM.standard_normal((n, lanes)).astype(np.float32))
        ways.launch(kernel.name, [np.zeros((n, lanes), DTYPES[elem])], [a, b, c, n])


def words_of_bf16(shape: tuple[int, ...]) -> Array:
    """Pairs of numbers of which neither is subnormal."""
    first, second = (np.asarray(rounded(RANDOM.standard_normal(shape).astype(np.float32), Elem.BF16)).view(np.uint32) for _ in range(2))
    return (first | second >> 16).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("name", "instruction", "has"),
    [
        ("dot4", "vpdpbusd", bool(cpu.features() & cpu.VNNI)),
        ("dot2", "(pmaddwd|vpdpwssd)", "sse2" in cpu.features()),
        ("fma2_normal", "vdpbf16ps", cpu.features() >= cpu.PAIRS),
    ],
)
def test_ops_are_instructions(name: str, instruction: str, has: bool) -> None:
    if not has:
        pytest.skip(f"this processor has no {instruction}")
    text = OPS.replace("LANES", "32").replace("COUNT", "32").replace("OP", name).replace("ELEM", str(SCALAR_OPS[name].takes[0]))
    code = jit.assembly(print_kernel(parse_kernel(text)), jit.Level.KERNEL)
    registers = 128 // cpu.vectors().vector_bytes  # that 32 words fill
    assert len(re.findall(rf"{instruction}\t", code)) == registers


def test_a_matrix_that_is_read_once_is_not_copied() -> None:

    def body(b: Builder, x: Value, v: Value) -> list[Value]:
        def element(b: Builder, i: Value) -> Value:
            term = lambda b, q: b.op("mul", *(b.convert(e, Type(Elem.I32)) for e in (b.index(x, i, q), b.index(v, q))))  # noqa: E731
            return b.reduce("sum", [b.dim(v, 0)], term, "chain")

        return [b.tabulate([b.dim(x, 0)], element)]

    tensors = lowered(function([tensor(2, Elem.I8), tensor(1, Elem.I8)], None, body), DOT4)
    assert "dot4(" not in print_kernels(tensors.kernels)
