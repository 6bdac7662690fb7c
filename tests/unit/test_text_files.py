"""Programs as texts of intermediate forms: run in every way, passes over them, and what their mistakes look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tlc.backends import tables_text
from tlc.driver import cli, pipeline
from tlc.frontend.source import Source

Text = pytest.CaptureFixture[str]
needs_own = pytest.mark.skipif("x86" not in pipeline.hosts(), reason="own code does not run on this machine")

SUM = """func @main(%n: i64) {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  jump loop(%zero, %zero)
loop(%i: i64, %s: i64):
  %more = lt %i, %n : bool
  branch %more, body, done
body:
  %t = add %s, %i : i64
  %j = add %i, %one : i64
  jump loop(%j, %t)
done:
  %text = format %s {template = ("sum ", ("hole", "", "leaf"))} : str
  print %text
  return
}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a file into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return name

    return write


def run(*args: str) -> int:
    return cli.main(list(args))


def out(capsys: Text, *args: str) -> str:
    status = run(*args)
    text = capsys.readouterr()
    assert status == 0, text.err
    return text.out


def error(capsys: Text, status: int, *args: str) -> str:
    assert run(*args) == status
    text = capsys.readouterr()
    assert text.out == ""
    return text.err


# ---------------------------------------------------------------- SSA


@pytest.mark.parametrize("flags", [["--interp"], ["-O0"], ["-O2"], *([["--host", "x86"]] if "x86" in pipeline.hosts() else [])], ids=" ".join)
def test_a_file_of_ssa_runs(flags: list[str], write, capsys: Text) -> None:
    path = write("sum.ssa", SUM)
    assert out(capsys, *flags, path, "--n", "10") == "sum 45\n"  # 0 + 1 + ... + 9


def test_every_stage_of_ssa_runs(write, capsys: Text) -> None:
    """What `tlc emit` prints of a program is a program: with variables, in SSA, optimized, of the host."""
    text = "fn main() {\n  var total = 0\n  for i in 0..5 {\n    total += sum[j < i] j * j\n  }\n  print(\"{total}\")\n}\n"
    write("squares.tl", text)
    for stage in ("cfg", "ssa", "opt"):
        for flags in (["--interp"], []):
            path = write("squares.ssa", out(capsys, "emit", stage, "squares.tl"))
            assert out(capsys, *flags, path) == "20\n", stage  # 0 + 0 + 1 + 5 + 14
    write("count.tl", "fn main() {\n  var k = 1\n  while k < 100 { k = 3 * k }\n  print(\"{k}\")\n}\n")
    path = write("count.ssa", out(capsys, "emit", "memory", "count.tl"))
    assert out(capsys, path) == out(capsys, "--interp", path) == "243\n"


def test_parameters_are_flags(write, capsys: Text) -> None:
    path = write("sum.ssa", SUM)
    assert "  --n N   (required)" in out(capsys, path, "--help")
    assert error(capsys, 2, path) == "error: `--n` must be given: it has no default\n"
    write("t.ssa", "func @main(%x: f32[_]) {\nentry:\n  return\n}\n")
    assert error(capsys, 2, "t.ssa") == "error: `@main` of `t.ssa` cannot be run: its parameter `%x` is a `f32[_]`, no scalar\n"
    write("g.ssa", "func @g() {\nentry:\n  return\n}\n")
    assert error(capsys, 2, "g.ssa") == "error: `g.ssa` has nothing to run: it has no function `@main`\n"


def test_stages_of_a_file_of_ssa(write, capsys: Text) -> None:
    path = write("sum.ssa", SUM)
    assert "%n = const {value = 7} : i64" in out(capsys, "emit", "ssa", path, "--n", "7")
    assert "mul" not in out(capsys, "emit", "memory", path, "--n", "7")
    assert error(capsys, 2, "emit", "typed", path, "--n", "7") == "error: `sum.ssa` begins behind the stage `typed`\n"


def test_what_a_verifier_says_is_shown_at_its_place(write, capsys: Text) -> None:
    path = write("bad.ssa", SUM.replace("%t = add %s, %i : i64", "%t = add %s, %more : i64"))
    text = error(capsys, 3, path, "--n", "3")
    assert text.startswith("error[E1001]: ")
    assert " --> bad.ssa:10:" in text and "10 |   %t = add %s, %more : i64" in text
    path = write("worse.ssa", SUM.replace("jump loop(%j, %t)", "jump loop(%j"))
    assert error(capsys, 3, path, "--n", "3").startswith("error[E0101]: ")
    path = write("early.ssa", SUM.replace("jump loop(%zero, %zero)", "jump loop(%zero, %t)"))
    assert "error[E1001]: reads %t: i64, whose definition does not dominate" in error(capsys, 3, "opt", path, "--passes", "dce")


def test_kernels_are_not_in_a_file_of_ssa(write, capsys: Text) -> None:
    write("x.tl", "fn main(n: i64 = 4) {\n  print(for[i < n] i * i)\n}\n")
    path = write("x.ssa", out(capsys, "emit", "memory", "x.tl"))
    assert "error[E1001]: the kernel `" in error(capsys, 3, path)


