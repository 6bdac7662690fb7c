"""Products on tensor cores: which thread holds what, what kernels must not do, and how far their results are from the true ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_sim import needs_simulator, simulate
from test_cuda_emit import arguments, assembled, job, needs_assembler, needs_compiler

from tlc.backends.cuda import ptx
from tlc.backends.cuda.emit import emit
from tlc.backends.runtime.kernel_run import run as run_natively
from tlc.driver import cli
from tlc.driver.options import Options
from tlc.driver.pipeline import front, middle
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.fma import fma32
from tlc.frontend.narrow_reals import NARROW, rounded
from tlc.frontend.ops import DTYPES
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.tensor import grid_products
from tlc.tensor.kernel import interp
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.interp import run
from tlc.tensor.kernel.ir import (
    Barrier,
    Buffer,
    CommitCopies,
    Const,
    CopyAsync,
    For,
    If,
    Kernel,
    Load,
    LoadMatrices,
    Mma,
    Stmt,
    Store,
    Var,
    WaitCopies,
    const,
    op,
)
from tlc.tensor.kernel.matrices import FORMS, Fragment, error_bound, is_tf32, loaded, to_tf32
from tlc.tensor.kernel.text import parse_kernel, print_kernel
from tlc.tensor.kernel.verify import verify

LANES = range(32)

# ---------------------------------------------------------------- layouts

# The rules of the PTX ISA in its words (section "Matrix Fragments" of `mma`): row and column of element `i` of a lane, whose
# `group` is laneid >> 2 and whose `member` is laneid % 4.
ISA: dict[tuple[str, str], Callable[[int, int, int], tuple[int, int]]] = {
    ("m16n8k16", "a"): lambda group, member, i: (
        group if 0 <= i < 2 or 4 <= i < 6 else group + 8,
        member * 2 + (i & 1) if i < 4 else member * 2 + (i & 1) + 8,
    ),
    ("m16n8k16", "b"): lambda group, member, i: (member * 2 + (i & 1) if i < 2 else member * 2 + (i & 1) + 8, group),
    ("m16n8k16", "c"): lambda group, member, i: (group if i < 2 else group + 8, member * 2 + (i & 1)),
    ("m16n8k8", "a"): lambda group, member, i: (group if i in (0, 2) else group + 8, member if i in (0, 1) else member + 4),
    ("m16n8k8", "b"): lambda group, member, i: (member if i == 0 else member + 4, group),
    ("m16n8k8", "c"): lambda group, member, i: (group if i in (0, 1) else group + 8, member * 2 + (i & 1)),
}
SIZES = {("m16n8k16", "a"): (16, 16), ("m16n8k16", "b"): (16, 8), ("m16n8k8", "a"): (16, 8), ("m16n8k8", "b"): (8, 8)}


@pytest.mark.parametrize("elem", FORMS, ids=str)
@pytest.mark.parametrize("which", ["a", "b", "c"])
def test_who_holds_what(elem: Elem, which: str) -> None:
    """As the ISA says; each element is held once."""
    form = FORMS[elem]
    fragment: Fragment = getattr(form, which)
    assert fragment.extents == SIZES.get((form.name, which), (16, 8))
    rule = ISA[form.name, which]
    found = {(lane, i): (fragment.row.of(lane, i), fragment.column.of(lane, i)) for lane in LANES for i in range(fragment.count)}
    assert found == {(lane, i): rule(lane >> 2, lane % 4, i) for lane, i in found}
    assert len(set(found.values())) == len(found) == fragment.extents[0] * fragment.extents[1]


@pytest.mark.parametrize("count", [4, 8])
def test_what_ldmatrix_gives(count: int) -> None:
    """Register `j` of a lane has the part of row `lane / 4` of matrix `j` at `lane % 4`: 32 bits of 16 bytes."""
    each = count // 4
    rows = np.arange(32 * count).reshape(32, count)
    plain = loaded(rows, transposed=False)
    for lane in LANES:
        for j in range(4):
            part = rows[8 * j + lane // 4][lane % 4 * each :][:each]
            assert (plain[lane, each * j : each * j + each] == part).all()
            if count == 8:  # of the transposed matrix
                part = rows[8 * j : 8 * j + 8].T[lane // 4][lane % 4 * 2 :][:2]
                assert (loaded(rows, transposed=True)[lane, 2 * j : 2 * j + 2] == part).all()


# ---------------------------------------------------------------- one product, by hand

TILE = """\
kernel tile(y: out f32[16, 16], x: bf16[16, 16], w: bf16[16, 16]) {
  block b in 0..1 {
    shared s: bf16[16, 24]
    shared r: bf16[16, 24]
    thread t in 0..32 {
      for i in 0..8 {
        s[i * 2 + t // 16, t % 16] = x[i * 2 + t // 16, t % 16]
        r[i * 2 + t // 16, t % 16] = w[i * 2 + t // 16, t % 16]
      }
      barrier
      local acc: f32[2, 4]
      local a: bf16[8]
      local c: bf16[8]
      unroll n in 0..2 {
        unroll e in 0..4 {
          acc[n, e] = 0.0f32
        }
      }
      let q0 = t // 8 % 2
      let q1 = t // 16
      ldmatrix a[0] = s[t % 8 + q0 * 8, q1 * 8]
      ldmatrix.trans c[0] = r[t % 8 + q0 * 8, q1 * 8]
      unroll m in 0..2 {
        mma acc[m, 0] += a[0] @ c[m * 4]
      }
      unroll o in 0..2 {
        unroll p in 0..4 {
          y[t // 4 + p // 2 * 8, t % 4 * 2 + p % 2 + o * 8] = acc[o, p]
        }
      }
    }
  }
}
"""


def numbers(random: np.random.Generator, elem: Elem, shape: tuple[int, ...]) -> np.ndarray:
    x = random.standard_normal(shape).astype(np.float32)
    return np.asarray(rounded(x, elem) if elem in NARROW else x).astype(DTYPES[elem])


def run_tile(kernel: Kernel, how: Callable[..., None]) -> bytes:
    random = np.random.default_rng(0)
    x, w = (numbers(random, Elem.BF16, (16, 16)) for _ in range(2))
    y = np.zeros((16, 16), np.float32)
    how(kernel, [y], [x, w])
    true, size = (f(x).astype(np.float64) @ f(w).astype(np.float64) for f in (np.asarray, np.abs))
    assert (abs(y - true) <= error_bound(Elem.BF16, 16) * size).all()
    return y.tobytes()


def test_a_product_in_every_form() -> None:
    kernel = parse_kernel(TILE)
    verify(kernel)
    assert print_kernel(kernel) == TILE
    results = {run_tile(kernel, run), run_tile(kernel, lambda *args: run(*args, adverse=True, races=True))}
    for backward in (False, True):
        plain = emulated(kernel, backward)
        verify(plain)
        results |= {run_tile(plain, lambda *args: run(*args, adverse=True)), run_tile(plain, run_natively)}
    assert len(results) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        mma acc", "        if t < 16 { mma acc[m, 0] += a[0] @ c[m * 4] } mma acc", "a product for `acc` stands where not all threads of a warp may come"),
        ("      ldmatrix a[0]", "      if t < 16 { ldmatrix a[0] = s[t % 8, 0] } ldmatrix a[0]", "matrices of `s` are loaded where not all threads"),
        ("c[m * 4]\n", "c[m * 2]\n", "a matrix of 4 elements a thread does not lie in `c`"),
        ("acc[m, 0]", "acc[t % 2, 0]", "where the matrix in `acc` lies varies in a warp"),
        ("local a: bf16[8]", "local a: bf16[4]", "a matrix of 8 elements a thread does not lie in `a`"),
        ("local a: bf16[8]", "local a: f16[8]", "matrices of `s` are of bf16, and go to f16"),
        ("f32", "f64", "a product of matrices of bf16 and bf16 in f64"),
        ("ldmatrix a[0] = s", "ldmatrix a[0] = x", "matrices of `x` lie in no shared memory"),
        ("shared s: bf16[16, 24]", "shared s: bf16[16, 4]", "`s` has no rows of 16 bytes"),
        ("unroll m in 0..2", "vector<2> m in 0..2", "loop `m`|threads meet in the vector loop `m`"),
    ],
)
def test_what_the_verifier_refuses(old: str, new: str, message: str) -> None:
    assert old in TILE
    with pytest.raises(InternalError) as found:
        verify(parse_kernel(TILE.replace(old, new, 1 if len(old) > 3 else -1)))
    assert any(m in str(found.value).split("\n")[0] for m in message.split("|")), found.value


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("      barrier\n", "", r"a race for `s\[\d+, \d+\]`"),
        ("q1 * 8]\n      ldm", "q1 * 4]\n      ldm", "a row of a matrix begins at element 4 of `s`, and not at a multiple of 16 bytes"),
        ("s[t % 8 + q0 * 8", "s[t % 8 + q0 * 9", r"index 16 of `s` is out of range for 16"),
        ("ldmatrix a[0] = s[t % 8 + q0 * 8, q1 * 8]", "ldmatrix a[0] = s[t % 8, q1 * 24]", "index 24 of `s` is out of range for 24"),
    ],
)
def test_what_the_interpreter_finds(old: str, new: str, message: str) -> None:
    assert old in TILE
    kernel = parse_kernel(TILE.replace(old, new, 1))
    verify(kernel)
    with pytest.raises(InternalError, match=message):
        run_tile(kernel, lambda *args: run(*args, races=True))


COPY = """\
kernel copies(y: out bf16[64, 8], x: bf16[n, 8], n: i64) {
  block b in 0..1 {
    shared s: bf16[2, 64, 8]
    thread t in 0..64 {
      cp.async s[0, t, 0] = x[t, 0 if t < n]
      cp.async.commit
      for i in 0..1 {
        cp.async s[1, t, 0] = x[t + 1, 0 if t + 1 < n]
        cp.async.commit
        cp.async.wait 1
        barrier
        vector<8> l in 0..8 {
          y[t, l] = s[0, 63 - t, l]
        }
        barrier
      }
    }
  }
}
"""


def run_copies(kernel: Kernel, how: Callable[..., None]) -> None:
    x, y = np.arange(400, dtype=np.float32).reshape(50, 8) % 256, np.full((64, 8), -1, np.float32)
    how(kernel, [y], [x, np.int64(50)])
    assert (y == np.concatenate([x, np.zeros((14, 8), np.float32)])[::-1]).all()


def test_copies_past_registers() -> None:
    kernel = parse_kernel(COPY)
    verify(kernel)
    assert print_kernel(kernel) == COPY
    run_copies(kernel, lambda *args: run(*args, races=True))
    for backward in (False, True):
        plain = emulated(kernel, backward)
        verify(plain)
        run_copies(plain, run)
        run_copies(plain, run_natively)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("s[0, t, 0] = x[t", "s[0, t, 0] = y[t", "a copy comes from `y`, which is no input with elements"),
        ("s: bf16", "s: f16", "a copy of bf16 to `s`, of f16|a f16 is stored to `y`"),
        ("wait 1", "wait 8", "waiting leaves 8 groups of copies, and not 7 at most"),
        ("for i in 0..1", "vector<1> i in 0..1", "copies to shared memory stand in a kernel without blocks, or in a vector loop"),
        ("      cp.async s[0, t, 0]", "      local z: bf16[8] cp.async z[0]", "a copy goes to `z`, which is not shared"),
    ],
)
def test_copies_that_the_verifier_refuses(old: str, new: str, message: str) -> None:
    assert old in COPY
    with pytest.raises(InternalError) as found:
        verify(parse_kernel(COPY.replace(old, new, 1)))
    assert any(m in str(found.value).split("\n")[0] for m in message.split("|")), found.value


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("wait 1", "wait 2", "assert"),  # rubbish
        ("        barrier\n        vector", "        vector", r"a race for `s\[0, \d+, \d\]`"),
        ("        cp.async.wait 1\n", "", "assert"),
        ("x[t, 0 if", "x[t, 4 if", "4 elements from|8 elements from index 4 of `x` on are out of range for 8"),
        ("if t < n", "if t < n + 1", "index 50 of `x` is out of range for 50"),
    ],
)
def test_what_the_interpreter_finds_of_copies(old: str, new: str, message: str) -> None:
    assert old in COPY
    kernel = parse_kernel(COPY.replace(old, new, 1))
    verify(kernel)
    with pytest.raises((InternalError, AssertionError), match=message):
        run_copies(kernel, lambda *args: run(*args, races=True))


# ---------------------------------------------------------------- the schedule

KINDS = [Elem.BF16, Elem.F16, Elem.F32]
# how the factors lie in memory: both ways for each
LIES = {"ik,kj": ("a[i, p]", "b[p, j]"), "ki,jk": ("a[p, i]", "b[j, p]"), "ik,jk": ("a[i, p]", "b[j, p]"), "ki,kj": ("a[p, i]", "b[p, j]")}


def product_kernel(elem: Elem, lies: str, n: int, m: int, k: int) -> tuple[Kernel, list[tuple[int, ...]]]:
    """The kernel, and the shapes of its factors."""
    shapes = [(n, k) if lies[0] == "i" else (k, n), (k, m) if lies[-1] == "j" else (m, k)]
    (a, b), ((a0, a1), (b0, b1)) = LIES[lies], shapes
    value = "x" if elem is Elem.F32 else "f32(x)"
    text = f"""
fn main() {{
  let a = for[i < {a0}, j < {a1}] {elem}(i * 3 + j)
  let b = for[i < {b0}, j < {b1}] {elem}(i - j)
  print(for[i < {n}, j < {m}] sum[p < {k}] {value.replace("x", a)} * {value.replace("x", b)})
}}
"""
    return tensor_core_kernel(text), shapes


def tensor_core_kernel(text: str) -> Kernel:
    """The one kernel of a program that has products of matrices."""
    stages = middle(front(Source("prog.tl", text)), Options(device="cuda", tensor_cores=True))
    kernels = next(value for stage, _, value in stages if stage == "kernels").kernels
    (kernel,) = (kernel for kernel in kernels.values() if kernel.notes[-1].startswith("tensor cores"))
    verify(kernel)
    assert isinstance(kernel, Kernel)
    return kernel


def factors(elem: Elem, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [numbers(random, elem, shape) for shape in shapes]


def arranged(kernel: Kernel, given: list[np.ndarray]) -> list[np.ndarray]:
    """The factors in the order of the kernel's inputs, which have different shapes."""
    shapes = [tuple(e.value for e in b.shape if isinstance(e, Const)) for b in kernel.inputs if isinstance(b, Buffer)]
    return [next(x for x in given if x.shape == shape) for shape in shapes]


def in_f64(lies: str, factors: list[np.ndarray]) -> np.ndarray:
    return np.einsum(f"{lies}->ij", *(x.astype(np.float64) for x in factors))


def chain(lies: str, factors: list[np.ndarray]) -> np.ndarray:
    """Each element as one chain of fused multiply-adds: what a CPU computes."""
    a, b = (x.astype(np.float32) for x in factors)
    a, b = (a if lies[0] == "i" else a.T), (b if lies[-1] == "j" else b.T)
    acc = np.zeros((len(a), b.shape[1]), np.float32)
    for p in range(a.shape[1]):
        acc = fma32(*np.broadcast_arrays(a[:, p : p + 1], b[p], acc))
    return acc


def as_tf32(x: np.ndarray) -> np.ndarray:
    """To the nearest of eleven bits, halves away from 0, by way of f64."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.trunc(mantissa * 2**11 + np.copysign(0.5, mantissa)), exponent - 11).astype(np.float32)


@pytest.mark.parametrize("elem", KINDS, ids=str)
@pytest.mark.parametrize(
    ("side", "sizes", "lies"),
    [
        *((32, (24, 40, 56), lies) for lies in LIES),
        *((32, (37, 19, 45), lies) for lies in ("ik,kj", "ki,jk")),
        *((side, sizes, lies) for side, sizes in ((64, (64, 48, 32)), (128, (136, 80, 48))) for lies in ("ik,kj", "ki,jk")),
    ],
)
def test_results(elem: Elem, side: int, sizes: tuple[int, int, int], lies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are multiples of eight go by wide copies, the others alone. Factors of 16 bits give the bits of the CPU in the executor,
    those of f32 its bits for rounded factors; and all are as near to the truth as is promised of the hardware.
    """
    monkeypatch.setattr(grid_products, "BUSY", 0)
    kernel, shapes = product_kernel(elem, lies, *sizes)
    assert f"tiles of {side} by {side}" in kernel.notes[-1] and f"of {elem}" in kernel.notes[-1]
    given = factors(elem, shapes)
    inputs = arranged(kernel, given)
    y = np.zeros(sizes[:2], np.float32)
    run_natively(emulated(kernel), [y], inputs)
    true, size = in_f64(lies, given), in_f64(lies, [abs(x) for x in given])
    assert (abs(y - true) <= error_bound(elem, sizes[2]) * size).all()
    assert y.tobytes() == chain(lies, given if elem in NARROW else [as_tf32(x) for x in given]).tobytes()


GATHERED = """
fn main() {
  let at = for[i < 20] i * 7 % 50
  let a = for[i < 50, j < 40] bf16(i * 3 - j)
  let b = for[i < 40, j < 24] bf16(i - j)
  print(for[i < 20, j < 24] sum[p < 40] f32(a[at[i], p]) * f32(b[p, j]))
}
"""


def test_rows_that_are_looked_up() -> None:
    """Nothing is looked up for rows that there are not."""
    kernel = tensor_core_kernel(GATHERED)
    a, b = (numbers(np.random.default_rng(0), Elem.BF16, shape) for shape in ((50, 40), (40, 24)))
    at, y = np.arange(20) * 7 % 50, np.zeros((20, 24), np.float32)
    by_shape = {(50, 40): a, (40, 24): b, (20,): at}
    inputs = [by_shape[tuple(e.value for e in b.shape if isinstance(e, Const))] for b in kernel.inputs if isinstance(b, Buffer)]
    run(kernel, [y], inputs, races=True)
    assert y.tobytes() == chain("ik,kj", [a[at], b]).tobytes()


@pytest.mark.parametrize("elem", KINDS, ids=str)
def test_threads_and_banks(elem: Elem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a race, and the eight rows of each matrix that is loaded lie in different banks: 16 bytes each of 128."""
    wide: list[np.ndarray] = []

    class Watched(interp._Compiled):
        def read_row(self, b: Buffer, memory: interp._Memory, first: int) -> np.ndarray:
            wide.append(np.int64(first * b.elem.bytes))
            got: np.ndarray = super().read_row(b, memory, first)
            return got

    monkeypatch.setattr(interp, "_Compiled", Watched)
    for lies in ("ik,jk", "ki,kj"):
        kernel, shapes = product_kernel(elem, lies, 24, 32, 40)
        inputs, y = factors(elem, shapes), np.zeros((24, 32), np.float32)
        given = arranged(kernel, inputs)
        run(kernel, [y], given, adverse=False, races=True)
        true, size = in_f64(lies, inputs), in_f64(lies, [abs(x) for x in inputs])
        assert (abs(y - true) <= error_bound(elem, 40) * size).all()
    rows = np.array(wide).reshape(-1, 8) // 16 % 8  # threads name their rows in order
    assert len(rows) > 8 and (np.sort(rows, axis=1) == np.arange(8)).all()


def mutants(body: tuple[Stmt, ...]) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
    """Bodies with one barrier less, or another matrix, row, copy or factor than is right."""
    for n, s in enumerate(body):
        changed: list[tuple[str, tuple[Stmt, ...]]] = []
        match s:
            case Barrier() | CommitCopies():
                changed.append((f"no {type(s).__name__}", ()))
            case WaitCopies():
                changed.append(("waits less", (WaitCopies(s.pending + 1),)))
            case CopyAsync(into, source):
                for k in (0, 1):
                    indices = (*source.indices[:k], op("add", source.indices[k], const(8)), *source.indices[k + 1 :])
                    changed.append((f"a copy from index {k} further", (CopyAsync(into, replace(source, indices=indices)),)))
                if source.guard is not None:
                    changed.append(("zeros for what there is", (CopyAsync(into, replace(source, guard=op("not", source.guard))),)))
            case For():
                changed += [(what, (replace(s, body=inner),)) for what, inner in mutants(s.body)]
            case If():
                changed += [(what, (replace(s, then=inner),)) for what, inner in mutants(s.then)]
            case LoadMatrices(into, row, transposed):
                if row.elem in NARROW:
                    changed.append(("transposed", (LoadMatrices(into, row, not transposed),)))
                for k in (1, 2):
                    for by in (1, 8):
                        indices = (*row.indices[:k], op("add", row.indices[k], const(by)), *row.indices[k + 1 :])
                        changed.append((f"index {k} of {row.buffer.name}, {by} further", (LoadMatrices(into, replace(row, indices=indices), transposed),)))
            case Mma(acc, a, b):
                *outer, last = b.indices
                other = (*outer, op("sub", const(FORMS[b.elem].b.count), last))
                changed.append(("the other matrix of a pair", (Mma(acc, a, replace(b, indices=other)),)))
                changed.append(("the same sums", (Mma(replace(acc, indices=(acc.indices[0], const(0), const(0))), a, b),)))
            case _:
                pass
        yield from ((what, (*body[:n], *new, *body[n + 1 :])) for what, new in changed)


@pytest.mark.parametrize(("elem", "lies", "depth", "every"), [(Elem.BF16, "ik,kj", 120, 9), (Elem.F32, "ik,jk", 40, 3)])
def test_one_thing_wrong_is_found(elem: Elem, lies: str, depth: int, every: int) -> None:
    """It was found for all; only some are looked at each time."""
    kernel, shapes = product_kernel(elem, lies, 24, 32, depth)
    given = arranged(kernel, factors(elem, shapes))

    def result(k: Kernel) -> bytes:
        y = np.zeros((24, 32), np.float32)
        run(k, [y], given, races=True)
        return y.tobytes()

    expected = result(kernel)
    found = list(mutants(kernel.body))
    assert len(found) >= 10
    for n, (what, body) in enumerate(found):
        if n % every and what not in ("no Barrier", "waits less"):
            continue
        wrong = replace(kernel, body=body)
        try:
            verify(wrong)
            assert result(wrong) != expected, f"{what}\n{print_kernel(wrong)}"
        except InternalError as error:
            assert any(word in str(error) for word in ("race", "out of range", "multiple of 16 bytes", "does not lie in", "factors")), (what, error)


def test_a_wrong_layout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bits of a number exchanged in the table, for the schedule and for what runs it: `ldmatrix` says otherwise."""
    form = FORMS[Elem.BF16]
    right = form.a.row, form.a.column
    row, column = (replace(c, bits=(c.bits[0], c.bits[2], c.bits[1])) for c in right)
    wrong = {"a": Fragment((16, 16), row, column), "b": Fragment((16, 8), replace(form.b.row, bits=(8, 1)), form.b.column)}
    for which, fragment in wrong.items():
        monkeypatch.setitem(FORMS, Elem.BF16, replace(form, **{which: fragment}))
        with pytest.raises(AssertionError):
            run_tile(parse_kernel(TILE), run)


def test_factors_are_numbers_of_tf32() -> None:
    kernel, shapes = product_kernel(Elem.F32, "ik,jk", 16, 24, 8)
    text = print_kernel(kernel)
    assert "4294959104u32" in text
    wrong = parse_kernel(text.replace("4294959104u32", "4294967295u32"))  # the last bits stay
    given = arranged(kernel, factors(Elem.F32, shapes))
    with pytest.raises(InternalError, match="factors that are no numbers of tf32"):
        run(wrong, [np.zeros((16, 24), np.float32)], given)
    assert is_tf32(as_tf32(given[0])) and not is_tf32(given[0])


TF32 = [
    (1 + 2.0**-11, 1 + 2.0**-10), (-1 - 2.0**-11, -1 - 2.0**-10), (1 + 2.0**-12, 1.0),
    (float(np.finfo(np.float32).max), np.inf), (np.inf, np.inf), (np.nan, np.nan), (1e-45, 0.0), (-0.0, -0.0),
]  # fmt: skip


def test_rounding_to_tf32() -> None:
    given, means = (np.array(x, np.float32) for x in zip(*TF32, strict=True))
    x, y, i = Buffer("x", Elem.F32, (const(len(TF32)),)), Buffer("y", Elem.F32, (const(len(TF32)),)), Var("i")
    kernel = Kernel("round", (y,), (x,), (For(i, const(0), const(len(TF32)), (Store(y, (i,), to_tf32(Load(x, (i,)))),)),))
    got = np.zeros_like(means)
    run(kernel, [got], [given])
    assert got.tobytes() == means.tobytes()


# ---------------------------------------------------------------- as Python for a GPU


@needs_simulator
def test_in_the_simulator(tmp_path: Path) -> None:
    """The printed functions have the bits of the interpreter."""
    jobs, wanted = [], []
    for elem, lies in ((Elem.BF16, "ik,kj"), (Elem.F32, "ik,kj")):
        kernel, shapes = product_kernel(elem, lies, 16, 24, 8)
        unit, y, inputs = emit({kernel.name: kernel}), np.zeros((16, 24), np.float32), arranged(kernel, factors(elem, shapes))
        jobs += [job(unit, f, {}, arguments(kernel, [y], inputs)) for f in unit.functions]
        run(kernel, [y], inputs)
        wanted.append(y)
    for y, after in zip(wanted, simulate(jobs, tmp_path), strict=True):
        assert after[0].tobytes() == y.tobytes()


@needs_compiler
def test_registers_in_ptx() -> None:
    """What `ldmatrix` loads is what `mma.sync` multiplies, in this order, and nothing is done to it in between."""
    (text,) = ptx.compile_unit(emit({"tile": parse_kernel(TILE)}), 80)
    (a, plain), (b, transposed) = ((m[2].split(", "), m[1]) for m in re.finditer(r"ldmatrix\.sync\.aligned\.m8n8\.x4(.*)\.shared\.b16 {(.*?)}", text))
    assert (plain, transposed) == ("", ".trans")
    products = re.findall(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32 {(.*?)}, {(.*?)}, {(.*?)}, {(.*?)};", text)
    assert [(left.split(", "), right.split(", ")) for _, left, right, _ in products] == [(a, b[:2]), (a, b[2:])]
    sums = [x for acc, *_ in products for x in acc.split(", ")]
    places = dict(re.findall(r"st\.global\.f32 \t\[%rd\d+(?:\+(\d+))?\], (%f\d+);", text))
    assert [places[at] for at in ("", "4", "512", "516", "32", "36", "544", "548")] == sums  # eight rows are 512 bytes, eight columns 32


@needs_assembler
@pytest.mark.parametrize("elem", [Elem.BF16, Elem.F32], ids=str)
def test_in_machine_code(elem: Elem, tmp_path: Path) -> None:
    """128 by 128: 64 products of matrices a stage and warp, of tf32 32; factors by `ldmatrix` and 16 bytes at once (of 16 bits past the
    registers), nothing spilled, two blocks a multiprocessor. tf32 along the tile is loaded by elements.
    """
    kernel, _ = product_kernel(elem, "ik,kj", 1024, 2048, 1024)
    assert "tiles of 128 by 128" in kernel.notes[-1]
    unit = emit({kernel.name: kernel})
    for sm in (80, 90):
        said, code = assembled(*ptx.compile_unit(unit, sm), sm, tmp_path)
        assert "0 bytes spill stores, 0 bytes spill loads" in said
        registers = re.search(r"Used (\d+) registers", said)
        assert registers and 2 * int(registers[1]) * unit.functions[0].grid.threads <= 65536
        count = Counter(code)
        assert count["LDSM.16.M88.4"] == 8
        if elem is Elem.BF16:
            assert count["HMMA.16816.F32.BF16"] == count["STG.E.64"] == 64 and count["LDSM.16.MT88.4"] == 8
            assert count["LDGSTS.E.BYPASS.128"] == 32 and count["BAR.SYNC.DEFER_BLOCKING"] == 1
            assert not count["STS.128"] and not count["LDG.E.128"]
        else:
            assert count["HMMA.1688.F32.TF32"] == count["STG.E.64"] == 32 and count["LDS"] == 16
            assert count["LDG.E.128"] == count["STS.128"] == 8 and count["BAR.SYNC.DEFER_BLOCKING"] == 2
        assert not any(name in count for name in ("LDL", "STL", "LDG.E", "STG.E", "FFMA")) and len(code) < 500


# ---------------------------------------------------------------- what users see


def test_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Products of narrow reals have their bits in the executor; for f32 the flag changes them, and nothing does so without the flag."""
    path = tmp_path / "prog.tl"
    path.write_text("""
fn main(n: i64 = 40) {
  let a = for[i < n, j < n] sin(f32(i + 2 * j))
  let b = for[i, j] bf16(a[i, j])
  print(b @ b)
  print(a @ a)
}
""")
    said = []
    for flags in ([], ["--device", "cuda-emulated"], ["--device", "cuda-emulated", "--tensor-cores"]):
        assert cli.main([*flags, str(path)]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2] and said[0].split("]]")[0] == said[2].split("]]")[0]
    for flags in (["--device", "cuda", "--tensor-cores", "emit", "cuda"], ["emit", "cuda", "--tensor-cores"]):
        assert cli.main([*flags, str(path)]) == 0
        text = capsys.readouterr().out
        assert "mma_bf16(" in text and "mma_f32(" in text
    assert cli.main(["emit", "cuda", str(path)]) == 0
    assert "mma" not in capsys.readouterr().out


NARROW_PROGRAM = """
fn main(steps: i64 = 4) {
  for step in 1..steps {
    let n = 5 * step + 3
    let k = 8 * step + step % 2
    let a = for[b < 2, i < n, p < k] bf16(sin(f32(i * 7 + p + b)))
    let w = for[b < 2, j < 2 * n, p < k] bf16(cos(f32(p * 5 - j)))
    let v = for[p < k, j < 3 * n] bf16(cos(f32(p * 5 - j)))
    let y = for[b < 2, i < n, j < 2 * n] sum[p < k] f32(a[b, i, p]) * f32(w[b, j, p])
    let z = for[b < 2, i < n, j < 3 * n] sum[p < k] f32(a[b, i, p]) * f32(v[p, j])
    print("{y[1][3]} {z[0][4]} {sum(y)} {sum(z)}")
  }
  let img = for[c < 3, r < 20, s < 20] f16(sin(f32(c * 31 + r * 7 + s)))
  let f = for[o < 16, c < 3, r < 5, s < 5] f16(cos(f32(o * 3 + c * 5 + r - s)))
  let conv = for[o < 16, r < 16, s < 16] sum[c < 3, u < 5, v < 5] f32(img[c, r + u, s + v]) * f32(f[o, c, u, v])
  print(conv[3][2], sum(conv))
}
"""


def test_batches_convolutions_and_sizes_that_only_the_run_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the executor they have the bits of the CPU."""
    path = tmp_path / "prog.tl"
    path.write_text(NARROW_PROGRAM)
    said = []
    for flags in ([], ["--device", "cuda-emulated", "--tensor-cores", "--verify"]):
        assert cli.main([*flags, str(path)]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and said[0]
    assert cli.main(["--device", "cuda", "--tensor-cores", "emit", "kernels", str(path)]) == 0
    assert capsys.readouterr().out.count('note "tensor cores') == 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tensor-cores", "x.tl"], "`--tensor-cores` is for a GPU: it needs `--device cuda` or `--device cuda-emulated`"),
        (["--tensor-cores", "--device", "cuda", "--strict-fp", "x.tl"], "`--tensor-cores` and `--strict-fp` exclude each other"),
        (["--strict-fp", "emit", "ptx", "--tensor-cores", "x.tl"], "`--tensor-cores` and `--strict-fp` exclude each other"),
    ],
)
def test_flags_that_are_refused(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(flags) == 2
    assert message in capsys.readouterr().err
