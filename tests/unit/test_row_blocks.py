"""Blocks of rows: attention and its derivative never store a matrix of scores, and every way of computing it agrees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ssa_services import Recorder
from tensor_run import F32, call, function, lowered, product, same_bits, tensor

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.ssa.builder import Builder
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, Value
from tlc.tensor.kernel.ir import Const, Kernel
from tlc.tensor.lower import Tensors
from tlc.tensor.schedule import Target

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(8)
MASKS = {"none": "0.0", "causal": "if j <= i { 0.0 } else { -inf }", "wide": "if j < i + 3 { 0.0 } else { -inf }"}


def reals(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------- against the interpreter of SSA


def attention(heads: int, mask: str, fixed: tuple[int, int, int] | None = None) -> Module:
    """y = softmax(q k' / 8 where the mask holds) v over `heads` axes of heads; sizes are symbolic unless they are given."""

    def body(b: Builder, q: Value, k: Value, v: Value) -> list[Value]:
        outer = [b.dim(q, a) for a in range(heads)]
        n, m, d = b.dim(q, heads), b.dim(k, heads), b.dim(k, heads + 1)
        if fixed:
            n, m, d = map(b.i64, fixed)
            q, k, v = (b.reshape(x, [*outer, rows, d]) for x, rows in ((q, n), (k, m), (v, m)))

        def score(b: Builder, *at: Value) -> Value:
            *h, i, j = at
            s = b.reduce("sum", [d], lambda b, c: product(b, q, [*h, i, c], k, [*h, j, c]), "chain")
            s = b.op("div", s, b.const(8.0, F32))
            if mask == "none":
                return s
            seen = {"causal": ("le", 0), "strict": ("lt", 0), "wide": ("lt", 3)}
            comparison, ahead = seen[mask]
            return b.op("select", b.op(comparison, j, b.op("add", i, b.i64(ahead))), s, b.const(float("-inf"), F32))

        s = b.tabulate([*outer, n, m], score)
        top = b.tabulate([*outer, n], lambda b, *at: b.reduce("max", [m], lambda b, j: b.index(s, *at, j), "lanes"))
        e = b.tabulate([*outer, n, m], lambda b, *at: b.op("exp", b.op("sub", b.index(s, *at), b.index(top, *at[:-1]))))
        t = b.tabulate([*outer, n], lambda b, *at: b.reduce("sum", [m], lambda b, j: b.index(e, *at, j), "lanes"))
        a = b.tabulate([*outer, n, m], lambda b, *at: b.op("div", b.index(e, *at), b.index(t, *at[:-1])))

        def out(b: Builder, *at: Value) -> Value:
            *h, i, c = at
            return b.reduce("sum", [m], lambda b, j: product(b, a, [*h, i, j], v, [*h, j, c]), "chain")

        return [b.tabulate([*outer, n, d], out)]

    return function([tensor(heads + 2)] * 3, [tensor(heads + 2)], body)


def blocks(tensors: Tensors) -> list[Kernel]:
    return [k for name, k in tensors.kernels.items() if name.startswith("blocks")]


@pytest.mark.parametrize("size", [(64, 64, 8), (70, 70, 5), (33, 65, 16), (96, 70, 3), (2, 64, 4)])
@pytest.mark.parametrize("mask", ["none", "causal", "wide"])
@pytest.mark.parametrize("known", [True, False])
def test_one_kernel_gives_the_bits_of_many(size: tuple[int, int, int], mask: str, known: bool) -> None:
    n, m, d = size
    module = attention(1, mask, size if known else None)
    args = reals(2, n, d), reals(2, m, d), reals(2, m, d)
    tensors = lowered(module)
    (kernel,) = tensors.kernels.values()
    assert kernel in blocks(tensors)
    assert kernel.notes[-1].endswith(
        "all columns" if mask == "none" else f"columns up to {2 if mask == 'wide' else 0} right of the diagonal"
    )
    same_bits(Interpreter(module, Recorder()).call("f", args), call(tensors, args))


@pytest.mark.parametrize("heads", [0, 2])
@pytest.mark.parametrize("target", [Target(16, 16), Target(64, 32)])
def test_any_number_of_heads_and_any_vectors(heads: int, target: Target) -> None:
    module = attention(heads, "causal")
    args = [reals(*(3, 1)[:heads], 75, 9) for _ in range(3)]
    tensors = lowered(module, target)
    assert len(blocks(tensors)) == 1
    same_bits(Interpreter(module, Recorder()).call("f", args), call(tensors, args))


def test_a_row_that_sees_nothing_is_as_without_blocks() -> None:
    """Nothing is skipped by a mask that leaves a row empty: its softmax is NaN."""
    module = attention(1, "strict")
    args = [reals(1, 66, 4) for _ in range(3)]
    tensors = lowered(module)
    assert blocks(tensors)[0].notes[-1].endswith("all columns")
    result = call(tensors, args)
    assert np.all(np.isnan(result[0][0, 0]))
    same_bits(Interpreter(module, Recorder()).call("f", args), result)


def test_without_flash_and_for_short_rows_there_are_no_blocks() -> None:
    assert not blocks(lowered(attention(1, "causal"), Target(flash=False)))
    assert not blocks(lowered(attention(1, "causal", (64, 32, 8))))


# ---------------------------------------------------------------- whole programs, and gradients

PROGRAM = """
fn attention(q: f32[t, d], k: f32[t, d], v: f32[t, d]) -> f32[t, d] {
  let s = q @ k.T
  let score = for[i, j] s[i, j] / sqrt(f32(d)) + (MASK)
  softmax(score) @ v
}
fn loss(q: f32[h, t, d], k: f32[h, t, d], v: f32[h, t, d], g: f32[h, t, d]) -> f32 = sum(g * attention(q, k, v))
fn wave(n: i64, T: i64, D: i64) -> f32[2, T, D] = for[h < 2, i < T, c < D] sin(f32((h * T + i) * D + c) * f32(n) + f32(i * i % 7))
fn main(T: i64 = 72, D: i64 = 6) {
  let (q, k, v, g) = (wave(3, T, D), wave(5, T, D), wave(7, T, D), wave(11, T, D))
  let y = attention(q, k, v)
  let (l, (dq, dk, dv)) = value_and_grad(loss)(q, k, v, g, wrt = (q, k, v))
  for h in 0..2 { for i in 0..T { for c in 0..D {
    print("{q[h, i, c]:.9} {k[h, i, c]:.9} {v[h, i, c]:.9} {g[h, i, c]:.9} {y[h, i, c]:.9} {dq[h, i, c]:.9} {dk[h, i, c]:.9} {dv[h, i, c]:.9}")
  } } }
  print("{l:.9}")
}
"""


def lines(mask: str, size: tuple[int, int], threads: int = 1, **changes: Any) -> list[str]:
    program = pipeline.front(Source("test.tl", PROGRAM.replace("MASK", MASKS[mask])))
    services = Recorder()
    options = replace(Options(verify=True, flags={"T": size[0], "D": size[1]}), **changes)
    Native(pipeline.build(program, options, {}), services, threads=threads).run()
    return "\n".join(services.lines).splitlines()


def reference(mask: str, q: Array, k: Array, v: Array, g: Array) -> list[Array]:
    """Attention and its gradients in float64."""
    n = q.shape[1]
    i, j = np.arange(n)[:, None], np.arange(n)
    seen = {"none": j >= 0, "causal": j <= i, "wide": j < i + 3}[mask]
    s = np.where(seen, q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]), -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    a = e / e.sum(-1, keepdims=True)
    da = g @ v.transpose(0, 2, 1)
    ds = a * (da - (da * a).sum(-1, keepdims=True)) / np.sqrt(q.shape[2])
    return [a @ v, ds @ k, ds.transpose(0, 2, 1) @ q, a.transpose(0, 2, 1) @ g]


