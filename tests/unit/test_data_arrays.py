"""`data`: arrays and tables from files, batches, tokens. The right values come from NumPy, or are plain."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whole_program import both

from tlc.backends.runtime import arrays
from tlc.driver import cli
from tlc.ssa.world import RuntimeStop


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failure(body: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What standard error says of a program that stops."""
    Path("program.tl").write_text(f"use data\nfn main() {{\n  {body}\n}}\n")
    assert cli.main(["--interp", "program.tl"]) == 1
    return capfd.readouterr().err.splitlines()


# ---------------------------------------------------------------- .npy


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["?", "i1", "<i4", ">i4", "i8", "u1", "u4", "f2", ">f4", "f8"])
def test_every_type_of_numpy(dtype: str, order: str) -> None:
    x = (np.arange(6).reshape(2, 3) % 2 == 1 if dtype == "?" else np.arange(6).reshape(2, 3)).astype(dtype, order=order)  # type: ignore[call-overload]
    np.save("x.npy", x)
    name = {"b": "bool", "i": "i", "u": "u", "f": "f"}[x.dtype.kind]
    elem = name if name == "bool" else f"{name}{8 * x.dtype.itemsize}"
    (found,) = arrays.npy(f"value {elem} 2", "x.npy")
    assert found.dtype == x.dtype.newbyteorder("=")
    assert found.flags.c_contiguous
    assert (found == x).all()


def test_a_number_and_nothing() -> None:
    np.save("one.npy", np.float32(2.5))
    np.save("none.npy", np.zeros((0, 3), np.float32))
    assert arrays.npy("value f32 0", "one.npy") == (np.float32(2.5),)
    assert arrays.npy("value f32 2", "none.npy")[0].shape == (0, 3)


def test_what_the_program_says_is_checked(capfd: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.arange(6.0).reshape(2, 3))
    error = failure('let x: f32[n, 3] = data.npy("x.npy")\n  print(x, n)', capfd)
    assert error[:2] == ["error[R0014]: x.npy has f64[2, 3], and the program says f32[?, ?]", " --> program.tl:3:22"]
    assert error[-1] == "  = note: conversions take whole tensors: `f32(data.npy(path) as f64[n])`"
    error = failure('print(data.npy("x.npy") as f64[n])', capfd)
    assert error[0] == "error[R0014]: x.npy has f64[2, 3], and the program says f64[?]"
    error = failure('print(data.npy("x.npy") as f64[4, n])', capfd)
    assert error[0] == "error[R0004]: a value of shape [2, 3] is not `f64[4, ?]`, which is [4, 3] here"


def test_files_that_are_no_arrays(folder: Path) -> None:
    np.savez("many.npz", a=np.zeros(3), b=np.ones(2))
    np.save("objects.npy", np.array([{}, []], object), allow_pickle=True)
    (folder / "text.npy").write_text("1, 2, 3")
    (folder / "empty.npy").write_bytes(b"")
    for path, says in [
        ("many.npz", "many.npz is an archive of several arrays, no .npy file"),
        ("objects.npy", "objects.npy is damaged, or no .npy file: "),
        ("text.npy", "text.npy is damaged, or no .npy file: "),
        ("empty.npy", "empty.npy is damaged, or no .npy file: "),
        ("no.npy", "cannot read no.npy: no such file or directory"),
    ]:
        with pytest.raises(RuntimeStop) as stop:
            arrays.npy("value f64 1", path)
        assert stop.value.message.startswith(says)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_a_file_of_numpy(data: st.DataObject, folder: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(6, dtype=np.float32).reshape(2, 3))
    content = bytearray(stream.getvalue())
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 130), st.integers(0, 255)), max_size=3)):
        content[at] = value
    (folder / "x.npy").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        (found,) = arrays.npy("value f32 2", "x.npy")
    except RuntimeStop:
        return
    assert found.size <= 6


# ---------------------------------------------------------------- tables


