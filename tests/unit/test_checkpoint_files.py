"""Checkpoints: what `io.save` writes `io.load` reads back, the package `safetensors` agrees, and no file makes the reader fall over."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlc.backends.runtime import checkpoints
from tlc.backends.runtime import safetensors as ours
from tlc.driver import cli, pipeline
from tlc.frontend.types import Elem
from tlc.ssa.world import RuntimeStop

MODES = [["--host", host] for host in pipeline.hosts()] + [["--interp"]]

EVERYTHING = """
use io
use nn
use optim

struct Block(C) { qkv: nn.Linear(C, 3 * C), scale: f32[C] }
struct Model(V, C) { wte: f32[V, C], blocks: Block(C)[2] }
struct Rows(n) { w: f64[2 * n], tag: bool }
struct Odd(n) { flags: bool[n] }

fn model(k: key, V: i64) -> Model(V, 3) {
  let (a, b) = split(k)
  Model(wte = normal(a, V, 3), blocks = for[i < 2] Block(qkv = nn.init_linear(fold(b, i), 3, 9), scale = ones(3)))
}

fn main(V: i64 = 5, load: bool = false) {
  let m = model(key(7), V)
  let small = (i8([-3, 4]), u8([200, 1]), [7i32, -8], u32([9, 4_000_000_000]), [true, false, true], f16([0.5, -2.0]), bf16([1.5, 3.0]))
  let rows = Rows(w = [1.0, 2.0, 3.0, 4.0], tag = true)
  let state = (m, optim.adam(m), 17, small, split(key(3), 2), rows, zeros(0, 4))
  if load {
    let other = io.load("state.safetensors", like = (model(key(8), V), optim.adam(m), 0, small, split(key(4), 2), rows, zeros(0, 4)))
    print(other)
    let (n, _, _, _, _, _, _) = other
    print(all(n.wte == m.wte), all(n.blocks.qkv.w == m.blocks.qkv.w))
  } else {
    io.save(state, "state.safetensors")
    print(state)
  }
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(program: str, *flags: str, mode: list[str] = MODES[0]) -> int:
    Path("program.tl").write_text(program)
    return cli.main([*mode, "program.tl", *flags])


def test_a_value_of_every_type_comes_back(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The ways to run a program write the same file, too."""
    written = set()
    for mode in MODES:
        assert run(EVERYTHING, mode=mode) == 0
        written.add((folder / "state.safetensors").read_bytes())
        saved = capfd.readouterr().out
        assert run(EVERYTHING, "--load", mode=mode) == 0
        assert capfd.readouterr().out == f"{saved}true true\n"
    assert len(written) == 1


def test_the_package_reads_ours(folder: Path) -> None:
    """Names are ways through fields and items, a struct array is one tensor a field, a number has no dimensions."""
    assert run(EVERYTHING, mode=["--interp"]) == 0
    rows = dict(safetensors.deserialize((folder / "state.safetensors").read_bytes()))
    shown = {name: (row["dtype"], row["shape"]) for name, row in rows.items()}
    assert shown["0.wte"] == ("F32", [5, 3])
    assert shown["0.blocks.qkv.w"] == ("F32", [2, 3, 9])
    assert shown["1.variance.blocks.scale"] == ("F32", [2, 3])
    assert shown["1.step"] == ("I64", [])
    assert shown["2"] == ("I64", [])
    assert shown["4"] == ("U64", [2])
    assert shown["5.w"] == ("F64", [4])
    assert shown["6"] == ("F32", [0, 4])
    assert len(shown) == 4 + (4 + 4 + 1) + 1 + 7 + 1 + 2 + 1
    small = [(rows[f"3.{k}"]["dtype"], bytes(rows[f"3.{k}"]["data"])) for k in range(7)]
    assert small == [
        ("I8", b"\xfd\x04"),
        ("U8", b"\xc8\x01"),
        ("I32", np.array([7, -8], np.int32).tobytes()),
        ("U32", np.array([9, 4_000_000_000], np.uint32).tobytes()),
        ("BOOL", b"\1\0\1"),
        ("F16", np.array([0.5, -2.0], np.float16).tobytes()),
        ("BF16", b"\xc0\x3f\x40\x40"),  # the upper halves of 1.5 and 3.0 in f32
    ]


def test_ours_reads_what_the_package_writes(capfd: pytest.CaptureFixture[str]) -> None:
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    safetensors.numpy.save_file({"w": w, "on": np.array(True), "step": np.array(9)}, "m.safetensors", metadata={"made by": "a test"})
    program = """
use io
struct State { step: i64, w: f32[2, 3], on: bool }
fn main() { print(io.load("m.safetensors", like = State(step = 0, w = zeros(2, 3), on = false))) }
"""
    assert run(program) == 0
    assert capfd.readouterr().out == "State(step = 9, w = [[0. 1. 2.]\n [3. 4. 5.]], on = true)\n"


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_all_differences_at_once(mode: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    tensors = {
        "w": np.zeros((2, 4), np.float32), "b": np.zeros(2, np.float64), "seed": np.array(3, np.uint64),
        "old": np.zeros(2, np.int16), "older": np.zeros((), np.uint64),
    }  # fmt: skip
    safetensors.numpy.save_file(tensors, "m.safetensors")
    program = """
use io
struct State(n) { w: f32[2, n], b: f32[2], seed: key, extra: bool[n, n] }
fn main(n: i64 = 3) {
  let s = io.load("m.safetensors", like = State(w = zeros(2, n), b = zeros(2), seed = key(1), extra = full(true, n, n)))
  print(s.n)
}
"""
    assert run(program, mode=mode) == 1
    assert capfd.readouterr().err == (
        "error[R0015]: the checkpoint m.safetensors does not fit: 5 differences\n"
        " --> program.tl:5:11\n"
        "  |\n"
        '5 |   let s = io.load("m.safetensors", like = State(w = zeros(2, n), b = zeros(2), seed = key(1), extra = full(true, n, n)))\n'
        "  |           " + "^" * 110 + "\n"
        "  = note: `w` is f32[2, 3] here, and f32[2, 4] in the file\n"
        "  = note: `b` is f32[2] here, and f64[2] in the file\n"
        "  = note: `extra`, bool[3, 3] here, is not in the file\n"
        "  = note: `old`, I16[2] in the file, is not in the program's value\n"
        "  = note: `older`, U64 in the file, is not in the program's value\n"
    )


def test_a_dimension_that_no_field_has(capfd: pytest.CaptureFixture[str]) -> None:
    """It belongs to the type, and is in no file."""
    program = """
use io
struct Rows(n) { x: f32[2] }
fn main() {
  io.save(Rows(x = [1.0, 2.0], n = 7), "m.safetensors")
  let r = io.load("m.safetensors", like = Rows(x = zeros(2), n = 8))
  print(r.n, r.x)
}
"""
    assert run(program) == 0
    assert capfd.readouterr().out == "8 [1. 2.]\n"
    assert list(safetensors.numpy.load_file("m.safetensors")) == ["x"]


def test_a_key_that_is_saved_is_not_used_up(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
use io
fn main() {
  let k = key(5)
  io.save(k, "k.safetensors")
  let same = io.load("k.safetensors", like = key(6))
  print(uniform(same, 2) == uniform(k, 2))
}
"""
    assert run(program) == 0
    assert capfd.readouterr().out == "[true true]\n"


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_one_tensor_by_name(mode: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Of a file of another program, whose sizes the file knows."""
    safetensors.numpy.save_file({"emb.weight": np.arange(6, dtype=np.float32).reshape(3, 2), "seed": np.array(5, np.uint64)}, "m.safetensors")
    program = """
use io
fn main(name: str = "emb.weight") {
  let w = io.load_tensor("m.safetensors", name) as f32[V, 2]
  let k: key = io.load_tensor("m.safetensors", "seed")
  print(V, w[V - 1], k == key(5))
}
"""
    assert run(program, mode=mode) == 0
    assert capfd.readouterr().out == "3 [4. 5.] true\n"
    assert run(program, "--name", "emb.weights", mode=mode) == 1
    error = capfd.readouterr().err.splitlines()
    assert error[:2] == ["error[R0015]: m.safetensors has no tensor `emb.weights`", " --> program.tl:4:11"]
    assert error[-1] == "  = note: it has `emb.weight`"
    assert run(program.replace("f32[V, 2]", "f64[V, 2]"), mode=mode) == 1
    assert "error[R0015]: `emb.weight` of m.safetensors is f32[3, 2], and the program says f64[?, ?]" in capfd.readouterr().err
    assert run(program.replace("f32[V, 2]", "f32[V, 4]"), mode=mode) == 1
    assert "error[R0004]: a value of shape [3, 2] is not `f32[?, 4]`, which is [3, 4] here" in capfd.readouterr().err


# ---------------------------------------------------------------- writing whole


def test_a_failure_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save("w f32 1", np.ones(3, np.float32), "m.safetensors")
    before = (folder / "m.safetensors").read_bytes()
    monkeypatch.setattr(ours, "to_memory", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        checkpoints.save("w f32 1\nh bf16 1", np.zeros(3, np.float32), np.zeros(2, np.float32), "m.safetensors")
    assert (folder / "m.safetensors").read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["m.safetensors"]


def test_a_link_keeps_leading_to_its_file(folder: Path) -> None:
    (folder / "runs").mkdir()
    (folder / "last.safetensors").symlink_to("runs/3.safetensors")
    checkpoints.save("w f32 0", np.float32(2), "last.safetensors")
    assert (folder / "last.safetensors").is_symlink()
    assert safetensors.numpy.load_file("runs/3.safetensors")["w"] == 2


@pytest.mark.parametrize(
    ("path", "cause"),
    [("none/m.safetensors", "no such file or directory"), (".", "is a directory"), ("m\0", "the name has a zero byte")],
)
def test_what_cannot_be_written(path: str, cause: str) -> None:
    with pytest.raises(RuntimeStop) as stop:
        checkpoints.save("w f32 0", np.float32(2), path)
    assert stop.value.kind == "file"
    assert stop.value.message.startswith("cannot write ")
    assert stop.value.message.endswith(cause)


# ---------------------------------------------------------------- files that lie


def packed(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def row(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


LIES = {
    "empty": (b"", "it has 0 bytes, and the length of its header alone takes 8"),
    "short": (b"1234567", "it has 7 bytes, and the length of its header alone takes 8"),
    "length": (packed(b"{}", length=3), "its header should have 3 bytes, but only 2 follow"),
    "huge length": (packed(b"{}", length=2**64 - 1), f"its header should have {2**64 - 1} bytes, but only 2 follow"),
    "long header": (packed(b"{}" + b" " * ours.HEADER_LIMIT), "its header has 10485762 bytes, more than the 10485760 that are read"),
    "no JSON": (packed(b"{"), "its header is no JSON"),
    "no text": (packed(b'{"\xff": 1}'), "its header is no JSON"),
    "deep": (packed(b"[" * 100_000), "its header is no JSON"),
    "long number": (packed(b'{"a": ' + b"9" * 10_000 + b"}"), "its header is no JSON"),
    "a list": (packed([]), "its header is no JSON object"),
    "twice": (packed(b'{"a": 1, "a": 2}'), "its header has `a` twice"),
    "twice, and more": (packed(b'{"\\u001b[2J": 1, "\\u001b[2J": 2}'), "its header has `\\x1b[2J` twice"),
    "metadata": (packed({"__metadata__": 5}), "its `__metadata__` is no object of texts"),
    "metadata of numbers": (packed({"__metadata__": {"step": 5}}), "its `__metadata__` is no object of texts"),
    "no row": (packed({"a": 3}), "`a` should have a `dtype`, a `shape` and `data_offsets`"),
    "part of a row": (packed({"a": {"dtype": "F32", "shape": []}}), "`a` should have a `dtype`, a `shape` and `data_offsets`"),
    "dtype": (packed({"a": row("F33")}, b"1234"), '`a` has the unknown element type "F33"'),
    "dtype no text": (packed({"a": row([])}, b"1234"), "`a` has the unknown element type []"),
    "shape": (packed({"a": row(shape=[-1])}, b"1234"), "the shape of `a` is no list of numbers from 0 on"),
    "shape of bools": (packed({"a": row(shape=[True])}, b"1234"), "the shape of `a` is no list of numbers from 0 on"),
    "absurd shape": (packed({"a": row(shape=[2**61] * 1000)}, b"1234"), "`a` has 4 bytes, which are no F32 of its shape"),
    "offsets": (packed({"a": row(offsets=[0, 4, 8])}, b"1234"), "the offsets of `a` are no two numbers from 0 on"),
    "offsets backwards": (packed({"a": row(offsets=[4, 0])}, b"1234"), "`a` lies at 4..0, and the file has 4 bytes of tensors"),
    "huge offsets": (packed({"a": row(offsets=[0, 2**60])}, b"1234"), f"`a` lies at 0..{2**60}, and the file has 4 bytes of tensors"),
    "truncated": (packed({"a": row()}, b"123"), "`a` lies at 0..4, and the file has 3 bytes of tensors"),
    "size": (packed({"a": row("F64")}, b"1234"), "`a` has 4 bytes, which are no F64 of its shape"),
    "overlap": (packed({"a": row(), "b": row()}, b"1234"), "`b` overlaps another tensor"),
    "gap": (packed({"a": row(offsets=[4, 8])}, b"12345678"), "`a` leaves 4 bytes before it unused"),
    "rest": (packed({"a": row()}, b"12345"), "1 bytes behind the last tensor belong to none"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies(lie: str, folder: Path) -> None:
    content, cause = LIES[lie]
    (folder / "m").write_bytes(content)
    with pytest.raises(RuntimeStop) as stop:
        list(checkpoints.load("a f32 1", "m", np.zeros(1, np.float32)))
    assert stop.value.message == f"the checkpoint m is damaged, or no safetensors file: {cause}"
    assert stop.value.kind == "checkpoint"


def test_bools_are_0_or_1(folder: Path) -> None:
    (folder / "m").write_bytes(packed({"a": row("BOOL", [2], [0, 2])}, b"\1\2"))
    with pytest.raises(RuntimeStop, match="`a` has bools that are neither 0 nor 1"):
        list(checkpoints.load("a bool 1", "m", np.zeros(2, np.bool_)))


def test_a_shape_that_lies_reserves_no_memory(folder: Path) -> None:
    (folder / "m").write_bytes(packed({"a": row("F32", [2**40], [0, 2**42])}, b"1234"))
    tracemalloc.start()
    try:
        with pytest.raises(RuntimeStop):
            list(checkpoints.load("a f32 1", "m", np.zeros(1, np.float32)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


NAMES = st.sampled_from(["w", "b", "blocks.w", ""])
NUMBERS = st.one_of(st.integers(-2, 40), st.sampled_from([2**31, 2**62, 2**64, 10**30]), st.floats(), st.booleans(), st.text(max_size=2), st.none())
ROWS = st.one_of(
    st.fixed_dictionaries(
        {"dtype": st.one_of(st.sampled_from([*ours.BITS, "F4"]), NUMBERS), "shape": st.one_of(st.lists(NUMBERS, max_size=3), NUMBERS), "data_offsets": st.one_of(st.lists(NUMBERS, max_size=3), NUMBERS)},
        optional={"more": NUMBERS},
    ),
    NUMBERS,
)
LENGTHS = st.one_of(st.none(), st.integers(0, 400), st.sampled_from([2**31, 2**63, 2**64 - 1]))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.dictionaries(NAMES, ROWS, max_size=3), body=st.binary(max_size=40), length=LENGTHS)
def test_whatever_a_header_says(header: dict[str, Any], body: bytes, length: int | None, folder: Path) -> None:
    """A file is read, or is said to be damaged or not to fit; and what we read, the package does."""
    attempt(packed(header, body, length), folder)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_a_file(data: st.DataObject, folder: Path) -> None:
    """A good file, cut short or with some bytes changed."""
    checkpoints.save("w f32 2\nb bool 1", np.ones((2, 2), np.float32), np.array([True, False]), "good")
    content = bytearray((folder / "good").read_bytes())
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=3)):
        content[at] = value
    attempt(bytes(content[: data.draw(st.integers(0, len(content)))]), folder)


def attempt(content: bytes, folder: Path) -> None:
    (folder / "m").write_bytes(content)
    like = (np.zeros((2, 2), np.float32), np.zeros(2, np.bool_))
    try:
        w, b = checkpoints.load("w f32 2\nb bool 1", "m", *like)
    except RuntimeStop as stop:
        assert stop.kind == "checkpoint"
        return
    theirs = safetensors.numpy.load(content)
    assert theirs["w"].tobytes() == w.tobytes()
    assert theirs["b"].tobytes() == b.tobytes()


ARRAYS = st.sampled_from([elem for elem in ours.NAMES if elem is not Elem.BF16])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.dictionaries(NAMES.filter(bool), st.tuples(ARRAYS, st.lists(st.integers(0, 3), max_size=3)), max_size=4))
def test_both_write_what_both_read(rows: dict[str, tuple[Elem, list[int]]], folder: Path) -> None:
    values = {name: np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(ours.DTYPES[elem]) for name, (elem, shape) in rows.items()}
    layout = "\n".join(f"{name} {elem} {len(shape)}" for name, (elem, shape) in rows.items())
    checkpoints.save(layout, *values.values(), "m")
    theirs = safetensors.numpy.load_file("m")
    safetensors.numpy.save_file(values, "t")
    back = checkpoints.load(layout, "t", *values.values())
    for (name, value), loaded in zip(values.items(), back, strict=True):
        for found in (theirs[name], np.asarray(loaded)):
            assert found.dtype == value.dtype
            assert found.shape == value.shape
            assert found.tobytes() == value.tobytes()


def test_what_is_loaded_has_the_extents_of_its_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So the kernels of a program that goes on with a checkpoint are made for its sizes."""
    path = tmp_path / "double.tl"
    path.write_text('use io\nfn main(n: i64 = 3) {\n  var x: f32[n, 4] = zeros(n, 4)\n  x = io.load("x", like = x)\n  print(2.0 * x)\n}\n')
    assert cli.main(["emit", "opt", str(path), "--n", "5"]) == 0
    out = capsys.readouterr().out
    assert "io.load" in out and " = dim " not in out
