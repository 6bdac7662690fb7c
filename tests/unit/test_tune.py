"""`tlc tune`: every choice gives the bits of the rules, choices are kept and taken, and what goes wrong does no harm."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tlc.backends import cpu
from tlc.backends.runtime import trials
from tlc.backends.runtime.trials import Trials
from tlc.backends.runtime.witness import Call, Witness
from tlc.driver import cli, pipeline, tuned
from tlc.driver.cache import CHOICE, choices_folder, choices_stamp
from tlc.driver.options import Options
from tlc.driver.tuned import Tuned
from tlc.frontend import disk_cache
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import Source
from tlc.tensor import knobs, tune
from tlc.tensor.graph.ir import Tensor
from tlc.tensor.kernel.ir import Buffer
from tlc.tensor.knobs import VALUES, Asked, Choice, Knobs, choice_text, turned
from tlc.tensor.lower import Work, scheduled_as
from tlc.tensor.schedule import Scheduled, Target

# What is tried of each kind of nest: all values of each knob alone, and some of all knobs together.
# The operands are x, y and z, of these shapes.
WORKS = {
    "product": ("29, 13; 13, 37", "for[i, j] sum[k] x[i, k] * y[k, j]"),
    "few columns": ("40, 24; 24, 10", "for[i, j] sum[k] x[i, k] * y[k, j]"),
    "batch": ("3, 9, 8; 3, 8, 21", "for[b, i, j] sum[k] x[b, i, k] * y[b, k, j]"),
    "convolution": ("16, 35; 5, 3, 3", "for[c < 5, i < 14, j < 33] sum[p < 3, q < 3] x[i + p, j + q] * y[c, p, q]"),
    "row": ("90; 90, 600", "for[j] sum[k] x[k] * y[k, j]"),
    "transposition": ("70, 45", "for[i < 45, j < 70] x[j, i] + 1.0"),
    "softmax": ("9, 130", "softmax(x)"),
    "sums": ("41, 75", "for[j] sum[i] exp(x[i, j])"),
    "greatest": ("9, 300", "for[i] max[j] x[i, j]"),
    "search": ("9, 300", "for[i] argmax[j] x[i, j]"),
    "pool": ("40, 70", "for[i < 20, j < 35] max[p < 2, q < 2] x[2 * i + p, 2 * j + q]"),
    "gather": ("12, 40; 30", "for[i < 30, j < 40] x[i64(abs(y[i])) % 12, j] * y[i]"),
    "attention": ("70, 12; 70, 12; 70, 12", "nn.causal_attention(x, y, z)"),
}
TARGETS = {"this machine": replace(cpu.vectors(), cache_bytes=4 << 10), "narrow": Target(16, 16, 2 << 10)}
MOST = 8  # kernels of a work that are compared


def works(name: str, target: Target) -> list[Work]:
    """What becomes kernels of a row of the table, but for what makes the operands."""
    shapes, expression = WORKS[name]
    operands = [f"let {x} = normal(key({k}), {shape})" for k, (x, shape) in enumerate(zip("xyz", shapes.split(";"), strict=False))]
    lines = [*operands, f"print({expression})", *(f"print({line[4]})" for line in operands)]  # printed, they stay tensors
    source = Source("works.tl", "use nn\n\nfn main() {\n  " + "\n  ".join(lines) + "\n}\n")
    module = next(value for stage, _, value in pipeline.middle(pipeline.front(source), Options(flags={})) if stage == "opt")
    found = pipeline.lower_tensors(module, target).works.values()
    return [work for work in found if any(isinstance(x, Tensor) for x in scheduled_as(work, target).operands)] or list(found)


def call(scheduled: Scheduled) -> Call:
    """Zeros for the contents that are needed, and a key."""
    kernel = scheduled.kernel
    sizes = {k: p.elem.bytes * int(np.prod([n.value for n in p.shape], dtype=int)) for k, p in enumerate(kernel.inputs) if isinstance(p, Buffer)}
    return Call(bytes(8 * (len(kernel.outputs) + len(kernel.inputs))), {k: bytes(size) for k, size in sizes.items() if not kernel.inputs[k].elem.is_real}, 0)


@pytest.mark.parametrize("name", WORKS)
def test_every_choice_gives_the_bits_of_the_rules(name: str) -> None:
    random = Random(name)
    target = random.choice([*TARGETS.values()])
    compared = 0
    for work in works(name, target):
        rules = scheduled_as(work, target)
        seen = {rules.kernel: rules}
        choices: list[Choice] = [{knob: value} for knob, asked in rules.asked.items() for value in asked.values]
        choices += [{knob: random.choice(asked.values) for knob, asked in rules.asked.items()} for _ in range(3)]
        for choice in choices:
            scheduled = scheduled_as(work, target, choice)
            seen.setdefault(scheduled.kernel, scheduled)
        kernels = random.sample([*seen.values()][1:], min(MOST, len(seen) - 1))
        Trials(rules, call(rules), 1, lambda: False).check([rules, *kernels])
        compared += len(kernels)
    assert compared


def test_the_table_of_knobs() -> None:
    text = (Path(knobs.__file__)).read_text(encoding="utf-8").split('"""')[1]
    rows = [line.split()[0] for line in text.split("by rule\n")[1].splitlines() if line.startswith("    ")]
    assert rows == list(VALUES)