def test_tables(folder: Path) -> None:
    (folder / "a.csv").write_text('x,"y, with comma",name\n1,2.5,Ada\n\n-3e2, nan,"Al\nan"\n,0.0,Bo')
    (folder / "b.csv").write_text("1;2\r\n3;4\r\n")
    assert np.array_equal(arrays.table("b.csv", ";")[0], [[1, 2], [3, 4]])
    assert np.array_equal(arrays.column("a.csv", "x", ",")[0], [1, -300, np.nan], equal_nan=True)
    assert np.array_equal(arrays.column("a.csv", "y, with comma", ",")[0], [2.5, np.nan, 0], equal_nan=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,2\n3\n", "t.csv, line 2: it has 1 fields, the first row has 2"),
        ("a,b\n1,2\n3,x\n", 't.csv, line 3: "x" is no number'),
        ('a,b\n1,"2\n', "t.csv, line 2: unexpected end of data"),
        ("a,b\n\xff1,2\n", "t.csv is no text in UTF-8"),
    ],
)
def test_tables_that_are_none(text: str, says: str, folder: Path) -> None:
    (folder / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(RuntimeStop) as stop:
        arrays.table("t.csv", ",")
    assert stop.value.message == says


def test_columns_that_are_none(folder: Path) -> None:
    (folder / "t.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(RuntimeStop) as stop:
        arrays.column("t.csv", "c", ",")
    assert (stop.value.message, stop.value.notes) == ("t.csv has no column `c`", ("its columns are `a`, `b`",))
    with pytest.raises(RuntimeStop, match=r"t\.csv, line 3: it has 1 fields, and `b` is field 2"):
        arrays.column("t.csv", "b", ",")
    with pytest.raises(RuntimeStop, match='a separator is one sign, found "::"'):
        arrays.table("t.csv", "::")
    (folder / "empty.csv").write_text("")
    assert arrays.table("empty.csv", ",")[0].shape == (0, 0)
    with pytest.raises(RuntimeStop, match="has no column `c`"):
        arrays.column("empty.csv", "c", ",")


# ---------------------------------------------------------------- batches and tokens


def test_batches_and_parts() -> None:
    """Every example once; what is not in one part is in the other; a window's target is the window one further."""
    program = """
use data
fn main(n: i64 = 23, size: i64 = 5) {
  var seen = for[i < n] 0
  for pick in data.batches(key(1), n, size) { seen[pick] += for[i < size] 1 }
  print(sum(seen), max(seen))
  let (train, rest) = data.split(key(2), n, 0.8)
  var part = for[i < n] 0
  for i in train { part[i] += 1 }
  for i in rest { part[i] += 10 }
  print(len(train), len(rest), sum[i] i64(part[i] == 1), sum[i] i64(part[i] == 10))
  let (whole, none) = data.split(key(2), n, 1.0)
  print(len(whole), len(none))
  let (x, y) = data.windows(key(3), for[i < 40] i * i, 6, 7)
  print(x.shape, all(for[i, j < 6] x[i, j + 1] == y[i, j]))
}
"""
    assert both(program, level=1) == ["20 1", "18 5 18 5", "23 0", "(6, 7) true"]


def test_what_cannot_be_cut(capfd: pytest.CaptureFixture[str]) -> None:
    assert "a batch has at least one example, found 0" in failure("print(data.batches(key(1), 4, 0))", capfd)[0]
    assert "the part is between 0.0 and 1.0, found 1.5" in failure("let (a, b) = data.split(key(1), 4, 1.5)", capfd)[0]
    wrong = "let (a, b) = data.windows(key(1), [1, 2, 3], 1, 3)"
    assert "a window of 3 tokens and the next does not fit into 3 tokens" in failure(wrong, capfd)[0]


def test_a_vocabulary(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
use data
use io
fn main(text: str = "hello, world") {
  let bytes = io.encode(text)
  let v = data.vocabulary(bytes)
  let tokens = data.encode(v, bytes)
  print(v.V, io.decode(v.bytes), tokens)
  print(data.decode(v, tokens))
  print(data.vocabulary(bytes[..0]).V)
  print(data.encode(v, io.encode("hex")))
}
"""
    Path("program.tl").write_text(program)
    for mode in (["-O0"], ["--interp"]):
        assert cli.main([*mode, "program.tl"]) == 1
        out, err = capfd.readouterr()
        assert out == "9  ,dehlorw [4 3 5 5 6 1 0 8 6 7 5 2]\nhello, world\n0\n"
        assert 'the vocabulary has no byte 120 ("x")' in err
