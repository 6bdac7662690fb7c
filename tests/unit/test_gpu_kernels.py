"""Kernels for a GPU: their text, what the verifier refuses, what the interpreter finds, and their form as plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from tlc.backends.runtime.kernel_run import run as run_natively
from tlc.driver import cli
from tlc.driver.options import Options
from tlc.driver.pipeline import front, middle
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import Source
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.interp import run
from tlc.tensor.kernel.ir import (
    Barrier,
    CommitCopies,
    Const,
    CopyAsync,
    Exchange,
    For,
    If,
    Kernel,
    Let,
    Load,
    Space,
    Stmt,
    Store,
    WaitCopies,
    const,
    op,
)
from tlc.tensor.kernel.text import parse_kernel, print_kernel
from tlc.tensor.kernel.verify import verify

# every form: two block loops, a `let` of a block, shared memory, exchanges of each kind, under conditions that do not vary where they must not
FORMS = """\
kernel forms(y: out f32[n, 2], x: f32[n, 2, m], n: i64, m: i64) {
  let trips = (m + 63) // 64
  block i in 0..n {
    block j in 0..2 {
      let low = j * 2
      shared s: f32[2]
      thread t in 0..64 {
        local acc: f32[1]
        let warp = t // 32
        acc[0] = 0.0f32
        for k in 0..trips {
          if k * 64 + t < m {
            acc[0] = acc[0] + x[i, j, k * 64 + t]
          }
          barrier
        }
        let a = shuffle_xor(acc[0], 16)
        let b = a + acc[0]
        let c = shuffle_xor(b, 8)
        let d = b + c
        let e = shuffle_down(d, 4)
        let f = d + e
        let g = shuffle_down(f, 2)
        let h = f + g
        let p = shuffle_down(h, 1)
        if t % 32 == 0 {
          s[warp] = h + p
        }
        barrier
        if warp == 0 {
          for q in warp..1 {
            let r = shuffle_index(s[min(t, 1)], q + 1)
            if t == 0 {
              y[i, j] = s[0] + r + f32(low)
            }
          }
        }
      }
    }
  }
}
"""


def run_forms(kernel: Kernel, how: Callable[..., None]) -> np.ndarray:
    x = np.arange(3 * 2 * 150, dtype=np.float32).reshape(3, 2, 150)
    y = np.zeros((3, 2), np.float32)
    how(kernel, [y], [x, np.int64(3), np.int64(150)])
    assert (y - x.sum(-1) == [0, 2]).all()
    return y


def test_every_form_runs() -> None:
    kernel = parse_kernel(FORMS)
    verify(kernel)
    assert print_kernel(kernel) == FORMS
    run_forms(kernel, run)
    run_forms(kernel, lambda *args: run(*args, adverse=True, races=True))
    for backward in (False, True):
        plain = emulated(kernel, backward)
        verify(plain)
        assert emulated(plain) is plain
        run_forms(plain, lambda *args: run(*args, adverse=True))
        run_forms(plain, run_natively)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("thread t in 0..64", "thread t in 0..65", "thread loop `t` has 65 threads, and not a multiple of 32 up to 1024"),
        ("thread t in 0..64", "for t in 0..64", "block loop `j` does not end in a thread loop"),
        ("block i in 0..n", "for i in 0..n", "`s` is shared in a kernel without blocks"),
        ("block j in 0..2", "block j in 1..2", "block loop `j` does not count from 0"),
        ("let low = j * 2", "let low = j * 2 if j == 1 { }", "block loop `j` holds more than threads"),
        ("let low = j * 2", "let low = i64(y[i, 0])", "`low` stands before a thread loop and loads from what is no input"),
        ("let trips = (m + 63) // 64", "let trips = i64(x[0, 0, 0])", "`trips` stands before a grid and loads"),
        ("for k in 0..trips", "for k in t..trips", "a barrier stands where not all threads of a block may come"),
        ("for k in 0..trips", "for k in warp..trips", "a barrier stands where not all threads of a block may come"),
        ("if warp == 0", "if t == 0", "the exchange `r` stands where not all threads of a warp may come"),
        ("if warp == 0", "if s[0] > 0.0f32", "the exchange `r` stands where not all threads of a warp may come"),
        ("shuffle_xor(b, 8)", "shuffle_xor(b, t)", "`c`: how far the exchange reaches varies in a warp"),
        ("let h = f + g", "let h = f + g let odd = shuffle_xor(t > 3, 1)", "`odd`: a bool is not exchanged"),
        ("local acc", "shared acc", "shared `acc` is declared in a thread"),
        ("for k in 0..trips", "vector<4> k in 0..4", "loop `k`|threads meet in the vector loop `k`"),
    ],
)
def test_what_the_verifier_refuses(old: str, new: str, message: str) -> None:
    assert old in FORMS
    with pytest.raises(InternalError) as found:
        verify(parse_kernel(FORMS.replace(old, new, 1)))
    assert any(m in str(found.value).split("\n")[0] for m in message.split("|"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        barrier\n        if warp", "        if warp", r"a race for `s\[\d\]` between thread \d+ of block 0, 0 and thread \d+ of block 0, 0"),
        ("if t % 32 == 0", "if t % 32 < 2", r"a race for `s\[0\]` between thread 1 of block 0, 0 and thread 0 of block 0, 0"),
        ("y[i, j] =", "y[i, 0] =", r"a race for `y\[0, 0\]` between thread 0 of block 0, 1 and thread 0 of block 0, 0"),
        ("s[warp] =", "s[warp + 1] =", r"index 2 of `s` is out of range for 2"),
        ("q + 1)", "q + 32)", r"the exchange `r` asks for lane 32"),
    ],
)
def test_what_the_interpreter_finds(old: str, new: str, message: str) -> None:
    assert old in FORMS
    kernel = parse_kernel(FORMS.replace(old, new, 1))
    verify(kernel)
    with pytest.raises(InternalError, match=message):
        run_forms(kernel, lambda *args: run(*args, races=True))


def test_shared_memory_is_rubbish_at_first() -> None:
    kernel = parse_kernel(FORMS.replace("s[warp] = h + p", "s[0] = h + p").replace("if t % 32 == 0", "if t == 0"))
    x, y = np.ones((1, 2, 64), np.float32), np.zeros((1, 2), np.float32)
    for k in (kernel, emulated(kernel)):
        run(k, [y], [x, 1, 64], races=True)
        assert np.isnan(y).all()


def test_a_file_of_kernels_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "forms.tk"
    path.write_text(FORMS)
    assert cli.main([str(path), "--n", "2", "--m", "70"]) == 0
    # elements repeat 0 to 9: seventy of them have the sum 315
    assert capsys.readouterr().out == "forms.y = [[315. 317.]\n [315. 317.]]\n"
    path.write_text(FORMS.replace("y[i, j] =", "y[i, 0] ="))
    assert cli.main([str(path), "--n", "2", "--m", "70"]) == 3
    assert "a race for `y[0, 0]` between thread 0 of block 0, 1 and thread 0 of block 0, 0" in capsys.readouterr().err


# ---------------------------------------------------------------- one thing wrong in the kernels of schedules

PROGRAMS = {
    "product": "fn main() {\n  let a = for[i < 18, p < 9] f32(i + p)\n  let b = for[p < 9, j < 9] f32(p - j)\n  print(a @ b)\n}\n",
    "rows": "fn main(n: i64 = 3) {\n  let x = for[i < n, j < 20] f32(i - j)\n  print(softmax(x))\n}\n",
    # attention, and what it sends back
    "blocks": """