# ---------------------------------------------------------------- passes


def test_opt_reads_and_writes_text(write, capsys: Text) -> None:
    text = """func @main() {
entry:
  %a = const {value = 20} : i64
  %b = const {value = 22} : i64
  %c = add %a, %b : i64
  %d = add %a, %b : i64
  %s = format %c, %d {template = (("hole", "", "leaf"), " ", ("hole", "", "leaf"))} : str
  print %s
  return
}
"""
    path = write("a.ssa", text)
    merged = out(capsys, "opt", path, "--passes", "cse")
    assert merged.count("add") == 1
    folded = out(capsys, "--passes", "fold,dce", "opt", path)
    assert "add" not in folded and "{value = 42}" in folded
    assert out(capsys, "opt", "-O2", path).count("const") == 1
    assert out(capsys, "opt", "-O2", path, "--disable", "fold,sccp").count("add") == 1  # flags may stand anywhere
    again = write("b.ssa", folded)
    assert out(capsys, "opt", again, "--passes", "dce") == folded
    assert out(capsys, path) == out(capsys, again) == "42 42\n"


def test_the_compiler_says_what_it_does(write, capsys: Text) -> None:
    path = write("sum.ssa", SUM)
    assert run("opt", path, "--passes", "fold,dce", "--dump-after", "dce", "--stats", "--time-passes") == 0
    text = capsys.readouterr()
    assert text.err.startswith("# ---- after dce\nfunc @main(%n: i64) {")
    assert "after fold" not in text.err
    rows = [line.split() for line in text.err.splitlines()]
    assert ["pass", "before", "after"] in rows and ["fold", "7", "7"] in rows
    assert [r[:2] for r in rows if r and r[0] == "dce"] == [["dce", "1"], ["dce", "7"]]
    run("opt", path, "--passes", "fold,dce", "--dump-after", "all")
    assert capsys.readouterr().err.count("# ---- after ") == 2


COLLATZ = """fn steps(n: i64) -> i64 {
  var k = n
  var count = 0
  while k != 1 {
    k = if k % 2 == 0 { k // 2 } else { 3 * k + 1 }
    count += 1
  }
  count
}

fn main(n: i64 = 27) {
  print("{steps(n)} {sum[i < 10] steps(i + 1)}")
}
"""


@pytest.mark.parametrize("host", pipeline.hosts())
@pytest.mark.parametrize("passes", ["dce", "simplify-cfg", "licm,gvn,checks,fold,sccp,dce", "inline-small,tail-calls,strength,unroll"])
def test_a_program_runs_by_any_passes(passes: str, host: str, write, capsys: Text) -> None:
    """27 takes 111 steps; 1 to 10 take 0 1 7 2 5 8 16 3 19 6, together 67. What every level needs runs anyway."""
    path = write("collatz.tl", COLLATZ)
    assert out(capsys, "--host", host, "--verify", "--passes", passes, path) == "111 67\n"
    run("--host", host, "--passes", passes, "--dump-after", "addresses,dce", "--no-cache", path)
    text = capsys.readouterr()
    assert text.out == "111 67\n"
    assert text.err.count("# ---- after addresses\n") == 1
    assert ("# ---- after dce\n" in text.err) == ("dce" in passes)


@needs_own
def test_figures_of_registers(write, capsys: Text) -> None:
    path = write("sum.ssa", SUM)
    for registers in ("all", "few"):
        assert run("--host", "x86", "--registers", registers, "--stats", path, "--n", "5") == 0
        text = capsys.readouterr()
        assert text.out == "sum 10\n"
        head, row = (line.split() for line in text.err.splitlines()[-2:])
        assert head[:5] == ["function", "spilled", "slots", "loads", "stores"] and row[0] == "f.main"
        assert int(row[head.index("pressure_int")]) >= 1


# ---------------------------------------------------------------- kernels

DOUBLE = """kernel double(y: out f32[n, m], x: f32[n, m], n: i64, m: i64) alias(0, 0) {
  for i in 0..n { for j0 in 0..m by 8 { vector<8> j in j0..min(j0 + 8, m) { y[i, j] = x[i, j] * 2.0f32 } } }
}
"""


@pytest.mark.parametrize("flags", [[], ["--interp"]])
def test_kernels_run_on_data_that_is_always_the_same(flags: list[str], write, capsys: Text) -> None:
    path = write("double.tk", DOUBLE)
    assert out(capsys, *flags, path, "--n", "2", "--m", "6") == "double.y = [[ 0.  2.  4.  6.  8. 10.]\n [12. 14. 16. 18.  0.  2.]]\n"
    write("kinds.tk", "kernel kinds(y: out bool[n], z: out bf16[n], b: bool[n], h: bf16[n], s: f16, n: i64) {\n"
                      "  for i in 0..n { y[i] = not(b[i])  z[i] = h[i] + bf16(s) }\n}\n")  # fmt: skip
    assert out(capsys, *flags, "kinds.tk", "--n", "3", "--s", "0.5") == "kinds.y = [ true false  true]\nkinds.z = [0.5 1.5 2.5]\n"


