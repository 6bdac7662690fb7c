"""The REPL: what stays from entry to entry, what an error leaves, when an entry ends, and the prompt on a real terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlc.driver import cli
from tlc.driver.entries import Session
from tlc.driver.options import Options
from tlc.driver.repl import Repl
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.parser import incomplete
from tlc.frontend.source import Source
from tlc.ssa.world import Stop


def new() -> Session:
    return Session(Options(verify=True, flags={}))


@pytest.fixture
def session() -> Session:
    return new()


def answer(session: Session, *entries: str) -> str:
    """What the last of some entries writes."""
    for entry in entries[:-1]:
        session.run(entry)
    before = sys.stdout
    sys.stdout = output = io.StringIO()
    try:
        session.run(entries[-1])
    finally:
        sys.stdout = before
    return output.getvalue().removesuffix("\n")


def refused(session: Session, entry: str) -> str:
    """The first message about an entry that is wrong."""
    with pytest.raises(CompileError) as error:
        session.run(entry)
    return error.value.diagnostics[0].message


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ("1 + 2", "3 : i64"),
        ("1 + 0.5", "1.5 : f32"),
        ("7i32", "7 : i32"),
        ("1 < 2", "true : bool"),
        ('"a{1 + 1}"', "a2 : str"),
        ("(1, (true, 2.5))", "(1, (true, 2.5)) : (i64, (bool, f32))"),
        ("for[i < 2, j < 3] i - j", "[[ 0 -1 -2]\n [ 1  0 -1]] : i64[2, 3]"),
        ("zeros(0, 2)", "[] : f32[0, 2]"),
        ("if 1 < 2 { 3 } else { 4 }", "3 : i64"),
        ("{ let a = 2; a * a }", "4 : i64"),
        ("1; 2.0", "1 : i64\n2.0 : f32"),
        ("let x = 3; x + 1\nvar y = x; y += 1; y", "4 : i64\n4 : i64"),
        ("print(1)", "1"),
        ("let x = 3", ""),
        ("if false { print(1) }", ""),
        ("if true { print(1) } else { let a = 2 }", "1"),
        ("# nothing", ""),
        ("fn f(x: f32) -> f32 = x", ""),
    ],
)
def test_what_an_entry_shows(session: Session, entry: str, shown: str) -> None:
    assert answer(session, entry) == shown


def test_variables_stay() -> None:
    session = new()
    assert answer(session, "let x = 3", "x * x") == "9 : i64"
    assert answer(session, "var v = [1.0, 2.0]", "v[1] = 5.0", "v += 1.0", "v") == "[2. 6.] : f32[2]"
    assert answer(session, "for i in 0..10 { v[0] += f32(i) }", "v") == "[47.  6.] : f32[2]"
    assert answer(session, "let (a, (b, c)) = (1, (2.5, true))", "(c, b, a)") == "(true, 2.5, 1) : (bool, f32, i64)"
    assert answer(session, 'let s = "text"', "s == s") == "true : bool"
    assert answer(session, "let x = s", "x") == "text : str"  # another x, of another type
    assert "`x`" in refused(session, "x = s")  # a `let`


def test_all_shapes_are_known(session: Session) -> None:
    """Values are there, so an `i64` that nobody could know before the run is a number in types."""
    session.run("let n = i64(uniform(key(1)) * 0.0) + 4")
    assert session.type_of("zeros(n, 2)") == "f32[4, 2]"
    assert answer(session, "let x = zeros(n)", "let y: f32[4] = x", "y + ones(4)") == "[1. 1. 1. 1.] : f32[4]"
    assert "4" in refused(session, "x + ones(5)")
    assert answer(session, "let m: f32[rows, 4] = ones(2, n)", "rows") == "2 : i64"
    session.run("var v = zeros(n)")
    refused(session, "v = zeros(n + 1)")
    assert answer(session, "v = ones(n)", "v") == "[1. 1. 1. 1.] : f32[4]"


def test_a_var_of_changing_size(session: Session) -> None:
    assert answer(session, "var v: f32[?, 2] = ones(1, 2)", "v = concat(v, v)", "v = concat(v, v)", "v") == "\n".join(
        ["[[1. 1.]", " [1. 1.]", " [1. 1.]", " [1. 1.]] : f32[4, 2]"]
    )
    refused(session, "v = ones(1, 3)")
    assert answer(session, "while len(v) > 1 { v = v[1..] }", "v") == "[[1. 1.]] : f32[1, 2]"


def test_structs_stay(session: Session) -> None:
    session.run("struct Point(n) {\n  x: f32[n],  # where\n  tag: i64,\n}")
    assert answer(session, "var p = Point(x = [1.0, 2.0], tag = 7)", "p") == "Point(x = [1. 2.], tag = 7) : Point(2)"
    assert answer(session, "p.x[1] = 9.0", "p.x[p.n - 1]") == "9.0 : f32"
    assert answer(session, "let ps = for[i < 3] p", "ps[2].x") == "[1. 9.] : f32[2]"
    assert session.type_of("ps") == "Point(2)[3]"
    assert answer(session, "fn double(v: f32) -> f32 = 2.0 * v", "double(p)") == "Point(x = [ 2. 18.], tag = 7) : Point(2)"


def test_a_model_is_trained_over_several_entries(session: Session) -> None:
    for entry in (
        "use nn",
        "use optim",
        "struct Model { layer: nn.Linear(2, 1), scale: f32 }",
        "fn loss(m: Model, x: f32[b, 2]) -> f32 = mean((nn.linear(m.layer, x) * m.scale - 3.0) ** 2)",
        "var model = Model(layer = nn.init_linear(key(0), 2, 1), scale = 1.0)",
        "var state = optim.adam(model)",
        "let x = normal(key(1), 20, 2)",
        "let first = loss(model, x)",
        "for i in 0..200 { (model, state) = optim.adam_step(model, grad(loss)(model, x), state, 0.1) }",
    ):
        session.run(entry)
    assert session.type_of("state") == "optim.Adam(Model)"
    assert answer(session, "loss(model, x) < 0.01 * first") == "true : bool"


# ---------------------------------------------------------------- definitions


def test_a_definition_takes_the_place_of_an_earlier_one(session: Session) -> None:
    session.run("fn f(x: f32) -> f32 = x + 1.0")
    session.run("fn g(x: f32) -> f32 = f(f(x))")
    assert answer(session, "g(0.0)") == "2.0 : f32"
    assert answer(session, "fn f(x: f32) -> f32 = x + 10.0", "g(0.0)") == "20.0 : f32"
    assert "`x`" in refused(session, "fn f(x: i64) -> i64 = x")  # `g` would be wrong
    assert answer(session, "g(0.0)") == "20.0 : f32"
    assert answer(session, "const N = 2", "struct S { w: f32[N] }", "const N = 3", "S(w = zeros(N)).w") == "[0. 0. 0.] : f32[3]"


def test_definitions_that_need_one_another_are_one_entry(session: Session) -> None:
    even, odd = (f"fn {a}(n: i64) -> bool = n == {k} or (n > 0 and {b}(n - 1))" for a, b, k in (("even", "odd", 0), ("odd", "even", 1)))
    assert "odd" in refused(session, even)
    assert answer(session, f"{even}\n{odd}", "(even(10), odd(10))") == "(true, false) : (bool, bool)"


def test_functions_do_not_see_variables(session: Session) -> None:
    session.run("let secret = 3")
    assert "secret" in refused(session, "fn f() -> i64 = secret")
    assert answer(session, "const OPEN = 3", "fn f() -> i64 = OPEN", "f()") == "3 : i64"


def test_a_name_is_a_variable_or_a_definition_whichever_came_last(session: Session) -> None:
    assert answer(session, "let f = 3", "fn f() -> i64 = 4", "f()") == "4 : i64"
    assert answer(session, "fn g() -> i64 = f()", "let f = 5", "f + g()") == "9 : i64"


def test_a_variable_goes_with_its_struct(session: Session) -> None:
    session.run("struct P { a: f32, b: f32 }")
    session.run("let p = P(a = 1.0, b = 2.0); let pair = (p, 1); let other = 3")
    assert session.run("struct P { a: f32, b: f32 }  # as before") == ()
    assert answer(session, "p.b") == "2.0 : f32"
    assert session.run("struct P { b: f32, a: f32 }") == ("p", "pair")  # the same leaves under other names
    assert "`p`" in refused(session, "p")
    assert answer(session, "other") == "3 : i64"
    session.run("const N = 2")
    session.run("struct Q { w: f32[N] }")
    session.run("let q = Q(w = zeros(2))")
    assert session.run("const N = 3") == ("q",)


def test_a_function_called_main_is_one_like_others(session: Session) -> None:
    assert answer(session, "fn main(n: i64 = 3) { print(n) }", "main()", "main(4)") == "4"


def test_a_file_beside(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes.tl").write_text("struct Box { w: f32 }\nfn grow(b: Box) -> Box = Box(w = b.w + 1.0)\n")
    assert answer(session, "use ./shapes as s", "let b = s.grow(s.Box(w = 1.0))", "s.grow(b)") == "s.Box(w = 3.0) : s.Box"
    assert list(session.completions("s.")) == ["s.Box", "s.grow"]
    (tmp_path / "shapes.tl").write_text("struct Box { w: f32, h: f32 }\n")
    assert session.run("1") == ("b",)


# ---------------------------------------------------------------- functions that a `let` names


def test_functions_stay_with_what_they_captured(session: Session) -> None:
    session.run("var v = 2.0; let n = 3")
    session.run("let f = fn(x) => x * v + f32(n)")
    session.run("v = 100.0")
    session.run("let n = 50")
    assert answer(session, "f(1.0)") == "5.0 : f32"
    assert answer(session, "let g = fn(x) => f(x) + 1.0", "let f = relu", "(f(-1.0), g(1.0))") == "(0.0, 6.0) : (f32, f32)"
    assert answer(session, "let slope = grad(fn(x: f32) => x * x * v)", "v = 0.0", "slope(3.0)") == "600.0 : f32"
    assert answer(session, "fn twice(h: fn(f32) -> f32, x: f32) -> f32 = h(h(x))", "twice(g, 0.0)") == "12.0 : f32"


def test_what_a_function_captured_outlives_its_name(session: Session) -> None:
    session.run("let data = [1.0, 2.0, 3.0]; let at = fn(i) => data[i]; let data = 0")
    session.run("let data = 1")
    assert answer(session, "at(2)") == "3.0 : f32"
    assert len(session.values) == 2


def test_values_that_nobody_can_read_are_dropped(session: Session) -> None:
    for _ in range(3):
        session.run("let x = zeros(1000)")
    session.run("var y = 1")
    session.run("y = 2")
    assert len(session.values) == 2


def test_memory_is_given_back(session: Session) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    session.run("let x = zeros(2_500_000)")  # 10 MB
    session.run("let y = x + 1.0")
    before = resident()
    for _ in range(6):
        session.run("let y = x + 1.0")
    assert resident() - before < 40e6


# ---------------------------------------------------------------- errors


def test_an_entry_that_fails_changes_nothing(session: Session) -> None:
    session.run("var n = 1")
    for entry in ("n = 2; let m = 3; nope", "n = 2; assert n > 2", 'n = 2; let m = 3; fail("no")', "fn f() -> i64 = 1\nlet m = f() // 0"):
        with pytest.raises((CompileError, Stop)):
            session.run(entry)
        assert answer(session, "n") == "1 : i64"
        assert "`m`" in refused(session, "m")
        assert "`f`" in refused(session, "f()")


def test_several_errors_are_said_at_once(session: Session) -> None:
    with pytest.raises(CompileError) as error:
        session.run("let a = nope\nfn f() -> i64 = 1.5\nother()")
    assert len(error.value.diagnostics) == 3


def test_a_place_names_its_entry(session: Session) -> None:
    session.run("let a = 1")
    with pytest.raises(CompileError) as error:
        session.run("a +\n  nope")
    assert str(error.value.diagnostics[0].span) == "<entry 2>:2:3"
    session.run("fn f(x: i64) -> i64 = 10 // x")
    with pytest.raises(Stop) as stop:
        session.run("f(a - 1)")
    assert str(stop.value.span) == "<entry 3>:1:23"


def test_a_key_is_used_once_over_all_entries(session: Session) -> None:
    session.run("let k = key(1); let ks = split(key(2), 3)")
    session.run("let same = k")
    first = answer(session, "normal(k)")
    for entry in ("normal(k)", "normal(same)", "let k = key(3)\nnormal(same)"):
        assert "is used twice" in refused(session, entry)
    session.run("let k = key(3)")
    assert "is used twice" in refused(session, "normal(same)")
    assert answer(session, "let k = key(1)", "normal(k)") == first
    session.run("normal(ks[0])")
    assert "is used twice" in refused(session, "uniform(ks[0])")
    session.run("normal(ks[1])")
    with pytest.raises(Stop):
        session.run("normal(ks[2]); assert false")  # nothing was used up
    session.run("normal(ks[2])")
    assert answer(session, "var r = key(4)", "normal(r)", "r = key(4)", "normal(r)") == answer(session, "normal(key(4))")


def test_both_uses_of_a_key_are_shown(session: Session) -> None:
    session.run("let k = key(1)")
    session.run("normal(k, 2)")
    with pytest.raises(CompileError) as error:
        session.run("normal(k, 3)")
    (diagnostic,) = error.value.diagnostics
    assert [str(diagnostic.span), str(diagnostic.labels[0].span)] == ["<entry 3>:1:8", "<entry 2>:1:8"]


# ---------------------------------------------------------------- looking


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("1 + 2.0", "f32"),
        ("print(1)", "it has no value"),
        ("relu", "fn relu[T: float](x: T) -> T"),
        ("permutation", "fn permutation(k: key, n: i64) -> i64[n]"),
        ("nn.linear", "fn linear(l: Linear(I, O), x: f32[I]) -> f32[O]"),
        ("nn.Linear", "struct Linear(I, O) {"),
        ("mine", "fn mine(x: f32) -> f32"),
        ("braces", "fn braces(x: f32) -> f32"),
        ("named", "fn(x) => x"),
        ("m.layer.w", "f32[2, 3]"),
    ],
)
def test_types(session: Session, code: str, shown: str) -> None:
    session.run("use nn\nstruct M { layer: nn.Linear(2, 3) }\nfn mine(x: f32) -> f32 = x\nfn braces(x: f32) -> f32 {\n  x\n}")
    session.run("let m = M(layer = nn.init_linear(key(0), 2, 3)); let named = fn(x) => x")
    assert session.type_of(code).startswith(shown)


def test_completion(session: Session) -> None:
    session.run("use nn\nstruct M(n) { layer: nn.Linear(n, 3), tag: i64 }\nfn loose(x: f32) -> f32 = x")
    session.run("let m = M(layer = nn.init_linear(key(0), 2, 3), tag = 1); let lot = zeros(2)")
    assert list(session.completions("lo")) == ["log", "log1p", "log_sigmoid", "log_softmax", "logsumexp", "loose", "lot"]
    assert list(session.completions("perm")) == ["permutation"]
    assert list(session.completions("nn.lin")) == ["nn.linear"]
    assert list(session.completions("m.")) == ["m.layer", "m.n", "m.tag"]
    assert list(session.completions("m.layer.")) == ["m.layer.I", "m.layer.O", "m.layer.b", "m.layer.w"]
    assert list(session.completions("lot.")) == ["lot.T", "lot.shape"]
    assert list(session.completions("nowhere.")) == list(session.completions("loose.")) == []
    assert not any(name.startswith("__") for name in session.completions(""))


def test_emit(session: Session) -> None:
    session.run("let x = [1.0, 2.0]; let unread = zeros(3); let k = key(1)")
    session.run("normal(k) * sum(x)")
    text = session.emit("typed", "") or ""  # the key is used up, but was not when that entry was checked
    assert text.count("session.load") == 2  # `x` and `k`; nothing else is read
    for stage in cli.STAGES:
        assert stage == "ptx" or session.emit(stage, "sum(x)")
    assert session.emit("ssa", "fn f() {}") is None


# ---------------------------------------------------------------- when an entry ends


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("", False),
        ("let x = 3\n", False),
        ("let x =\n", True),
        ("1 +\n", True),
        ("f(1,\n\n", True),
        ("fn f() {\n  1\n", True),
        ("fn f() {\n  1\n}\n", False),
        ("for i in 0..3\n", True),
        ("if x { 1 } else\n", True),
        ("if x { 1 }\n", False),
        ("[1,\n 2", True),
        ("## says what f does\n", True),
        ("## says what f does\nfn f() {}\n", False),
        ("# a comment\n", False),
        ("@vjp(g)\n", True),
        ('"never closed\n', False),
        ('f("never closed\n', False),
        ("let = 3\n", False),
        ("f)\n", False),
        ("f(]\n", False),
    ],
)
def test_when_an_entry_goes_on(text: str, waits: bool) -> None:
    assert incomplete(Source("e", text)) == waits


def piped(text: str, monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return cli.main([*flags])


def test_from_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "let x = 3\n\nfn f(n: i64) -> i64 {\n  n * 2\n}\nf(\n  x\n)\n:type f(x)\n:t f\n:quit\nx\n"
    assert piped(text, monkeypatch) == 0
    assert capsys.readouterr() == ("6 : i64\ni64\nfn f(n: i64) -> i64\n", "")
    assert piped("x", monkeypatch, "repl") == 3  # another session; no newline at the end
    assert "unknown name `x`" in capsys.readouterr().err


def test_the_first_failure_is_the_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for text, status in (("1 // 0\nnope\n2\n", 1), ("nope\n1 // 0\n2\n", 3), (":nope\n2\n", 2), ("f(1\n", 3), ("", 0), (":quit", 0)):
        assert piped(text, monkeypatch) == status
        out, err = capsys.readouterr()
        assert out == ("2 : i64\n" if "2" in text else "")
        assert err.count("error") == text.count("nope") + text.count("// 0") + text.count("f(1")


def test_the_session_in_the_documentation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "repl.md").read_text().split("```")[1].strip("\n")
    entries = re.split(r"^> ", text, flags=re.MULTILINE)[1:]
    repl = Repl(new(), cli.STAGES, lambda error, words: cli._answer(error, words, "text"))
    for entry in entries:
        lines = entry.splitlines()
        count = next((k for k, line in enumerate(lines) if k and not line.startswith(". ")), len(lines))
        repl.execute("\n".join([lines[0], *(line[2:] for line in lines[1:count])]))
        out, err = capsys.readouterr()
        assert (out + err).splitlines() == lines[count:]


def test_flags(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "var x = [1, 2]\nfor i in 0..3 { x += x }\nx\n1 // (x[0] - 8)\n"
    for flags in (["--interp"], ["-O0"], ["--error-format", "json"]):
        assert piped(text, monkeypatch, *flags) == 1
        out, err = capsys.readouterr()
        assert out == "[ 8 16] : i64[2]\n"
        assert "division by zero" in err
    assert err.startswith("{")


def test_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert piped(":help\n", monkeypatch) == 0
    assert ":emit STAGE [CODE]" in capsys.readouterr().out
    assert piped(":emit tokens 1 + 2\n:emit ssa 1\n1\n:emit typed\n", monkeypatch) == 0
    assert "PLUS" in capsys.readouterr().out
    for command, message in (
        (":emit", "`:emit` needs a stage; the stages are tokens, "),
        (":emit kernel", "did you mean `kernels`?"),
        (":emit ssa", "there is no entry yet"),
        (":emit ssa fn f() {}", "this entry has nothing to run, so it has no `ssa`"),
        (":type", "`:type` needs an expression"),
        (":hlep", "there is no command `:hlep`; did you mean `help`?"),
    ):
        assert piped(command + "\n", monkeypatch) == 2
        assert message in capsys.readouterr().err


def test_a_fault_of_the_compiler_saves_the_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    real = Session._execute

    def fault(session: Session, *args: object) -> None:
        if session.texts[-1].startswith("2"):
            raise KeyError("x")
        real(session, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "_execute", fault)
    assert piped("let a = 1\n2\na\n", monkeypatch) == 4
    out, err = capsys.readouterr()
    assert out == "1 : i64\n"
    assert "internal error in " in err
    (folder,) = (tmp_path / "tlc" / "reports").iterdir()
    assert "let a = 1\n\n2\n" in (folder / "report.txt").read_text()


def test_ctrl_c_ends_a_session_without_a_terminal() -> None:
    """What it has said comes through the pipe while it runs, however Python is told to buffer."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tlc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write('print("go"); var i = 0; while true { i += 1 }\nprint("never")\n')
        process.stdin.close()
        assert select.select([process.stdout], [], [], 60)[0], "nothing comes"
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()