@pytest.mark.parametrize("size", [(72, 6), (128, 33)])
@pytest.mark.parametrize("mask", ["none", "causal", "wide"])
def test_values_and_gradients(mask: str, size: tuple[int, int]) -> None:
    printed = lines(mask, size)
    assert lines(mask, size, threads=3) == printed
    assert lines(mask, size, flash=False) == printed
    columns = np.array([[float(x) for x in line.split()] for line in printed[:-1]]).T.reshape(8, 2, *size)
    expected = reference(mask, *columns[:4])
    for found, right in zip(columns[4:], expected, strict=True):
        assert np.max(np.abs(found - right)) < 4e-6 * max(1.0, np.max(np.abs(right)))
    assert float(printed[-1]) == pytest.approx(float(np.sum(columns[3] * expected[0])), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_a_result_that_meets_its_queries(mask: str) -> None:
    """The sum for one gradient is added to that of another product: all of it is one kernel, on the CPU and in grids of a GPU."""
    changes = {
        "MASK": MASKS[mask],
        "sum(g * attention": "sum(q * attention",
        "let y = attention(q, k, v)": "let y = g",
        "let (l, (dq, dk, dv)) = value_and_grad": "let (dq, dk, dv) = grad",
        "{l:.9}": "",
    }
    text = PROGRAM
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    program = pipeline.front(Source("test.tl", text))
    printed = []
    plain = Options(verify=True, flags={"T": 72, "D": 6})
    emulated = replace(plain, device="cuda-emulated")
    for options, threads in ((plain, 1), (plain, 3), (replace(plain, flash=False), 1), (emulated, 1)):
        tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "kernels")
        if options.flash:
            assert len(blocks(tensors)) == 1 and not any(name.startswith(("product", "rows")) for name in tensors.kernels)
        services = Recorder()
        Native(pipeline.build(program, options, {}), services, threads=threads).run()
        printed.append(services.lines)
    assert all(p == printed[0] for p in printed)
    columns = np.array([float(x) for x in " ".join(printed[0]).split()]).reshape(2, 72, 6, 8).transpose(3, 0, 1, 2)
    q, k, v = columns[:3]
    y, dq, dk, dv = reference(mask, q, k, v, q)
    for found, right in zip(columns[5:], (dq + y, dk, dv), strict=True):
        assert np.max(np.abs(found - right)) < 4e-6 * max(1.0, np.max(np.abs(right)))


