"""The command line: usage, exit statuses, and that a fault of the compiler is never shown as the user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tlc.backends import cpu
from tlc.driver import cli
from tlc.frontend.diagnostics import InternalError


def run(*args: str) -> int:
    return cli.main(list(args))


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert text.startswith("usage:\n  tlc [flags] PROGRAM.tl [flags of its main]")
    for word in ("tlc [flags] emit STAGE", "-O0 | -O1 | -O2", "--interp", "--threads N", "--error-format text|json"):
        assert word in text
    assert all(len(line) <= 120 for line in text.splitlines())
    assert run("explain", "--help") == 0
    assert capsys.readouterr().out == "usage: tlc [flags] explain CODE\n\nwhat a code of a diagnostic means\n"
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("tlc 0.1.0, numpy ")


@pytest.mark.parametrize("command", [[], ["emit", "kernels"]])
@pytest.mark.parametrize("interp", [[], ["--interp"]])
def test_help_of_a_program_says_how_it_was_named(
    command: list[str], interp: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, form = tmp_path / "a.tl", tmp_path / "a.ssa"
    program.write_text("fn main(n: i64 = 1) {\n  print(n)\n}\n", encoding="utf-8")
    assert run("emit", "ssa", str(program)) == 0
    form.write_text(capsys.readouterr().out, encoding="utf-8")
    for path in (program, form):
        assert run(*interp, *command, str(path), "--help") == 0
        assert f"usage: {' '.join(['tlc', *command, str(path)])} [flags]\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["repl", "x"], "`tlc repl` takes no arguments, found `x`"),
        (["--thread", "2", "x.tl"], "there is no flag `--thread`; did you mean `--threads`?"),
        (["-O3", "x.tl"], "there is no flag `-O3`; did you mean `-O2`?"),
        (["--device", "cdua", "x.tl"], "`--device` needs one of cpu, cuda, cuda-emulated, found `cdua`; did you mean `cuda`?"),
        (["--device", "gpu", "x.tl"], "`--device` needs one of cpu, cuda, cuda-emulated, found `gpu`; did you mean `cuda`?"),
        (["--device", "cuda", "x.mir"], "`x.mir` runs on the CPU, and `--device cuda` is for programs (`.tl`, `.ssa`): leave it out"),
        (["--device", "cuda-emulated", "emit", "c", "x.uir"], "`x.uir` runs on the CPU, and `--device cuda-emulated` is for programs"),
        (["--device", "cuda", "--interp", "x.tl"], "`--interp` and `--device cuda` exclude each other: the interpreter runs on the CPU"),
        (["--threads", "-1", "x.tl"], "`--threads` needs a number of threads, found -1"),
        (["--passes", "sccp,gnv", "x.tl"], "`--passes`: there is no pass `gnv`; did you mean `gvn`?"),
        (["--disable", "qqq", "x.tl"], "`--disable`: there is no pass `qqq`; there are addresses, "),
        (["--dump-after", "al", "x.tl"], "`--dump-after`: there is no pass `al`; did you mean `all`?"),
        (["--disable", "inline", "x.tl"], "`--disable`: what follows needs the pass `inline`, so it runs at every level"),
        (["programs/sieve.tl", "--host", "llvm"], "`--host` is a flag of tlc: it stands before the program, as in `tlc --host .. prog.tl`"),
        (["opt"], "`tlc opt` needs one file of SSA, `tlc opt FILE.ssa --passes NAME,NAME`, found 0"),
        (["opt", "x.tl"], "`x.tl` is not a file of SSA: its name does not end in `.ssa`"),
        (["opt", "x.ssa", "--pases", "dce"], "there is no flag `--pases`; did you mean `--passes`?"),
        (["missing.tl"], "cannot read `missing.tl`: no such file or directory"),
        (["x.py"], "`x.py` is not a program: its name does not end in `.tl`"),
        (["chekc", "x.tl"], "`chekc` is neither a program (its name ends in `.tl`) nor a command of tlc; did you mean `check`?"),
        (["fmt", "x.tl"], "`tlc fmt` is not supported yet"),
        (["check"], "`tlc check` needs a program"),
        (["explain", "E9999"], "there is no code `E9999`"),
        (["emit"], "`tlc emit` needs a stage (tokens, ast, typed, cfg, ssa, opt, graph, kernels, memory, mir, asm, llvm, c, cuda, ptx) and a program"),
        (["emit", "kernel", "x.tl"], "there is no stage `kernel`; did you mean `kernels`?"),
        (["emit", "ast", "x.tl", "--fn"], "`--fn` needs the name of a function: `--fn NAME`"),
        (["emit", "ptx", "--sm", "70", "x.tl"], "`--sm` needs an architecture from 80 on, as in `sm_80`, found 70"),
        (["emit", "ast"], "`tlc emit ast` needs a program"),
    ],
)
def test_wrong_usage(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}")


def test_a_machine_that_own_code_does_not_know(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cpu, "features", lambda: frozenset(cpu.V3) - {"avx2", "fma"})
    monkeypatch.setattr(cpu.platform, "machine", lambda: "x86_64")
    assert run("--host", "x86", "x.tl") == 2
    wanted = "it makes code for processors with avx, avx2, fma, bmi1, bmi2, f16c, and this one has no avx2, fma"
    assert capsys.readouterr().err == f"error: `--host x86` cannot be had: {wanted}\n"
    monkeypatch.setattr(cpu.platform, "machine", lambda: "aarch64")
    assert run("--host", "x86", "x.tl") == 2
    assert "this machine is aarch64 on Linux" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "status", "said"), [("x86", 0, ""), ("llvm", 0, ""), ("arm", 2, "needs one of llvm, x86, found `arm`")])
def test_the_environment_gives_the_default_host(value: str, status: int, said: str, tmp_path: Path) -> None:
    if value == "x86" and cpu.missing_for_own_code():
        pytest.skip("own code does not run on this machine")
    (tmp_path / "x.tl").write_text('print("{3 * 14}")\n')
    environment = {**os.environ, "TLC_HOST": value, "XDG_CACHE_HOME": str(tmp_path)}
    text = "import sys; from tlc.driver import cli; s = cli.main(['x.tl']); print('llvmlite.binding' in sys.modules); sys.exit(s)"
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (status, True)
    assert done.stdout == {"x86": "42\nFalse\n", "llvm": "42\nTrue\n", "arm": "False\n"}[value]


def test_a_program_that_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tl"
    path.write_bytes(b"fn main() {}\xff")
    assert run(str(path)) == 2
    assert "is not text in UTF-8: byte 12 is 0xff" in capsys.readouterr().err
    path.unlink()
    path.mkdir()
    assert run(str(path)) == 2
    assert "is a directory" in capsys.readouterr().err


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "e0103") == 0
    text = capsys.readouterr().out
    assert text.startswith("E0103: unclosed bracket\n\n")
    assert "    fn f(x: f32) -> f32 = (x + 1.0\n" in text


def test_a_compile_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tl"
    path.write_text("fn main() {\n  print((1)\n}\n")
    assert run("check", str(path)) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error[E0103]: ")
    assert f"{path}:2:8" in err
    assert run("--error-format", "json", str(path)) == 3
    data = json.loads(capsys.readouterr().err)
    assert (data["code"], data["path"], data["line"], data["column"]) == ("E0103", str(path), 2, 8)
    assert run("--error-format=json", "explain") == 2
    assert json.loads(capsys.readouterr().err)["message"].startswith("`tlc explain` needs one code")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InternalError("operand 1 is not defined", "verify @f: add"), "internal error in verify @f: add: operand 1 is not defined"),
        (KeyError("x"), "internal error in tests/unit/test_cli: KeyError: 'x'"),
    ],
)
def test_a_fault_of_the_compiler(
    error: Exception, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault(request: cli.Request) -> int:
        raise error

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cli, "_run", fault)
    path = tmp_path / "x.tl"
    path.write_text("fn main() {}\n")
    assert run(str(path), "--n", "3") == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert "this is a fault of the compiler, not of the program" in err
    (folder,) = (tmp_path / "cache" / "tlc" / "reports").iterdir()
    assert str(folder) in err
    assert (folder / "x.tl").read_text() == "fn main() {}\n"
    report = (folder / "report.txt").read_text()
    assert report.startswith(f"tlc {path} --n 3\ntlc 0.1.0, ")
    assert "Traceback" in report
    assert err.splitlines()[0] == line


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m tlc --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("usage:\n", "")


FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.is_char_device(), reason="there is no device that is always full")


def with_streams(streams: str, words: str, folder: Path) -> tuple[int, str]:
    """The status of `tlc WORDS` behind these redirections of a shell, and what it says on standard error."""
    (folder / "x.tl").write_text('print("{3 * 14}")\n', encoding="utf-8")
    command = f"{sys.executable} -m tlc {words} {streams}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@full
@pytest.mark.parametrize("words", ["x.tl", "emit tokens x.tl", "--help", "<<< 'print(1)'"])
def test_a_full_standard_output(words: str, tmp_path: Path) -> None:
    assert with_streams("> /dev/full", words, tmp_path) == (1, "error: cannot write to standard output: no space left on device\n")


def test_a_closed_standard_output(tmp_path: Path) -> None:
    assert with_streams(">&-", "emit tokens x.tl", tmp_path) == (1, "error: cannot write to standard output: bad file descriptor\n")


@full
@pytest.mark.parametrize("streams", ["2> /dev/full", "2>&-", "> /dev/full 2> /dev/full"])
def test_a_standard_error_that_cannot_be_written(streams: str, tmp_path: Path) -> None:
    assert with_streams(streams, "missing.tl", tmp_path) == (2, "")


def test_python_without_documentation_strings() -> None:
    done = subprocess.run([sys.executable, "-OO", "-m", "tlc", "x.tl"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "run without `-OO`" in done.stderr


STARTED = """
import os, signal, sys
from tlc.driver import start

class Finder:
    def find_spec(self, name, *rest):
        if name == "tlc.driver.cli":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
start.entry()
"""


def test_control_c_while_tlc_is_being_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: stopped by Ctrl-C\n")


@pytest.mark.parametrize(
    "words",
    [["check", "x.tl"], ["doc", "softmax"], ["explain", "E0101"], ["cache", "clear"], ["data", "get"], ["emit", "ssa"], ["repl"], ["tune"]],
    ids=" ".join,
)
@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_help_behind_the_words_of_a_command(words: list[str], asked: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Wherever it stands, unless a program's own flags stand there."""
    assert run(*words, asked) == 0
    assert capfd.readouterr().out.startswith(f"usage: tlc [flags] {words[0]}")
