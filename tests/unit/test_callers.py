"""What stops in a function of the library is shown where the program calls it, and where the library stops; a derivative that is unknown,
where it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tlc.driver import cli

MODES = (["-O2"], ["-O0"], ["--host", "llvm"], ["--interp"])


def said(tmp_path: Path, capfd: pytest.CaptureFixture[str], mode: list[str], text: str) -> tuple[int, str]:
    path = tmp_path / "x.tl"
    path.write_text(text)
    status = cli.main(["--no-cache", *mode, str(path)])
    return status, capfd.readouterr().err


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_library(mode: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Through a function of the program, and one of the library that calls another."""
    status, err = said(
        tmp_path,
        capfd,
        mode,
        "use linalg\nfn f(a: f32[n, n]) -> f32[n, n] =\n  linalg.inverse(a)\nfn main(x: f32 = 0.0) {\n  print(f([[1.0, 2.0], [2.0, 4.0 + x]]))\n}\n",
    )
    lines = err.splitlines()
    assert status == 1 and lines[0] == "error[R0008]: the matrix is singular: its diagonal has a 0 at 1"
    assert lines[1].strip().startswith("-->") and lines[1].endswith("x.tl:3:3")
    assert "linalg.inverse(a)" in err and "in this call" in err and "stdlib/linalg.tl" in err and "it stops here" in err


@pytest.mark.parametrize("mode", MODES[::3], ids=" ".join)
def test_derivative(mode: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "extern fn cbrt(x: f64) -> f64\nfn loss(x: f64) -> f64 = cbrt(x) * 2.0\nfn main() {\n  print(grad(loss)(3.0))\n}\n"
    status, err = said(tmp_path, capfd, mode, text)
    assert status == 3 and "E0960" in err
    assert "print(grad(loss)(3.0))" in err and "this derivative needs it" in err
    assert err.splitlines()[1].endswith("x.tl:4:9") and "it stands here" in err  # the program asks; the extern stands beside


FILES = {  # the statement -> what is said
    'io.save(zeros(3), "")': "cannot write a file without a name: the path is empty",
    'print(io.read(""))': "cannot read a file without a name: the path is empty",
    'io.ensure_writable("{folder}/none/a")': "cannot write {folder}/none/a: no such file or directory",
    'io.ensure_writable("{folder}")': "cannot write {folder}: is a directory",
    'io.ensure_writable("{folder}/x.tl/a")': "cannot write {folder}/x.tl/a: not a directory",
    'io.ensure_writable("/proc/a")': "cannot write /proc/a: no such file or directory",  # although its folder may be written
    'plot.ensure_drawable("{folder}/a.jpg")': "a picture is a .png, .svg or .pdf, and {folder}/a.jpg is none of them",
    'io.save([1.0], "{folder}/t")\n  print(io.load_tensor("{folder}/t", "value") as f64[1])': (
        "`value` of {folder}/t is f32[1], and the program says f64[?]"
    ),
    'let b = io.encode("12345")\n  print(reshape(b, 2, -1))': "cannot reshape 5 elements to `u8[2, -1]`: they do not divide evenly",
    'io.ensure_writable("{folder}/a")\n  print(io.exists("{folder}/a"))\n  fail("went on")': "went on",
}


@pytest.mark.parametrize("statement", FILES)
def test_files(statement: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    text = f"use io\nuse plot\nfn main() {{\n  {statement.replace('{folder}', folder)}\n}}\n"
    status, err = said(tmp_path, capfd, ["--interp"], text)
    assert status == 1 and FILES[statement].replace("{folder}", folder) in err.splitlines()[0]


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_sides_of_unknown_length(mode: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tl"
    path.write_text(
        "fn f(c: bool, n: i64) -> i64[?] = if c { unique([n, 3, n]) } else { [n] }\n"
        "fn main(n: i64 = 5) {\n"
        "  let a = if n > 4 { unique([n]) } else { unique([n, 2]) }\n"
        "  let m = len(a)\n"
        "  print(a, m, f(n > 4, n), f(n > 9, n), sum[i < m] a[i], grad(fn(x: f32) => sum(if n > 4 { x * f32(a) } else { [x] }))(2.0))\n"
        "}\n"
    )
    assert cli.main(["--no-cache", *mode, str(path)]) == 0
    assert capfd.readouterr().out == "[5] 1 [3 5] [5] 5 5.0\n"
