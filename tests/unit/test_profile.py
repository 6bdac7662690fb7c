"""`tlc profile`: the figures of real runs by both hosts, what a profile of known figures looks like, and errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tlc.backends.context import SERVICES
from tlc.backends.timing import FIRST_KERNEL, FIRST_SERVICE, KERNEL_WORDS, PROCESSOR, WALL, Table
from tlc.driver import cli, pipeline, profile_command, roofline, whole_file
from tlc.driver.output import OutputError
from tlc.driver.profile import Command, Place, Profile, Timed, summary, to_json
from tlc.driver.profile_page import page
from tlc.driver.profile_table import amount_text, lines_text, table, time_text
from tlc.driver.roofline import Level, Machine
from tlc.tensor.kernel.counts import counts

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"

# Round figures: 100 GFLOP/s, 50 in f64; 1 ns of timing counts as the kernel's own, 3 ns in all.
MACHINE = Machine(2, 100e9, 50e9, (Level("L2", 1_000_000, 200e9), Level("memory", None, 20e9)), 1e-9, 3e-9)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is not measured."""
    monkeypatch.setattr(roofline, "measure", lambda threads, store, say: replace(MACHINE, threads=threads))


def run(*args: str) -> int:
    return cli.main(list(args))


def written(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# ---------------------------------------------------------------- real runs

PRODUCT = """
fn main(m: i64, n: i64, d: i64, times: i64 = 3) {
  let x = for[i < m, k < d] f32(i + k)
  let w = for[k < d, j < n] f32(k - j)
  var all = 0.0
  for t in 0..times {
    let y = for[i, j] sum[k] x[i, k] * w[k, j]
    all += y[t, t]
  }
  print(all)
}
"""


@pytest.mark.parametrize("host", pipeline.hosts())
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_product(host: str, threads: str, quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, out = tmp_path / "product.tl", tmp_path / "out.json"
    program.write_text(PRODUCT)
    sizes = ["--m", "96", "--n", "80", "--d", "70", "--times", "4"]
    assert run("--host", host, "--threads", threads, "profile", "--json", str(out), str(program), *sizes) == 0
    text = capsys.readouterr().out
    x, w = [[i + k for k in range(70)] for i in range(96)], [[k - j for j in range(80)] for k in range(70)]
    assert float(text.split()[0]) == sum(sum(x[t][k] * w[k][t] for k in range(70)) for t in range(4))
    found = written(out)
    (product,) = [k for k in found["kernels"] if k["name"].startswith("product")]
    runs = product["calls"]
    assert runs in (1, 4)  # what is the same each time may be computed once
    assert product["flops"] == runs * 2 * 96 * 80 * 70
    assert product["bytes_read"] == runs * 4 * (96 * 70 + 70 * 80)
    assert product["bytes_written"] == runs * 4 * 96 * 80
    assert {"path": str(program), "line": 7} in product["lines"]
    assert (found["host"], found["machine"]["threads"], found["stopped"]) == (host, int(threads), None)
    assert f"product.tl {' '.join(sizes)}: " in text and "product_" in text


@pytest.mark.parametrize("host", pipeline.hosts())
def test_mnist(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TLC_DATA", raising=False)
    monkeypatch.setenv("TLC_THREADS", "2")
    out, web = tmp_path / "out.json", tmp_path / "out.html"
    assert run("--host", host, "profile", "--json", str(out), "--html", str(web), str(PROGRAMS / "mnist_mlp.tl"), "--epochs", "1") == 0
    caught = capsys.readouterr()
    assert caught.out.startswith("epoch 0  loss ")
    assert caught.err.count("measuring what this machine can do") == 1
    found = written(out)
    parts = [*found["kernels"], *found["services"], found["host_code"], found["timing"]]
    assert sum(p["share"] for p in parts) == pytest.approx(1.0, abs=0.001)
    assert sum(p["seconds"] for p in parts) == pytest.approx(found["seconds"], rel=0.001)
    assert [k["seconds"] for k in found["kernels"]] == sorted((k["seconds"] for k in found["kernels"]), reverse=True)
    products = [k for k in found["kernels"] if k["name"].startswith("product")]
    steps = max(k["calls"] for k in products)
    largest = [k for k in products if k["flops"] >= 2 * 128 * 784 * 256 * steps]  # forward, and the gradient of the weights
    assert len(largest) == 2 and all(k["counts_are_whole"] and k["share_of_roofline"] > 0 for k in largest)
    machine = found["machine"]
    assert machine["peak_f32"] > machine["levels"][-1]["bandwidth"] / 4 > 0  # more operations than reals from memory, on any machine
    assert [level["name"] for level in machine["levels"]][-1] == "memory"
    check_page(web.read_text(encoding="utf-8"))


def test_a_program_that_stops_says_what_was_measured(quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, out = tmp_path / "stops.tl", tmp_path / "out.json"
    program.write_text(
        'fn main(n: i64 = 1000) {\n  let x = for[i < n] f32(i)\n  print(sum(x))\n  assert sum(x) < 0.0, "too large"\n}\n',
    )
    assert run("profile", "--json", str(out), str(program)) == 1
    caught = capsys.readouterr()
    assert "stopped: " in caught.out and "too large" in caught.err
    found = written(out)
    assert "too large" in found["stopped"] and found["seconds"] > 0
    assert sum(k["calls"] for k in found["kernels"]) >= 1


def test_ctrl_c_ends_the_run_with_its_profile(tmp_path: Path) -> None:
    program = tmp_path / "endless.tl"
    program.write_text(
        "fn main(n: i64 = 1000) {\n  var x = for[i < n] f32(i)\n  print(sum(x))\n  while x[0] < 1.0 {\n"
        "    x = for[i < n] x[n - 1 - i] * 0.5\n    x[0] = 0.0\n  }\n}\n"
    )
    command = [sys.executable, "-u", "-m", "tlc", "--threads", "1", "profile", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "499500.0\n"
        running.send_signal(signal.SIGINT)
        out, err = running.stdout.read(), running.stderr.read()
        assert running.wait() == 130
    assert "stopped: by Ctrl-C" in out and "map_" in out
    assert err.endswith("error: stopped by Ctrl-C\n")


def test_a_program_without_kernels(quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "scalars.tl"
    program.write_text("fn main() {\n  print(1 + 1)\n}\n")
    for host in pipeline.hosts():
        assert run("--host", host, "profile", str(program)) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "2"
        names = [line.split("  ")[0] for line in lines[6:]]
        assert (names[0], sorted(names[1:-2]), names[-2:]) == ("host code", ["service: format", "service: print"], ["timing", "all"])


def test_a_timed_program_computes_the_same_and_others_have_no_trace_of_it(tmp_path: Path) -> None:
    """Nothing of timing is in code that is not timed."""
    from tlc.backends.llvm.host import alone, definition, emit_llvm, print_host
    from tlc.backends.program import Tables
    from tlc.driver.options import Options
    from tlc.frontend.source import Source

    program = pipeline.front(Source("p.tl", PRODUCT))
    options = Options(flags={"m": 8, "n": 8, "d": 8, "times": 1})
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "memory")
    module, kernels = tensors.module, tensors.kernels
    plain = emit_llvm(module, kernels)
    assert "tlc.clock" not in plain and ".inside" not in plain
    text = "".join(map(definition(module), alone(module, kernels)))
    assert text.count("call i64 @tlc.clock()") == 2 * len(kernels)
    timed = print_host(module, kernels, Tables(), timed=True)
    assert plain.endswith(timed.replace("\ndeclare i64 @tlc.clock()\n\n", ""))  # the host sees no difference


def test_the_machine_is_measured() -> None:
    store: dict[str, bytes] = {}
    said: list[str] = []
    machine = roofline.measure(1, store, said.append)
    assert machine.peak > 1e9 and machine.peak64 > 5e8
    assert all(level.bandwidth > 1e8 for level in machine.levels)
    assert 0 < machine.inside < machine.around < 1e-4
    assert said[-1] == "" and "bandwidth of memory" in said
    assert machine.level(1e15) is machine.memory


# ---------------------------------------------------------------- known figures


def known(stopped: str = "") -> Profile:
    """A run of 1 ms: a product, a copy, a call too short to judge, 0.1 ms of printing, the rest host."""
    kernels = [
        Timed("product", (Place("a/mlp.tl", 7, "x @ w"), Place("lib/nn.tl", 3, "relu(y)")), True),
        Timed("copy", (Place("a/mlp.tl", 9, "y < z & z"),), True),
        Timed("short", (), False),
        Timed("never", (), True),
    ]
    figures = Table(len(kernels))
    figures.words[WALL], figures.words[PROCESSOR] = 1_000_000, 850_000
    rows = [
        (10, 400_010, 20_000_000, 0, 0, 100_000, 50_000),
        (10, 200_010, 0, 0, 0, 12_000_000, 12_000_000),
        (100, 1_100, 100, 0, 0, 400, 400),
        (0, 0, 0, 0, 0, 0, 0),
    ]
    for k, row in enumerate(rows):
        figures.words[FIRST_KERNEL + KERNEL_WORDS * k : FIRST_KERNEL + KERNEL_WORDS * (k + 1)] = row
    at = FIRST_SERVICE + 2 * SERVICES.index("print")
    figures.words[at : at + 2] = (1, 100_001)
    return summary(Command("a/mlp.tl", ("--n", "3"), {"n": 3}, "x86"), MACHINE, kernels, figures, stopped)


def test_figures() -> None:
    p = known()
    product, copy, short = p.kernels
    assert [product.name, copy.name, short.name] == ["product", "copy", "short"]
    assert product.seconds == pytest.approx(400e-6)  # 10 calls, each 1 ns less
    assert product.share == pytest.approx(0.4)
    assert product.flop_rate == pytest.approx(50e9)
    assert (product.bound, product.roof) == ("compute", pytest.approx(0.5))
    assert copy.byte_rate == pytest.approx(120e9)
    assert (copy.bound, copy.roof) == ("memory", pytest.approx(6.0))  # 2.4 MB a call, more than the cache of this machine holds
    assert (short.seconds, short.bound) == (pytest.approx(1e-6), "overhead")
    assert p.services[0].seconds == pytest.approx(100e-6)
    assert p.timing_seconds == pytest.approx(121 * 3e-9)
    assert p.host_seconds == pytest.approx(1e-3 - 400.01e-6 - 200.01e-6 - 1.1e-6 - 100.001e-6 - 121 * 2e-9)


def test_a_small_call_is_measured_by_the_cache_that_holds_it() -> None:
    kernels = [Timed("copy", (), True)]
    figures = Table(1)
    figures.words[WALL] = 1_000_000
    figures.words[FIRST_KERNEL : FIRST_KERNEL + KERNEL_WORDS] = (10, 100_010, 0, 0, 0, 5_000_000, 5_000_000)
    (copy,) = summary(Command("p.tl", (), {}, "llvm"), MACHINE, kernels, figures).kernels
    assert (copy.bound, copy.roof) == ("L2", pytest.approx(0.5))


def test_reals_of_64_bits_have_a_roof_of_their_own() -> None:
    figures = Table(1)
    figures.words[WALL] = 1_000_000
    figures.words[FIRST_KERNEL : FIRST_KERNEL + KERNEL_WORDS] = (1, 1_000_001, 0, 25_000_000, 0, 8, 8)
    (k,) = summary(Command("p.tl", (), {}, "llvm"), MACHINE, [Timed("k", (), True)], figures).kernels
    assert (k.bound, k.roof, k.is_double) == ("compute", pytest.approx(0.5), True)


TABLE = """\
a/mlp.tl --n 3: 1.00 ms, 2 threads, host x86
this machine: 100 GFLOP/s of f32, 50 of f64; 200 GB/s from L2, 20 GB/s from memory

kernel          calls      time   share  FLOP/call  B/call  GFLOP/s   GB/s  FLOP/B  bound     roof  lines
product            10  400.0 us   40.0%       2.0M   15.0k     50.0    0.4  133.33  compute    50%  mlp.tl:7 nn.tl:3
copy               10  200.0 us   20.0%               2.4M           120.0          memory    600%  mlp.tl:9
short             100    1.0 us    0.1%         1+       8      0.1    0.8    0.12  overhead
host code              298.6 us   29.9%
service: print      1  100.0 us   10.0%
timing                   0.4 us    0.0%
all                     1.00 ms  100.0%"""

NARROW = """\
kernel              time   share  bound     lines
product         400.0 us   40.0%  compute   mlp.tl:7 n.."""


def test_the_table() -> None:
    assert table(known(), 120) == TABLE
    assert table(known(), 56).splitlines()[3:5] == NARROW.splitlines()
    assert all(len(line) <= 80 for line in table(known(), 80).splitlines()[3:])
    assert "stopped: index out of range" in table(known("index out of range"), 120)


def test_small_kernels_come_together() -> None:
    p = known()
    tiny = replace(p.kernels[2], seconds=1e-7, share=1e-4)
    many = replace(p, kernels=(*p.kernels[:2], *[tiny] * 10))
    rows = [line.split("  ")[0] for line in table(many, 120).splitlines()[4:]]
    assert rows == ["product", "copy", *["short"] * 6, "4 more", "host code", "service: print", "timing", "all"]


def test_a_run_that_was_disturbed_says_so() -> None:
    p = known()
    assert p.disturbance == ""  # 0.85 ms of work, 0.1 ms of printing: the rest is less than a tenth
    late = replace(p, processor_seconds=0.45e-3)
    assert late.disturbance == "disturbed: other processes had the program's processor for at least 50% of its work"
    assert table(late, 120).splitlines()[2] == late.disturbance
    assert late.disturbance.capitalize() in "".join(check_page(page(late)).itertext())


def test_numbers_for_people() -> None:
    assert [time_text(t) for t in (12.34, 1.234, 0.01234, 1e-5)] == ["12.3 s", "1.23 s", "12.3 ms", "10.0 us"]
    assert [amount_text(a) for a in (0, 12, 1200, 3.4e6, 5e9, 7e12)] == ["", "12", "1.2k", "3.4M", "5.0G", "7.0T"]
    assert lines_text([Place("x/a.tl", 1, ""), Place("x/a.tl", 4, ""), Place("b.tl", 2, "")]) == "a.tl:1,4 b.tl:2"


def test_json_has_everything() -> None:
    found = json.loads(json.dumps(to_json(known())))
    assert found["format"] == "tlc profile 1"
    assert (found["program"], found["arguments"], found["flags"]) == ("a/mlp.tl", ["--n", "3"], {"n": 3})
    assert found["machine"] == {
        "threads": 2,
        "peak_f32": 100e9,
        "peak_f64": 50e9,
        "levels": [{"name": "L2", "size": 1_000_000, "bandwidth": 200e9}, {"name": "memory", "size": None, "bandwidth": 20e9}],
        "timed_call_seconds": 3e-9,
    }
    product = found["kernels"][0]
    assert product["lines"] == [{"path": "a/mlp.tl", "line": 7}, {"path": "lib/nn.tl", "line": 3}]
    assert (product["flops"], product["bytes_read"], product["bytes_written"]) == (20_000_000, 100_000, 50_000)
    assert found["kernels"][2]["counts_are_whole"] is False


# ---------------------------------------------------------------- the page


def check_page(text: str) -> ElementTree.Element:
    """Well formed, and nothing from elsewhere."""
    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    for element in root.iter():
        assert element.tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href"} & element.attrib.keys()
    assert "http:" not in text and "https:" not in text and "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text
    return root


def test_the_page() -> None:
    root = check_page(page(known("it said <no>")))
    circles = root.findall(".//circle")
    assert len(circles) == 2  # the copy has no operations
    assert "product: 50.0 GFLOP/s, 133.33 FLOP/B, 40.0% of the time" in "".join(circles[0].itertext())
    assert len(root.findall(".//line[@class='roof']")) == 3  # L2, memory, the peak
    for line in root.iter("line"):
        assert all(-1 <= float(line.attrib[k]) <= 861 for k in ("x1", "y1", "x2", "y2"))
    assert len(root.findall(".//tr")) == 1 + 3 + 4  # heads; kernels; host, print, timing, all
    assert "y < z & z" in "".join(root.itertext()) and "it said <no>" in "".join(root.itertext())


def test_a_page_without_kernels_has_a_plot_too() -> None:
    empty = summary(Command("p.tl", (), {}, "llvm"), MACHINE, [], Table(0))
    check_page(page(empty))


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["profile"], "`tlc profile` needs a program"),
        (["profile", "missing.tl"], "cannot read `missing.tl`: no such file or directory"),
        (["profile", "x.py"], "`x.py` is not a program: its name does not end in `.tl`"),
        (["profile", "--jsn", "a", "x.tl"], "there is no flag `--jsn`; did you mean `--json`?"),
        (["profile", "--json"], "`--json` needs a value, text: `--json VALUE`"),
        (
            ["profile", "--json", "no/such/a.json", str(PROGRAMS / "layer.tl")],
            "cannot write `no/such/a.json`: there is no folder `no/such`",
        ),
        (["profile", "--html", str(PROGRAMS), str(PROGRAMS / "layer.tl")], f"cannot write `{PROGRAMS}`: it is a folder"),
        (["--interp", "profile", "x.tl"], "`tlc profile` measures native code: leave out `--interp`"),
        (["profile", str(PROGRAMS / "layer.tl"), "--btch", "3"], "there is no flag `--btch`; did you mean `--batch`?"),
    ],
)
def test_wrong_usage(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*args) == 2
    assert message in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["profile", "--help"], ["profile", "--json", "x", "--help"]):
        assert run(*args) == 0
        text = capsys.readouterr().out
        assert text.startswith("usage: tlc [flags] profile [flags] PROGRAM.tl\n") and "--html" in text
    assert run("profile", str(PROGRAMS / "layer.tl"), "--help") == 0
    text = capsys.readouterr().out
    assert "--batch" in text and f"usage: tlc profile {PROGRAMS / 'layer.tl'} [flags]\n" in text


def test_a_program_with_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "wrong.tl"
    program.write_text("fn main() {\n  print(x)\n}\n")
    assert run("profile", str(program)) == 3
    assert "E0" in capsys.readouterr().err


def test_files_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    whole_file.write(str(path), "one")
    assert path.read_text() == "one" and path.stat().st_mode & 0o444

    def broken(a: object, b: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OutputError, match="no space left on device"):
        whole_file.write(str(path), "two")
    assert path.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no device that is always full")
@pytest.mark.parametrize(("command", "form"), [("profile", "json"), ("profile", "html"), ("tune", "json")])
def test_a_device_is_written_and_not_replaced(
    command: str, form: str, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program, link = tmp_path / "p.tl", tmp_path / "out"
    program.write_text("print(1)\n", encoding="utf-8")
    link.symlink_to("/dev/full")  # a link: if it were replaced, the device would stay
    assert run(command, f"--{form}", str(link), str(program)) == 1
    assert capsys.readouterr().err.endswith(f"error: cannot write `{link}`: no space left on device\n")
    assert link.is_symlink() and link.is_char_device()


def test_a_link_keeps_leading_to_its_file(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("one")
    link.symlink_to(file)
    whole_file.check_writable(str(link))
    whole_file.write(str(link), "two")
    assert link.is_symlink() and file.read_text() == "two"


def test_flags_are_its_own() -> None:
    assert [f.name for f in profile_command.FLAGS] == ["json", "html"]


def test_copies_that_a_product_makes_are_not_counted() -> None:
    """A large product copies its operands into panels, which nobody reads after it."""
    from tlc.driver.options import Options
    from tlc.frontend.source import Source

    program = pipeline.front(Source("p.tl", PRODUCT))
    options = Options(flags={"m": 1024, "n": 1024, "d": 1024, "times": 1})
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "memory")
    (name,) = [n for n in tensors.kernels if n.startswith("product")]
    kernel = tensors.kernels[name]
    assert kernel.work == len(kernel.outputs) - 1 >= 1
    counted = counts(kernel)
    assert [a.value for a in (counted.flops, counted.read, counted.written)] == [2 * 1024**3, 8 * 1024**2, 4 * 1024**2]