fn attention(q: f32[t, d], k: f32[t, d], v: f32[t, d]) -> f32[t, d] {
  softmax(for[i, j] if j <= i { sum[c] q[i, c] * k[j, c] } else { -inf }) @ v
}
fn loss(q: f32[t, d], k: f32[t, d], v: f32[t, d]) -> f32 = sum(attention(q, k, v))
fn main() {
  let x = for[i < 68, c < 4] f32(i * 7 % 5 + c)
  let (a, b, c) = grad(loss)(x, x, x, wrt = (q, k, v))
  print(a, b, c)
}
""",
    # two tiles of columns for one block of rows: one is copied while the other is computed
    "blocks of a mask": """
fn main() {
  let x = for[i < 3, p < 4] f32(i + p)
  let y = for[j < 65, p < 4] f32(j - p)
  print((for[i < 3, j < 65] if j <= i + 63 { sum[p < 4] x[i, p] * y[j, p] } else { 0.0 }) @ y)
}
""",
    # two passes that bring the same tile to the same place
    "blocks of one tile": """
fn main() {
  let x = for[i < 3, p < 4] f32(i + p)
  let y = for[j < 64, p < 4] f32(j - p)
  print(softmax(for[i < 3, j < 64] sum[p < 4] x[i, p] * y[j, p]) @ y)
}
""",
}


def kernels_of(name: str) -> list[Kernel]:
    program = front(Source(f"{name}.tl", PROGRAMS[name]))
    tensors = next(value for stage, _, value in middle(program, Options(flags={"n": 3}, device="cuda")) if stage == "kernels")
    return [k for k in tensors.kernels.values() if k.name.startswith(name.partition(" ")[0])]


def operands(kernel: Kernel) -> tuple[list[tuple[int, ...]], list[np.ndarray]]:
    """The shapes of the outputs, and inputs."""
    rng = np.random.default_rng(0)
    shapes = [tuple(int(e.value) for e in b.shape) for b in kernel.buffers]
    inputs = [rng.standard_normal(s).astype(np.float32) for s in shapes[len(kernel.outputs) :]]
    return shapes[: len(kernel.outputs)], inputs


def mutants(body: tuple[Stmt, ...]) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
    """Bodies with one barrier, wait or group of copies less, one exchange with itself, or one index of shared or global memory one further.
    A barrier that is the last thing in a loop orders one of its iterations and the next; one before copies orders what was read and them.
    """
    for n, s in enumerate(body):
        changed: list[tuple[str, tuple[Stmt, ...]]] = []
        match s:
            case Barrier():
                region = takewhile(lambda x: not isinstance(x, Barrier), body[n + 1 :])
                copies = any(isinstance(x, CommitCopies) for x in region)
                changed.append(("no last barrier" if n + 1 == len(body) else "no barrier before copies" if copies else "no barrier", ()))
            case WaitCopies() | CommitCopies():
                changed.append((f"no {type(s).__name__}", ()))
            case CopyAsync(into, source):
                changed += [(f"copy to {into.buffer.name}", (replace(s, into=replace(into, indices=i)),)) for i in further(into.indices)]
                moved = further(source.indices)
                changed += [(f"copy from {source.buffer.name}", (replace(s, source=replace(source, indices=i)),)) for i in moved]
            case Exchange():
                changed.append(("own lane", (replace(s, lane=const(0)),)))
            case For():
                changed += [(what, (replace(s, body=inner),)) for what, inner in mutants(s.body)]
            case If():
                changed += [(what, (replace(s, then=inner),)) for what, inner in mutants(s.then)]
            case Store() | Let():
                if isinstance(s, Store) and s.buffer.space is not Space.LOCAL:
                    changed += [(f"store to {s.buffer.name}", (replace(s, indices=shifted),)) for shifted in further(s.indices)]
                if isinstance(s.value, Load) and s.value.buffer.space is not Space.LOCAL:
                    loads = [replace(s.value, indices=shifted) for shifted in further(s.value.indices)]
                    changed += [(f"load of {s.value.buffer.name}", (replace(s, value=load),)) for load in loads]
            case _:
                pass
        yield from ((what, (*body[:n], *new, *body[n + 1 :])) for what, new in changed)


def further(indices: tuple) -> Iterator[tuple]:
    for k, i in enumerate(indices):
        if not isinstance(i, Const):
            yield (*indices[:k], op("add", i, const(1)), *indices[k + 1 :])


@pytest.mark.parametrize(("name", "fewest", "every"), [("product", 32, 4), ("rows", 16, 1), ("blocks of a mask", 20, 16)])
def test_one_thing_wrong_is_found(name: str, fewest: int, every: int) -> None:
    """By a race, an index out of range, or another result: rubbish in shared memory, or a value of another place. It was found for all; of
    the slow kernel only some are looked at each time.
    """
    (kernel,) = kernels_of(name)
    shapes, inputs = operands(kernel)

    def result(k: Kernel) -> bytes:
        outputs = [np.zeros(s, np.float32) for s in shapes]
        run(k, outputs, inputs, races=True)
        return b"".join(o.tobytes() for o in outputs)

    expected = result(kernel)
    found = list(mutants(kernel.body))
    assert len(found) >= fewest
    for n, (what, body) in enumerate(found):
        if n % every and not any(x in what for x in ("barrier", "Copies")):
            continue
        wrong = replace(kernel, body=body)
        verify(wrong)
        try:
            assert result(wrong) != expected, f"{what}\n{print_kernel(wrong)}"
        except InternalError as error:
            assert any(x in str(error) for x in ("race", "out of range", "a copy of 16 bytes"))


def test_a_pass_begins_when_the_one_before_has_read_its_last_tile() -> None:
    (kernel,) = kernels_of("blocks of one tile")
    shapes, inputs = operands(kernel)
    _, between, _ = (body for what, body in mutants(kernel.body) if what == "no barrier before copies")
    run(kernel, [np.zeros(s, np.float32) for s in shapes], inputs, races=True)
    with pytest.raises(InternalError, match="a race for `s1"):
        run(replace(kernel, body=between), [np.zeros(s, np.float32) for s in shapes], inputs, races=True)


def test_attention_meets_where_it_has_to() -> None:
    """In the kernel of attention and its gradient each barrier but those between the iterations of a loop or before copies, and each exchange,
    is needed for the result, in one of the orders in which the threads can run from one to the next. The other barriers are for the
    interpreter to find.
    """
    (kernel,) = kernels_of("blocks")
    shapes, inputs = operands(kernel)

    def result(k: Kernel, backward: bool) -> bytes:
        outputs = [np.zeros(s, np.float32) for s in shapes]
        run_natively(emulated(k, backward), outputs, inputs)
        return b"".join(o.tobytes() for o in outputs)

    expected = result(kernel, False)
    assert result(kernel, True) == expected
    barriers, exchanges = ([(w, body) for w, body in mutants(kernel.body) if w == what] for what in ("no barrier", "own lane"))
    assert len(barriers) >= 5 and len(exchanges) == 12
    for what, body in [*barriers, *exchanges[::5]]:
        wrong = replace(kernel, body=body)
        assert any(result(wrong, backward) != expected for backward in (True, False)), f"{what}\n{print_kernel(wrong)}"