def test_a_knob_takes_what_it_has() -> None:
    wanted: Choice = {"tile": (14, 1), "share": 3, "square": (8, 1), "lanes": True}
    asked = Knobs(32, wanted)
    assert asked.ask("tile", (12, 2)) == (14, 1)
    assert asked.ask("share", 2) == 2  # no such share
    assert asked.ask("square", 16) == 16  # a pair
    assert asked.ask("panel", 123) == 123  # what a rule says goes
    assert asked.asked["panel"].values[0] == 123
    assert turned(asked.asked) == {"tile": (14, 1)}
    assert choice_text({"tile": (8, 1), "share": 4}) == "tile 8x1, share 4"


def test_what_a_kernel_needs_to_run_alone() -> None:
    (work,) = works("gather", Target())
    scheduled = scheduled_as(work, Target())
    needed = tune.needed_inputs(work, scheduled)
    assert {x.name: k in needed for k, x in enumerate(scheduled.operands)} == {"x": False, "y": True}
    assert not tune.depends_on_itself(work)


# ---------------------------------------------------------------- the search


class Price:
    """A race in which a kernel costs what its knobs say."""

    def __init__(self, price: Mapping[str, Mapping[object, float]], noise: float = 0.0) -> None:
        self.price = price
        self.random = Random(0)
        self.noise = noise
        self.raced = 0

    def seconds(self, kernels: Sequence[Scheduled]) -> list[float]:
        self.raced += len(kernels)
        return [self.one(s.asked) * (1 + self.noise * self.random.random()) for s in kernels]

    def one(self, asked: Mapping[str, Asked]) -> float:
        total = 1.0
        for name, values in self.price.items():
            if name in asked:
                total *= values.get(asked[name].value, 1.0)
        return total


def searched(race: Price, late: bool = False) -> tune.Found:
    (work,) = works("product", TARGETS["narrow"])
    return tune.tune(work, TARGETS["narrow"], race, lambda knob: knob != "cost", lambda text: None, lambda: late)


def test_the_search_turns_one_knob_after_the_other() -> None:
    found = searched(Price({"tile": {(4, 2): 0.5}, "share": {8: 0.8}, "cost": {0: 0.1}}))
    assert found.choice == {"tile": (4, 2), "share": 8}
    assert found.ratio == pytest.approx(2.5)


def test_what_is_hardly_faster_is_not_chosen() -> None:
    assert searched(Price({"tile": {(4, 2): 0.98}})).choice == {}
    assert searched(Price({"tile": {(4, 2): 0.5}}), late=True).choice == {}


# ---------------------------------------------------------------- what is kept


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return choices_folder()


