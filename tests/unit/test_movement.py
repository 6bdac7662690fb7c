"""Graphs of movement ops: what they compute, that movement leaves no arithmetic that could be simplified, and what is said of wrong ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_run import library, needs_compiler

from tlc.backends.c.unit import emit
from tlc.driver import cli, graph_files
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.errors import ERRORS
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.ssa.reductions import fold, fold_product
from tlc.tensor import standalone
from tlc.tensor.graph import interp
from tlc.tensor.graph.ir import Graph, walk
from tlc.tensor.graph.movement import parse_movement
from tlc.tensor.graph.text import parse_graph, print_graph
from tlc.tensor.schedule import Target

PLAIN = Target(expands=False, plain=True)

GEMM = (Path(__file__).resolve().parents[2] / "programs" / "gemm.uir").read_text(encoding="utf-8")


def results(text: str, *arrays: Any) -> list[Any]:
    """The results of a graph for buffers in order of their slots: by the interpreter of graphs, and by kernels of two schedules."""
    graph = parse_movement(text, "test.uir")
    slots = {t: a for t in standalone.inputs(graph) for k, a in enumerate(arrays) if t.name == f"slot{k}"}
    made = interp.run(graph, dict(slots))
    first = [made[t] for t in graph.kept]
    for target in (PLAIN, Target(64, 32)):
        fused = standalone.fused(graph, target)
        assert print_graph(parse_graph(print_graph(fused))) == print_graph(fused)
        again = standalone.run(fused, standalone.kernels(fused, target), slots)
        for a, t in zip(first, fused.kept, strict=True):
            np.testing.assert_array_equal(a, again[t])
    return first


def result(text: str, *arrays: Any) -> Any:
    (only,) = results(text, *arrays)
    return only


X = np.arange(12.0, dtype=np.float32)


def moved(lines: str) -> Any:
    return result("%x = buffer 12 : dtype=f32 slot=0\n%m = reshape %x, (3, 4)\n" + lines, X)


# ---------------------------------------------------------------- what ops do

M = X.reshape(3, 4)
with np.errstate(all="ignore"):
    OPS: list[tuple[str, Any]] = [
        ("reshape %m, (2, 6)", M.reshape(2, 6)), ("reshape %m, (2, -1)", M.reshape(2, 6)), ("reshape %m, (12)", X), ("permute %m, (1, 0)", M.T),
        ("pad %m, ((1, 0), (0, 2)) : value=-1.5", np.pad(M, ((1, 0), (0, 2)), constant_values=-1.5)), ("pad %m, ((0, 0), (1, 1))", np.pad(M, ((0, 0), (1, 1)))),
        ("shrink %m, ((1, 3), (0, 2))", M[1:, :2]), ("shrink %m, ((1, 1), (0, 2))", M[1:1, :2]), ("slice %m, ((0, 3, 2), (1, 4))", M[::2, 1:]),
        ("flip %m, (0)", M[::-1]), ("flip %m, (0, 1)", M[::-1, ::-1]), ("neg %m", -M), ("add %m, 1", M + 1), ("sub 1.5, %m", np.float32(1.5) - M),
        ("max %m, 5", np.maximum(M, 5)), ("lt %m, 5", M < 5), ("cmplt %m, 5", M < 5), ("sqrt %m", np.sqrt(M)), ("floordiv %m, 5", M // 5), ("cast %m : dtype=i32", M.astype(np.int32)),
        ("cast %m : dtype=bool", M != 0), ("reduce %m : op=max", M.max(1)), ("reduce %m : op=min pop=2", M.min()), ("reduce %m : op=mul pop=1", M.prod(1)),
        ("reduce %m : op=argmax", M.argmax(1)), ("reduce %m : op=add pop=2", fold("sum", "lanes", Elem.F32, X)),
    ]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), OPS, ids=[line for line, _ in OPS])
def test_ops(line: str, expected: Any) -> None:
    found = moved(f"%y = {line}")
    np.testing.assert_array_equal(found, expected)
    assert found.shape == np.shape(expected)


def test_choices_and_broadcasting() -> None:
    lines = """