def test_a_kernel_that_leaves_its_buffers(write, capsys: Text) -> None:
    path = write("out.tk", "kernel out(y: out i64[n], n: i64) {\n  for i in 0..n + 1 { y[i] = i }\n}\n")
    assert "error[E1001]: index 8 of `y` is out of range for 8" in error(capsys, 3, path)
    path = write("exp.tk", "kernel e(y: out f32[n], n: i64) {\n  for i in 0..n { y[i] = exp(f32(i)) }\n}\n")
    assert error(capsys, 3, path).startswith("error[E1001]: ")
    assert out(capsys, "--interp", path, "--n", "1") == "e.y = [1.]\n"
    path = write("bad.tk", "kernel e(y: out f32[n], n: i64) {\n  y[0] = 1\n}\n")
    assert error(capsys, 3, path).startswith("error[E1001]: ")
    path = write("worse.tk", "kernel e(y: out f32[n], n: i64) {\n  y[0] = z\n}\n")
    assert error(capsys, 3, path).startswith("error[E0101]: `z` is not defined\n --> worse.tk:2:10\n")
    path = write("width.tk", "kernel e(y: out i64[4]) {\n  vector<four> l in 0..4 { y[l] = 1 }\n}\n")
    assert error(capsys, 3, path).startswith("error[E0101]: expected a number, found `four`\n --> width.tk:2:10\n")
    path = write("fresh.tk", "kernel e(y: out i64[]) {\n  local a: i64[4]\n  y[] = a[1]\n}\n")
    assert "kernel `e` reads local memory before it is written, or" in error(capsys, 3, path)
    assert "each buffer" not in error(capsys, 2, write("d.tk", DOUBLE), "--n", "-1")


# ---------------------------------------------------------------- machine IR

LIMIT = """extern fn labs(x: i64) -> i64

fn fib(n: i64) -> i64 = if n < 2 { n } else { fib(n - 1) + fib(n - 2) }

fn main(n: i64 = 12, x: f32 = 2.5) {
  print("{fib(n)} {x} {x > 2.0} {labs(-5)}")
  assert fib(n) < n, "{fib(n)} of {n}"
}
"""


@pytest.mark.parametrize("flags", [["--interp"], pytest.param([], marks=needs_own), pytest.param(["--registers", "few", "--verify"], marks=needs_own)])
def test_machine_ir_runs(flags: list[str], write, capsys: Text) -> None:
    """With its strings, templates, sites and functions of C."""
    write("x.tl", LIMIT)
    path = write("x.mir", out(capsys, "emit", "mir", "x.tl"))
    assert run(*flags, path) == 1
    text = capsys.readouterr()
    assert text.out == "144 2.5 true 5\n"
    assert text.err.startswith("error[R0008]: 144 of 12\n --> x.mir:")


def test_mistakes_in_machine_ir(write, capsys: Text) -> None:
    good = "func @f.main {\nentry:\n  enter\n  %a = mov_i.64 {imm = 1}\n  %b = add.64 %a, %a\n  ret\n}\n"
    assert out(capsys, "--interp", write("x.mir", good)) == ""
    text = error(capsys, 3, write("x.mir", "site 0 = \"index\" \"?\" :\n" + good.replace("add.64 %a, %a", "add.64 %a, %b")))
    assert text.startswith("error[E1001]: ") and " --> x.mir:6:" in text
    assert error(capsys, 3, write("x.mir", good.replace("mov_i", "mov_j"))).startswith("error[E0101]: ")
    assert "row 1 stands where row 0 belongs\n --> x.mir:1:1\n" in error(capsys, 3, write("x.mir", 'string 1 = "a"\n' + good))
    assert "this is no row of sites" in error(capsys, 3, write("x.mir", "site 0\n" + good))
    assert "this row cannot be read" in error(capsys, 3, write("x.mir", "template 0 = (a) : i64\n" + good))
    assert error(capsys, 2, write("x.mir", good.replace("f.main", "f.g"))) == "error: `x.mir` has nothing to run: it has no function `@f.main`\n"
    loads = good.replace("add.64 %a, %a", 'load.64 [%a] {ext = "z"}')
    text = error(capsys, 3, "--interp", write("x.mir", loads))
    assert "8 bytes at 0x1 are not in memory" in text and " --> x.mir:5:" in text
    assert error(capsys, 2, "x.mir", "--n", "3").startswith("error: there is no flag `--n`")


def test_tables_read_back() -> None:
    text = """string 0 = "a \\"b\\" : c"
string 1 = ""
template 0 = ('x', ('hole', '.3f', 'leaf'), ' : ') : f64
template 1 = ('all',) :
site 0 = "index" "index {0} : {1}" : i64, u8
site 1 = "fail" "no" :
extern 0 = "read" (str, f32[_,_]) -> i64, f64[_]
extern 1 = "note" () ->
foreign "labs" (i64) -> i64
foreign "abort" () ->
"""
    tables, rest = tables_text.take_tables(Source("x.mir", text + "func\n"))
    assert tables_text.print_tables(tables) == text
    assert rest.text.strip() == "func" and len(rest.text) == len(text) + 5
