"""`--explain-fusion`: every pair of neighbours is there once, with the line of its source and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tlc.driver import cli, pipeline
from tlc.driver.fusion_report import fusion_report
from tlc.driver.options import Options
from tlc.driver.watch import Watch
from tlc.frontend.source import Source
from tlc.tensor.fuse import Obstacle


def report(text: str) -> list[str]:
    program = pipeline.front(Source("p.tl", text))
    watch = Watch(decisions=[])
    flags = {f.name: f.default for f in program.flags if f.default is not None}
    assert any(name == "kernels" for name, _, _ in pipeline.middle(program, Options(flags=flags), watch))
    assert watch.decisions is not None
    return fusion_report(watch.decisions)


def test_a_layer() -> None:
    """The bias and the relu go into the store of the product; its operand is a factor, which is read many times."""
    lines = report("""\
fn main(n: i64 = 40) {
  let x = for[i < n, k < 30] f32(i - k)
  let w = for[k < 30, j < 20] f32(k * j)
  let h = for[i, j] sum[k] x[i, k] * w[k, j]
  let y = for[i, j] max(h[i, j] + 1.0, 0.0)
  print(y[0, 0], sum(y))
}
""")
    text = "\n".join(lines)
    assert "p.tl:4: let h = for[i, j] sum[k] x[i, k] * w[k, j]\n  h -> y                one kernel: y is computed where h ends" in text
    assert "x is not computed in its readers: a factor of a product is read many times, so only movement goes into it" in text
    assert "h is not computed where x ends: the reader reduces it" in text or "y is not computed where x ends: the reader reduces it" in text
    assert lines[-1].endswith(" in one kernel")


def test_movement_and_what_is_kept() -> None:
    lines = report("""\
fn main(n: i64 = 40) {
  let x = for[i < n] sin(f32(i))
  let t = for[i < n] x[n - 1 - i]
  let u = for[i < n] t[i] * 2.0
  print(x, u)
}
""")
    text = "\n".join(lines)
    assert "t -> u                one kernel: t is computed in u" in text
    assert "x -> u" in text and "x is not computed in its readers: the host needs the tensor itself" in text
    assert "u is not computed where x ends: it is read at other indices than it is computed at" in text


def test_reasons_end_sentences() -> None:
    for obstacle in Obstacle:
        assert obstacle.value[0].islower() and not obstacle.value.endswith(".")


def test_the_flag(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The report stands on standard error, before the program's output, and nothing comes from the cache."""
    path = tmp_path / "p.tl"
    path.write_text("fn main(n: i64 = 3) { print(sum(for[i < n] f32(i)) + 0.5) }\n")
    for _ in range(2):
        assert cli.main(["--explain-fusion", str(path)]) == 0
        out, err = capfd.readouterr()
        assert out == "3.5\n"
        assert "one kernel" in err
    graph = tmp_path / "g.uir"
    graph.write_text("%x = buffer 4 : dtype=f32 slot=0\n%y = neg %x\n%z = exp %y\n")
    assert cli.main(["--explain-fusion", str(graph)]) == 0
    assert "g.uir:2: %y = neg %x\n  y -> z                one kernel: y is computed in z" in capfd.readouterr().err