def test_choices_are_kept_whole(empty: Path) -> None:
    (work,) = works("product", Target())
    (other,) = works("few columns", Target())
    kernel, asked = (s := scheduled_as(work, Target())).kernel, s.asked
    assert choices_stamp() is None
    assert Tuned().choice(kernel, asked) == {}
    Tuned().keep(kernel, {"tile": (4, 2), "share": 8})
    first = choices_stamp()
    assert Tuned().choice(kernel, asked) == {"tile": (4, 2), "share": 8}
    assert Tuned().choice(replace(kernel, name="other", notes=("a note",)), asked) == {"tile": (4, 2), "share": 8}
    assert Tuned().choice(scheduled_as(other, Target()).kernel, asked) == {}
    assert tuned.choices(False).choice(kernel, asked) == {}
    (file,) = empty.iterdir()
    for damaged in (b"", b"{}", file.read_bytes()[:-1], file.read_bytes()[:40] + b"x"):
        file.write_bytes(damaged)
        assert Tuned().choice(kernel, asked) == {}
    for nonsense in (b"no JSON", b"[1, 2]", b'{"tile": "4x2", "share": 1.5, "panel": [1, 2, 3]}'):
        disk_cache.write(file, nonsense)
        assert Tuned().choice(kernel, asked) == {}
    Tuned().keep(kernel, {"share": 4})
    assert Tuned().choice(kernel, asked) == {"share": 4}
    assert choices_stamp() not in (None, first)
    Tuned().keep(kernel, {})
    assert list(empty.iterdir()) == []