%r = reduce %m : op=max pop=1
%c = reshape %r, (3, 1)
%big = gt %m, 4
%z = where %big, %m, %c
%w = where %big, 0, %z
output %z, %w
"""
    z, w = results("%x = buffer 12 : dtype=f32 slot=0\n%m = reshape %x, (3, 4)\n" + lines, X)
    np.testing.assert_array_equal(z, np.where(M > 4, M, M.max(1, keepdims=True)))
    np.testing.assert_array_equal(w, np.where(M > 4, 0, z))


def test_a_product_that_is_summed_is_not_rounded() -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(16).astype(np.float32) for _ in range(2))
    expected = fold_product(Elem.F32, a.reshape(4, 1, 4), b.reshape(4, 4).T.reshape(1, 4, 4))
    np.testing.assert_array_equal(result(GEMM, a, b), expected)
    np.testing.assert_allclose(expected, a.reshape(4, 4).astype(np.float64) @ b.reshape(4, 4), rtol=1e-5)


def test_narrow_reals_are_summed_in_f32() -> None:
    x = np.full(4096, 1.0, np.float16)
    y = result("%x = buffer 4096 : dtype=f16 slot=0\n%s = reduce %x : op=add", x)
    assert y.dtype == np.float16 and y == 4096


def test_unused_values_are_results_and_names_are_words() -> None:
    graph = parse_movement("%image = buffer (2, 3) : dtype=i32 slot=4\n%a = neg %image\n%b = add %a, %image\n%c = mul %a, 2", "dir/my-graph.uir")
    assert graph.name == "my_graph"
    assert [t.name for t in graph.kept] == ["b", "c"]
    assert [t.name for t in standalone.inputs(graph)] == ["slot4"]


def test_empty_tensors() -> None:
    x = np.zeros(0, np.float32)
    assert result("%x = buffer 0 : dtype=f32 slot=0\n%p = pad %x, ((1, 1),)", x).tolist() == [0, 0]
    assert result("%x = buffer (2, 0) : dtype=f32 slot=0\n%p = reduce %x : op=add", x.reshape(2, 0)).tolist() == [0, 0]


# ---------------------------------------------------------------- chains of movement


def chain(seed: int, ops: tuple[str, ...]) -> tuple[str, Any]:
    """Some movement ops in a row, and what NumPy makes of the positions of the buffer by them."""
    rng = random.Random(seed)
    size = rng.choice([1, 2, 6, 12, 24, 30, 36])
    lines, x = [f"%0 = buffer {size} : dtype=i64 slot=0"], np.arange(size)
    for k in range(1, rng.randint(2, 5) + 1):
        op = rng.choice(ops)
        argument, x = MOVES[op](rng, x)
        lines.append(f"%{k} = {op} %{k - 1}, {argument}{' : value=-1' if op == 'pad' else ''}")
    return "\n".join(lines), x


def tuple_text(items: Any) -> str:
    texts = [tuple_text(i) if isinstance(i, tuple | list) else str(i) for i in items]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def factors(rng: random.Random, n: int) -> list[int]:
    out = []
    while n > 1 and rng.random() < 0.7:
        out.append(rng.choice([k for k in range(2, n + 1) if n % k == 0]))
        n //= out[-1]
    out += [n, 1] if rng.random() < 0.3 else [n]
    rng.shuffle(out)
    return out


def reshape(rng: random.Random, x: Any) -> tuple[str, Any]:
    """To any shape, or two axes become one, or one becomes several."""
    shape, way = list(x.shape), rng.random()
    if way < 0.3 or not shape:
        new = factors(rng, x.size)
    elif way < 0.65 and len(shape) > 1:
        k = rng.randrange(len(shape) - 1)
        new = [*shape[:k], shape[k] * shape[k + 1], *shape[k + 2 :]]
    else:
        k = rng.randrange(len(shape))
        new = [*shape[:k], *factors(rng, shape[k]), *shape[k + 1 :]]
    return tuple_text(new), x.reshape(new)


def permute(rng: random.Random, x: Any) -> tuple[str, Any]:
    order = rng.sample(range(x.ndim), x.ndim)
    return tuple_text(order), x.transpose(order)


def flip(rng: random.Random, x: Any) -> tuple[str, Any]:
    axes = tuple(k for k in range(x.ndim) if rng.random() < 0.4)
    return tuple_text(axes), np.flip(x, axes)


def bounds(rng: random.Random, n: int) -> tuple[int, int]:
    low = rng.randint(0, min(n - 1, 1)) if n else 0
    return low, rng.randint(low + 1, n) if n else 0


def shrink(rng: random.Random, x: Any) -> tuple[str, Any]:
    rows = [bounds(rng, n) for n in x.shape]
    return tuple_text(rows), x[tuple(slice(*r) for r in rows)]


def sliced(rng: random.Random, x: Any) -> tuple[str, Any]:
    rows = [(*bounds(rng, n), rng.randint(1, 3)) for n in x.shape]
    return tuple_text(rows), x[tuple(slice(*r) for r in rows)]


def expand(rng: random.Random, x: Any) -> tuple[str, Any]:
    shape = [rng.choice([1, 2, 3]) if n == 1 else n for n in x.shape]
    return tuple_text(shape), np.broadcast_to(x, shape)


def pad(rng: random.Random, x: Any) -> tuple[str, Any]:
    rows = [(rng.randint(0, 2), rng.randint(0, 2)) for _ in x.shape]
    return tuple_text(rows), np.pad(x, rows, constant_values=-1) if x.ndim else x


MOVES: dict[str, Callable[[random.Random, Any], tuple[str, Any]]] = {
    "reshape": reshape, "permute": permute, "flip": flip, "shrink": shrink, "slice": sliced, "expand": expand, "pad": pad,
}  # fmt: skip


def is_affine(x: Any) -> bool:
    """The positions are a linear function of the indices, whatever the ops say."""
    if not x.size or not x.ndim:
        return True
    out = np.full(x.shape, x[(0,) * x.ndim])
    for k, n in enumerate(x.shape):
        if n > 1:
            step = x[tuple(int(d == k) for d in range(x.ndim))] - x[(0,) * x.ndim]
            out = out + step * np.arange(n).reshape([-1 if d == k else 1 for d in range(x.ndim)])
    return bool((out == x).all())


def arithmetic(graph: Graph) -> set[str]:
    return {e.op for node in graph.nodes for e in walk(node.roots)} & {"floordiv", "mod", "min", "max"}


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_chains_move_as_numpy_does_and_affine_ones_leave_no_division(start: int) -> None:
    affine = 0
    for seed in range(start, start + 100):
        text, expected = chain(seed, ("reshape", *(op for op in MOVES if op != "pad")))
        np.testing.assert_array_equal(result(text, np.arange(int(text.split()[3]))), expected, text)
        if is_affine(expected):
            affine += 1
            graph = standalone.fused(parse_movement(text), PLAIN)
            assert not arithmetic(graph), f"{text}\n{print_graph(graph)}"
    assert affine > 50


@pytest.mark.parametrize("start", range(0, 150, 50))
def test_chains_with_padding(start: int) -> None:
    for seed in range(start, start + 50):
        text, expected = chain(seed, (*MOVES, "pad"))
        np.testing.assert_array_equal(result(text, np.arange(int(text.split()[3]))), expected, text)


# ---------------------------------------------------------------- as C


def c_of(text: str) -> str:
    return graph_files.emit(Source("gemm.uir", text), "c")


def test_a_product_of_matrices_as_c() -> None:
    assert c_of(GEMM).split("\nvoid ")[1] == """\
