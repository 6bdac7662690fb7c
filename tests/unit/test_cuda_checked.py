"""`--check-kernels`: programs whose kernels for a GPU are interpreted under suspicion give the same, and what is wrong in a kernel is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ssa_services import Recorder

from tlc.backends.runtime.checked import Checked
from tlc.backends.runtime.native import Native
from tlc.driver import cli, pipeline
from tlc.driver.options import Options
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import Source
from tlc.tensor.kernel.ir import Barrier, For, Kernel, Stmt
from tlc.tensor.lower import Tensors

# results of every kind: tensors, numbers, narrow reals, bools; a kernel that writes over its input, one that applies a function, no elements
PROGRAM = """
fn steps(n: i64) -> i64 = if n < 2 { 0 } else { 1 + steps(n / 2) }

fn main(n: i64 = 9) {
  let a = for[i < n, p < 9] sin(f32(i * 31 + p * 7))
  let b = for[p < 9, j < n] cos(f32(p * 13 + j * 5))
  print(a @ b)
  var x = for[i < n] bf16(i) / 16.0
  for k in 0..3 { x = for[i] x[i] * x[i] - 0.5 }
  print(x, sum(x), any(for[i] x[i] > 1.0), for[i < 9] steps(i), softmax(for[j < 3] f16(j)), sum(zeros(n - 9)))
}
"""


def made(text: str) -> tuple[Tensors, Options]:
    program = pipeline.front(Source("prog.tl", text))
    flags = {f.name: f.default for f in program.flags if f.default is not None}
    options = Options(flags=flags, device="cuda-emulated", checked=True)
    return next(value for name, _, value in pipeline.middle(program, options) if name == "memory"), options


def test_a_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prog.tl"
    path.write_text(PROGRAM.replace("n / 2", "n // 2"))
    found = []
    for way in (["--interp"], ["--device", "cuda-emulated", "--check-kernels"]):
        status = cli.main([*way, str(path)])
        out, err = capfd.readouterr()
        assert status == 0, err
        found.append(out)
    assert found[0] == found[1]


# results that lie over what they are computed from: those of products, and of rows by sixteen threads and by a block
IN_PLACE = """
fn main(n: i64 = 5) {
  let a = for[i < n, p < 20] sin(f32(i * 31 + p * 7))
  let z = for[i < 2, j < 2050] f32(i * j % 11)
  let u = for[i < 2, j < 2050] f32((i + j) % 11)
  var c = for[i < n, j < n] f32(i - j)
  var r = for[i < n] f32(i)
  var s = for[i < 2] f32(i)
  var m = for[i < 2] f32(i)
  for k in 0..2 {
    c = for[i < n, j < n] c[i, j] * 0.5 + sum[p] a[i, p] * a[j, p]
    s = for[i < 2] s[i] * 0.5 + sum[j] z[i, j]
    r = for[i < n] r[i] * 0.5 + sum[p] a[i, p]
    m = for[i < 2] m[i] * 0.5 + max[j] u[i, j]
  }
  print(c, r, s, m)
}
"""


def test_results_in_place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No thread reads what another one has stored over it, nor reads for nothing what another one stores over."""
    tensors, _ = made(IN_PLACE)
    assert sum(bool(k.may_alias) for k in tensors.kernels.values()) >= 4
    path = tmp_path / "prog.tl"
    path.write_text(IN_PLACE)
    found = []
    for way in (["--interp"], ["--device", "cuda-emulated", "--check-kernels"]):
        status = cli.main([*way, str(path)])
        out, err = capfd.readouterr()
        assert status == 0, err
        found.append(out)
    assert found[0] == found[1]


def without_barriers(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(replace(s, body=without_barriers(s.body)) if isinstance(s, For) else s for s in body if not isinstance(s, Barrier))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k: replace(k, body=without_barriers(k.body)), "a race for `"),
        (lambda k: replace(k, body=()), "on memory that nobody has written"),
    ],
    ids=["no barriers", "nothing is written"],
)
def test_what_is_wrong_is_found(change: object, message: str) -> None:
    assert callable(change)
    tensors, options = made(PROGRAM.replace("n / 2", "n // 2"))
    (name,) = (n for n in tensors.kernels if n.startswith("product"))
    executable = pipeline.machine_code(tensors, options, {})
    spoiled: dict[str, Kernel] = {**tensors.kernels, name: change(tensors.kernels[name])}
    native = Native(replace(executable, device=Checked(spoiled, tensors.module)), Recorder())
    with pytest.raises(InternalError, match=message) as caught:
        native.run()
    assert f"kernel {name}" in str(caught.value)


def test_the_flag_wants_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prog.tl"
    path.write_text("print(1)\n")
    assert cli.main(["--check-kernels", str(path)]) == 2
    assert "it needs `--device cuda-emulated` or `--device cuda`" in capsys.readouterr().err