def test_many_may_write_at_once(empty: Path) -> None:
    (work,) = works("product", Target())
    kernel = scheduled_as(work, Target()).kernel
    asked = scheduled_as(work, Target()).asked
    Tuned().keep(kernel, {"share": 1})
    wrong: list[Choice] = []

    def write(share: int) -> None:
        for _ in range(20):
            Tuned().keep(kernel, {"share": share})
            found = Tuned().choice(kernel, asked)
            if found not in ({"share": 1}, {"share": 4}, {"share": 8}):
                wrong.append(found)

    threads = [threading.Thread(target=write, args=(share,)) for share in (4, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [path.suffix for path in empty.iterdir()] == [CHOICE]


# ---------------------------------------------------------------- the command

PROGRAM = """
fn main(n: i64 = 40, times: i64 = 2) {
  let a = normal(key(1), n, 24)
  var b = normal(key(2), 24, 20)
  var total = 0.0
  for t in 0..times {
    b = b * 0.5
    let y = for[i, j] sum[k] a[i, k] * b[k, j]
    total += y[t, t]
  }
  print(total)
}
"""


@pytest.fixture
def program(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program; products are twice as fast with tiles of 12 rows by a register, and the rest is as it is."""
    price = Price({"tile": {(12, 1): 0.5}, "panels": {1: 3.0}})
    monkeypatch.setattr(Trials, "_race", lambda self, runs: [price.one(run.scheduled.asked) for run in runs])
    path = tmp_path / "product.tl"
    path.write_text(PROGRAM)
    return str(path)


def test_a_tuned_program(program: str, empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([program]) == 0
    expected = capsys.readouterr().out
    assert cli.main(["--threads", "1", "tune", program]) == 0
    out = capsys.readouterr().out
    assert out.startswith(expected)
    lines = [line.split() for line in out.splitlines()]
    (row,) = [line for line in lines if line and line[0].startswith("product")]
    assert "2.00" in row and "12x1" in row and row[-1].startswith("product.tl:")
    assert any(line[:3] == ["1", "kernel", "tuned:"] for line in lines)
    assert len(list(empty.iterdir())) == 1

    def notes(*flags: str) -> str:
        assert cli.main([*flags, "emit", "kernels", program]) == 0
        return capsys.readouterr().out

    assert 'note "tuned: tile 12x1' in notes()
    assert "tuned" not in notes("--no-tuned")
    assert cli.main(["--explain-fusion", program]) == 0
    assert "tuned for this processor: product_" in capsys.readouterr().err
    for flags in ([], ["--no-tuned"], ["--verify"], []):
        assert cli.main([*flags, program]) == 0
        assert capsys.readouterr().out == expected
    assert cli.main(["cache"]) == 0
    assert "tuned kernels          1" in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert list(empty.iterdir()) == []


def test_json(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert cli.main(["--threads", "1", "tune", "--json", str(file), program, "--times", "3"]) == 0
    assert "by rule" in capsys.readouterr().out
    found = json.loads(file.read_text(encoding="utf-8"))
    assert (found["format"], found["arguments"]) == ("tlc tune 1", ["--times", "3"])
    (product,) = [k for k in found["kernels"] if k["name"].startswith("product")]
    assert product["choice"] == {"tile": [12, 1]} and product["ratio"] == 2.0 and product["not_tried"] is None
    assert found["expected_kernel_seconds"] < found["kernel_seconds"]


def test_one_kernel(program: str, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    assert cli.main(["--threads", "1", "tune", "--json", str(file), "--kernel", "map_0", program]) == 0
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [k["name"] for k in found["kernels"]] == ["map_0"]


def test_ctrl_c_keeps_what_was_found(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert cli.main(["--threads", "1", "tune", "--json", str(file), program]) == 0
    all_of_them = {k["name"] for k in json.loads(file.read_text(encoding="utf-8"))["kernels"]}
    capsys.readouterr()
    search = tune.tune
    left = 1

    def interrupted(*args: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return search(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(tune, "tune", interrupted)
    assert cli.main(["--threads", "1", "--no-tuned", "tune", "--json", str(file), program]) == 128 + signal.SIGINT
    captured = capsys.readouterr()
    assert "stopped by Ctrl-C" in captured.err
    assert "by rule" in captured.out and "not tried: stopped by Ctrl-C" in captured.out
    kernels = json.loads(file.read_text(encoding="utf-8"))["kernels"]
    assert {k["name"] for k in kernels} == all_of_them
    assert sum(k["not_tried"] is None for k in kernels) == 1


def test_help(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", program, "--help"]) == 0
    assert f"usage: tlc tune {program} [flags]\n" in capsys.readouterr().out


def test_other_bits_are_a_fault(program: str, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(trials, "_same", lambda a, b, elem: False)
    assert cli.main(["--threads", "1", "tune", program]) == 4
    assert "has other bits" in capsys.readouterr().err
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune"], "`tlc tune` needs a program"),
        (["--interp", "tune", "x.tl"], "leave out `--interp`"),
        (["--device", "cuda-emulated", "tune", "x.tl"], "leave out `--device`"),
        (["tune", "--budget", "0", "x.tl"], "`--budget` needs a number of seconds"),
        (["tune", "--json", "no/such/a.json", "PROGRAM"], "cannot write `no/such/a.json`: there is no folder `no/such`"),
        (["tune", "missing.tl"], "cannot read `missing.tl`"),
        (["tune", "--kernel", "produkt_2", "PROGRAM"], "has no kernel `produkt_2`"),
    ],
)
def test_wrong_usage(words: list[str], message: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([program if word == "PROGRAM" else word for word in words]) == 2
    assert message in capsys.readouterr().err


def test_nowhere_to_keep_choices(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cli.main(["tune", program]) == 2
    assert "choices cannot be kept in" in capsys.readouterr().err


def test_the_witness_looks_less_and_less_often() -> None:
    (work,) = works("product", Target())
    scheduled = scheduled_as(work, Target())
    witness = Witness([scheduled.kernel], [frozenset([0])])
    operands = [np.full((29, 13), 3.0, np.float32), np.full((13, 37), 2.0, np.float32)]
    slots = np.array([0, *(o.ctypes.data for o in operands)], np.int64)
    for _ in range(3):
        witness._look(0, slots.ctypes.data)
    seen = witness.calls[0]
    assert np.frombuffer(seen.contents[0], np.float32).max() == 3.0 and not seen.missing
    witness.left = 10
    witness.calls.clear()
    witness._look(0, slots.ctypes.data)
    assert witness.calls[0].missing == len(seen.contents[0])


def test_a_kernel_that_differs_is_named() -> None:
    (work,) = works("product", Target())
    scheduled = scheduled_as(work, Target())
    race = Trials(scheduled, call(scheduled), 1, lambda: False)
    race.check([scheduled])
    race.expected[0][0] ^= 1
    with pytest.raises(InternalError, match="has other bits with no choice than by the rules"):
        race.check([scheduled])