gemm(float *restrict v7, const float *restrict slot0, const float *restrict slot1) {
  for (int64_t i = 0; i < 4; i++) {
    for (int64_t j = 0; j < 4; j++) {
      float acc = 0.0f;
      for (int64_t k = 0; k < 4; k++) {
        acc = fmaf(slot0[4 * i + k], slot1[4 * k + j], acc);
      }
      v7[4 * i + j] = acc;
    }
  }
}
"""


def test_a_padded_stencil_as_c() -> None:
    text = c_of("""
%x = buffer 64 : dtype=f32 slot=0
%m = reshape %x, (8, 8)
%p = pad %m, ((1, 1), (0, 0))
%a = shrink %p, ((0, 8), (0, 8))
%b = shrink %p, ((2, 10), (0, 8))
%s = add %a, %b
""")
    body = text.split("\nvoid ")[1]
    assert "const bool t0 = i >= 1;" in body and "const bool t1 = i < 7;" in body
    assert "(t0 ? slot0[8 * i + j - 8] : 0.0f) + (t1 ? slot0[8 * i + j + 8] : 0.0f);" in body
    assert not set("%/") & set(body)


@needs_compiler
def test_c_computes_what_the_interpreter_does() -> None:
    import ctypes

    graph = standalone.fused(parse_movement(GEMM, "gemm.uir"), PLAIN)
    (launch,) = standalone.kernels(graph, PLAIN)
    a, b = (np.random.default_rng(k).standard_normal(16).astype(np.float32) for k in range(2))
    y = np.zeros(16, np.float32)
    library(emit({"gemm": launch.kernel})).gemm(*(ctypes.c_void_p(x.ctypes.data) for x in (y, a, b)))
    np.testing.assert_array_equal(y.reshape(4, 4), result(GEMM, a, b))


# ---------------------------------------------------------------- the command line


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gemm.uir"
    path.write_text(GEMM)
    np.save(tmp_path / "a.npy", np.eye(4, dtype=np.float32))
    assert cli.main([str(path), "--slot0", str(tmp_path / "a.npy")]) == 0
    assert capsys.readouterr().out == "v7 = [[0. 1. 2. 3.]\n [4. 5. 6. 7.]\n [8. 9. 0. 1.]\n [2. 3. 4. 5.]]\n"
    assert cli.main(["emit", "graph", str(path)]) == 0
    (tmp_path / "gemm.tg").write_text(capsys.readouterr().out)
    for stage in ("kernels", "c", "llvm"):
        assert cli.main(["emit", stage, str(path)]) == 0
        from_movement = capsys.readouterr().out
        assert cli.main(["emit", stage, str(tmp_path / "gemm.tg")]) == 0
        found = capsys.readouterr().out
        assert [x for x in found.splitlines() if "fmaf(" in x or "store" in x] == [x for x in from_movement.splitlines() if "fmaf(" in x or "store" in x]
    assert cli.main([str(tmp_path / "gemm.tg")]) == 0
    assert cli.main(["emit", "ssa", str(path)]) == 2
    assert cli.main([str(path), "--slot0", str(path)]) == 2


# ---------------------------------------------------------------- what is wrong


def codes(text: str) -> list[str]:
    try:
        parse_movement(text)
    except CompileError as error:
        return [f"{d.code} {d.span.source.position(d.span.start)[0]}" for d in error.diagnostics]
    return []


ROWS = [row for row in ERRORS.values() if "E1011" <= row.code <= "E1020"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_the_catalogue(row: Any) -> None:
    assert {c.split()[0] for c in codes(row.bad)} == {row.code}
    assert codes(row.mend) == []


HEAD = "%x = buffer 12 : dtype=f32 slot=0\n%m = reshape %x, (3, 4)\n%n = buffer 4 : dtype=i32 slot=1\n"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("x = neg %m", "E1011"), ("%y neg %m", "E1011"), ("%y = ", "E1011"), ("%y = neg %m :", ""), ("%y = neg (%m", "E1011"), ("%y = neg ?", "E1011"),
        ("%y = reshape %m, (3, 4", "E1011"), ("output %m %x 3", "E1011"),
        ("%y = relu %m", "E1012"), ("%y = reduce %m : op=sub", "E1012"), ("%y = key_hi %m", "E1012"),
        ("%y = neg %q", "E1013"), ("%m = neg %m", "E1013"), ("output %q", "E1013"),
        ("%y = neg %m, %m", "E1014"), ("%y = neg 3", "E1014"), ("%y = add %m, (1, 2)", "E1014"), ("%y = reshape %m", "E1014"), ("%y = reshape 3, (3,)", "E1014"),
        ("%y = reshape %m, %m", "E1014"), ("%y = reshape %m, (3, 4.0)", "E1014"), ("%y = pad %m, ((1, 1),)", "E1014"), ("%y = pad %m, ((1,), (1, 1))", "E1014"),
        ("%y = slice %m, ((0,), (1, 2))", "E1014"), ("%y = const %m : dtype=f32", "E1014"), ("%y = buffer %m : dtype=f32 slot=2", "E1014"),
        ("%t = permute %m, (1, 0)\n%y = add %m, %t", "E1015"), ("%y = expand %m, (6, 4)", "E1015"), ("%y = expand %m, (3, 4, 1)", "E1015"),
        ("%y = add %m, %n", "E1016"), ("%y = where %m, %m, 1", "E1016"), ("%y = and %m, %m", "E1016"), ("%y = reduce %m : op=any", "E1016"),
        ("%y = add %n, 1.5", "E1016"), ("%y = bitcast %m : dtype=i64", "E1016"), ("%y = add %n, 3000000000", "E1016"),
        ("%y = reshape %m, (5, 2)", "E1017"), ("%y = reshape %m, (-1, 5)", "E1017"),
        ("%y = permute %m, (0, 0)", "E1018"), ("%y = permute %m, (0, 1, 2)", "E1018"), ("%y = flip %m, (2)", "E1018"), ("%y = reduce %m : op=add pop=0", "E1018"),
        ("%y = reduce %m : op=argmax pop=2", "E1018"),
        ("%y = pad %m, ((-1, 0), (0, 0))", "E1019"), ("%y = shrink %m, ((2, 1), (0, 4))", "E1019"), ("%y = slice %m, ((0, 3, 0), (0, 4, 1))", "E1019"),
        ("%y = reshape %m, (-2, 6)", "E1019"), ("%z = shrink %m, ((0, 3), (1, 1))\n%y = reduce %z : op=max", "E1019"),
        ("%y = buffer (-1,) : dtype=f32 slot=2", "E1019"),
        ("%y = buffer 3 : slot=2", "E1020"), ("%y = buffer 3 : dtype=f32", "E1020"), ("%y = buffer 3 : dtype=f32 slot=0", "E1020"), ("%y = neg %m : pop=1", "E1020"),
        ("%y = cast %m : dtype=float", "E1020"), ("%y = reduce %m : op=add op=add", "E1020"), ("%y = buffer 3 : dtype=f32 slot=-1", "E1020"),
        ("%y = reduce %m : op=add pop=1.5", "E1020"),
    ],
)  # fmt: skip
def test_mistakes(line: str, code: str) -> None:
    assert [c.split()[0] for c in codes(HEAD + line)] == ([code] if code else [])


def test_every_mistake_is_said_once_and_at_its_line() -> None:
    text = HEAD + "%a = neg %q\n%b = add %a, %m\n%c = mul %b, %m\n%d = reshape %m, (5,)\n"
    assert codes(text) == ["E1013 4", "E1017 7"]


def test_a_graph_that_computes_nothing() -> None:
    assert codes("# nothing\n") == ["E1011 1"]