BRANCH = """
fn attention(q: f32[t, d], k: f32[t, d], v: f32[t, d]) -> f32[t, d] {
  let score = for[i, j] if j <= i { sum[c] q[i, c] * k[j, c] / sqrt(f32(d)) } else { -inf }
  softmax(score) @ v
}
fn loss(q: f32[b, h, t, d], k: f32[b, h, t, d], v: f32[b, h, t, d], g: f32[b, h, t, d]) -> f32 {
  let y = attention(q, k, v)
  sum(g * y * y)
}
fn wave(n: i64, T: i64, D: i64) -> f32[1, 2, T, D] = for[b < 1, h < 2, i < T, c < D] sin(f32((h * T + i) * D + c) * f32(n))
fn main(T: i64 = 72, D: i64 = 8, rounds: i64 = 1) {
  for r in 0..rounds {
    let (q, k, v, g) = (wave(3, T + r, D), wave(5, T + r, D), wave(7, T + r, D), wave(11, T + r, D))
    let (l, (dq, dk, dv)) = value_and_grad(loss)(q, k, v, g, wrt = (q, k, v))
    print("{l:.9} {sum(dq * dq):.9} {sum(dk * dk):.9} {sum(dv * dv):.9} {dq[0, 1, 3, 2]:.9} {dk[0, 0, 5, 7]:.9} {dv[0, 1, 9, 0]:.9}")
  }
}
"""


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_mask_that_is_a_branch_around_a_scaled_sum(rounds: int) -> None:
    """As the language writes attention, with a batch of one; with two rounds the length is not known. The derivative asks for the result,
    so there are two kernels, and the scores are made in both.
    """
    program = pipeline.front(Source("test.tl", BRANCH))
    options = Options(verify=True, flags={"T": 72, "D": 8, "rounds": rounds})
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "kernels")
    assert len(blocks(tensors)) == 2 and not any(name.startswith(("product", "rows")) for name in tensors.kernels)
    printed = []
    for flash, threads in ((True, 1), (True, 3), (False, 1)):
        services = Recorder()
        Native(pipeline.build(program, replace(options, flash=flash), {}), services, threads=threads).run()
        printed.append(services.lines)
    assert printed[0] == printed[1] == printed[2]
    expected = Recorder()
    pipeline.interpret(program, options, expected)
    for found, right in zip(" ".join(printed[0]).split(), " ".join(expected.lines).split(), strict=True):
        assert float(found) == pytest.approx(float(right), rel=2e-4, abs=2e-5)


def bytes_of_kernels(size: int, flash: bool) -> int:
    """The bytes of everything that kernels write, buffers of the work included."""
    program = pipeline.front(Source("test.tl", PROGRAM.replace("MASK", MASKS["causal"])))
    options = Options(flags={"T": size, "D": 64}, flash=flash)
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "kernels")
    total = 0
    for kernel in tensors.kernels.values():
        for b in kernel.outputs:
            cells = 1
            for e in b.shape:
                assert isinstance(e, Const)
                cells *= int(e.value)
            total += cells * b.elem.bytes
    return total


def test_memory_is_linear_in_the_length() -> None:
    short, long = bytes_of_kernels(512, True), bytes_of_kernels(2048, True)
    assert long <= 5 * short  # 4, and copies that pay for long ones only
    assert bytes_of_kernels(2048, False) > 8 * long