# ---------------------------------------------------------------- a real terminal


class Terminal:
    """`tlc` behind a pseudo-terminal. `READY` is what prompt_toolkit writes when it begins to read."""

    READY = r"\x1b\[\?2004h.*?> ?"

    def __init__(self, folder: Path) -> None:
        env = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_CACHE_HOME": str(folder)}
        master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tlc"], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self.master, self.text = master, ""

    def wait(self, pattern: str) -> str:
        """Read until the pattern comes; gives what came before, without escape sequences."""
        end = time.monotonic() + 60
        while (found := re.search(pattern, self.text, re.DOTALL)) is None:
            assert time.monotonic() < end, f"no {pattern!r} in {self.text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536).decode()
        before, self.text = self.text[: found.start()], self.text[found.end() :]
        return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", before)

    def send(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.process.kill()
    terminal.process.wait()
    os.close(terminal.master)


def test_a_session_on_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait("Ctrl-D quits")
    terminal.wait(terminal.READY)
    terminal.send("fn f(x: i64) -> i64 {\rx + 1\r}\r")  # Enter goes on inside the brackets
    terminal.wait(terminal.READY)
    terminal.send("permu\t(key(1), 1)\r")
    terminal.wait(r"\[0\] : i64\[1\]")
    terminal.wait(terminal.READY)
    terminal.send("nope\r")
    terminal.wait("unknown name `nope`")
    terminal.wait(terminal.READY)
    terminal.send("let dropped = (\x03")  # Ctrl-C: another prompt
    terminal.wait(terminal.READY)
    terminal.send("var i = f(1)\r")
    terminal.wait(terminal.READY)
    terminal.send("while true { i += 1 }\r")
    terminal.wait(r"\[\?2004l")
    time.sleep(0.3)
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.wait("stopped by Ctrl-C")
    terminal.wait(terminal.READY)
    terminal.send("i\r")
    terminal.wait("2 : i64")
    terminal.wait(terminal.READY)
    terminal.send("\x04")
    assert terminal.process.wait(30) == 0
    history = (tmp_path / "tlc" / "history").read_text()
    assert "+fn f(x: i64) -> i64 {\n+  x + 1\n+}\n" in history
    assert "dropped" not in history


def test_what_was_bound_before_is_shown_where_it_was(session: Session) -> None:
    """The label leads to the entry that has the `let`, and the help is that of a `let`."""
    answer(session, "let x = 3", "let z = 1")
    with pytest.raises(CompileError) as error:
        session.run("x = 4")
    (found,) = error.value.diagnostics
    (label,) = found.labels
    assert label.text == "bound here" and label.span.source.text[label.span.start :].startswith("x = 3")
    assert found.help == "make it a `var`"
