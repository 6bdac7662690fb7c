"""Programs on a GPU that is none: `cuda_stub.py` is the driver, which does what was started when somebody waits.

So all is tested but the machine code: how arguments travel, grids, memory, copies, graphs, where the host waits, errors, what is kept.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_stub import Card
from ssa_services import Recorder

from tlc.backends.cuda import device, driver, ptx, stretches
from tlc.backends.cuda.emit import emit
from tlc.backends.runtime.native import Native
from tlc.backends.runtime.services import WorldServices
from tlc.driver import cli, pipeline, stage_texts
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.ssa.world import RuntimeStop, Stop

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")

PROGRAM = """
fn main(n: i64 = 40) {
  var x = for[i < n, j < 30] f32(i * j % 7)
  let w = for[i < 30, j < 20] f32(i - j) / 8.0
  for step in 0..3 {
    let y = for[i, j] max(sum[k] x[i, k] * w[k, j], 0.5)
    x = for[i, j] x[i, j] + y[i, j % 20] * 0.25
    print(sum(y), max(x))
  }
  let at = for[i < n] i * i % n
  print(x[at][3][2], any[i < n] x[i, 0] > 1.0)
}
"""


SHORT = """
fn main(n: i64 = 4000) {
  var x = for[i < n] f32(i * i % 7)
  for k in 0..3 { x = for[i < n] x[(i * 7 + k) % n] + x[n - 1 - i] }
  print(x)
}
"""


# the host reads and writes elements in loops, in functions and recursively, between kernels; and a derivative has a tape
HOST = """
fn tally(x: f32[n]) -> f32 {
  var s = 0.0
  var k = 0
  while k < n {
    if x[k] > 1.0 { s += x[k] * f32(k) }
    k += 1
  }
  s
}

fn swapped(a: i64[n], lo: i64, hi: i64) -> i64[n] {
  var b = a
  if lo < hi {
    b[lo] = a[hi]
    b[hi] = a[lo]
    b = swapped(b, lo + 1, hi - 1)
  }
  b
}

fn far(x: f32[n], steps: i64) -> f32 {
  var y = x
  for k in 0..steps { y = for[i] sin(y[i]) * y[(i + k) % n] }
  sum(y)
}

fn main(n: i64 = 40) {
  var x = for[i < n, j < 30] f32(i * j % 7)
  let w = for[i < 30, j < 20] f32(i - j) / 8.0
  var kept = zeros(3)
  for step in 0..3 {
    let y = for[i, j] max(sum[k] x[i, k] * w[k, j], 0.5)
    x = for[i, j] x[i, j] + y[i, j % 20] * 0.25
    kept[step] = y[3, step] + tally(x[step])
    if kept[step] < 3.0 { kept[0] = 2.0 }
    x[step, 0] = kept[step]
  }
  var a = for[i < n] i * 7 % n
  let before = a
  for i in 1..n { a[i] = a[i] + a[i - 1] % 5 }
  print(kept, a, x[1, 2], sum(for[i] before[i] - a[i]), swapped(before, 0, n - 1))
  print(grad(far)(x[2], 4))
}
"""


class Made:
    """A program for the device, and what it says on the CPU."""

    def __init__(
        self, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, host: str = "llvm", services: type[Recorder] = Recorder
    ) -> None:
        program = pipeline.front(Source("prog.tl", text))
        flags = {f.name: f.default for f in program.flags if f.default is not None}
        options = Options(flags=flags, host=host)
        self.services, self.expected = services, services()
        Native(pipeline.build(program, options, {}), self.expected).run()
        self.program, self.options = program, replace(options, device="cuda")
        tensors = stage_texts.tensors_for_gpu(program, options)
        self.kernels = tensors.kernels
        self.card = Card(tensors.kernels, tensors.module, folder)
        monkeypatch.setattr(driver, "LIBRARY", str(self.card.path))
        monkeypatch.setattr(ptx, "compile_unit", lambda unit, sm: [f"sm_{sm}" for _ in unit.functions])

    def run(self, **more: bool) -> tuple[Recorder, Native]:
        services = self.services()
        native = Native(pipeline.build(self.program, replace(self.options, **more), {}), services)
        native.run()
        return services, native


@pytest.mark.parametrize("host", pipeline.hosts())
def test_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    made = Made(PROGRAM, tmp_path, monkeypatch, host)
    services, native = made.run()
    assert services.lines == made.expected.lines and services.lines
    card = made.card
    assert card.launches == card.done > card.waits > 5 and card.blocks > card.launches
    assert card.assembled <= card.loaded <= len(emit(stage_texts.tensors_for_gpu(made.program, made.options).kernels).functions), "each function is loaded once"
    assert card.managed >= native.context.mallocs > 0
    native.close()
    assert card.freed == native.context.mallocs


@pytest.mark.parametrize("host", pipeline.hosts())
def test_the_host_waits_for_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    made = Made(HOST, tmp_path, monkeypatch, host)
    services, native = made.run()
    assert services.lines == made.expected.lines and services.lines
    assert made.card.waits < 25 < made.card.launches, "no wait for each element"
    assert native.calls["launch"] < made.card.launches, "the host starts kernels itself"
    monkeypatch.setattr(device.Gpu, "wait", lambda self: None)
    services, _ = made.run()
    assert services.lines != made.expected.lines, "the stub notices what is missing"


def test_where_the_host_may_not_touch_memory_each_kernel_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(PROGRAM, tmp_path, monkeypatch)
    made.card.set("concurrent", 0)
    services, _ = made.run()
    assert services.lines == made.expected.lines and made.card.waits >= made.card.launches


GROWING = """
fn main(n: i64 = 4000) {
  var ends = zeros(5)
  for k in 1..9 {
    let m = n * k
    var x = for[i < m] f32(i * i % 7)
    for s in 0..3 { x = for[i < m] x[(i * 7 + s) % m] + x[m - 1 - i] }
    ends = for[j] ends[j] + x[j * 3] + x[m - 1 - j]
  }
  print(ends)
}
"""


def test_memory_goes_back_when_kernels_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none left, buffers that wait to be used again are freed, though kernels that use them may be running."""
    made = Made(GROWING, tmp_path, monkeypatch)
    made.card.set("room", 420_000)
    services, native = made.run()
    assert services.lines == made.expected.lines and services.lines
    assert 0 < made.card.freed < native.context.mallocs and not made.card.early


ILLEGAL = "failed on the GPU: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"


def test_kernels_that_may_have_failed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their lines; and the hint that names the one, which does."""
    made = Made(SHORT, tmp_path, monkeypatch)
    made.card.set("fails_at", 1)
    with pytest.raises(Stop) as caught:
        made.run()
    stop = caught.value
    assert ILLEGAL in stop.message and stop.message.startswith("one of the kernels `map_0`, `map_1` ") and stop.kind == "kernel"
    assert "prog.tl:3" in stop.notes[0] and "map_0" in stop.notes[0] and "--check-kernels" in stop.notes[1]
    (tmp_path / "again").mkdir()
    made = Made(SHORT, tmp_path / "again", monkeypatch)
    made.card.set("fails_at", 1)
    with pytest.raises(Stop) as caught:
        made.run(checked=True)
    assert ILLEGAL in caught.value.message and caught.value.message.startswith("the kernel `") and caught.value.kind == "kernel"
    assert caught.value.span.source.path == "prog.tl" and made.card.launches == 2, "the run ends there"


def test_a_failure_that_comes_out_where_code_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(SHORT, tmp_path, monkeypatch)
    made.card.set("fails_at", 0)
    made.card.set("loading_waits", 1)
    with pytest.raises(Stop, match="the kernel `map_0` failed on the GPU: an illegal memory access"):
        made.run()
    assert made.card.launches == 1


def test_memory_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Everything of the driver fails by then; giving memory back says nothing of it."""
    made = Made(SHORT, tmp_path, monkeypatch)
    native = Native(pipeline.build(made.program, made.options, {}), Recorder())
    made.card.set("fails_at", 1)
    with pytest.raises(Stop):
        native.run()
    native.close()
    assert made.card.freed and not made.card.early and capfd.readouterr() == ("", "")


def test_whoever_asks_first_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's failure comes out of any call of the driver, such as one for memory; it stays the kernel's."""
    made = Made(SHORT.replace("print(x)", "let y = for[i < 2 * n] x[i % n]\n  print(y)"), tmp_path, monkeypatch)
    made.card.set("broken", 700)
    with pytest.raises(RuntimeStop, match="the GPU failed: an illegal memory access"):
        made.run()


@pytest.mark.parametrize(("launch", "names"), [(0, "the kernel `map_0`"), (1, "one of the kernels `map_0`, `map_1`"), (2, "one of the kernels `map_0`, `map_1`")])
def test_a_launch_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: int, names: str) -> None:
    """The first start of each kernel is the launcher's, the others are the host's."""
    made = Made(SHORT, tmp_path, monkeypatch)
    made.card.set("refuses_at", launch)
    with pytest.raises(Stop, match=f"{names} failed on the GPU: another error"):
        made.run()
    assert made.card.launches == launch + 1


EXTENTS = """
fn f(x: f32[n]) -> f32[n] = for[i] x[n - 1 - i] + x[i]

fn main(n: i64 = 40) {
  var total = 0.0
  var x = for[i < n] f32(i)
  for k in 0..4 {
    let z = f(f(x[..n - k // 2]))
    total += z[k]
  }
  var y = for[i < 3, j < 7] f32(i * j)
  for k in 0..3 { y[k, 0] = total }
  for k in 0..3 { y[k] = f(y[k]) }
  print(total, y)
}
"""


def test_other_extents_and_crooked_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is for its extents. A row of 28 bytes does not begin at a multiple of 16: a kernel gets a copy, if it loads that much at once."""
    monkeypatch.setattr(device, "_WIDE", re.compile(""))
    made = Made(EXTENTS, tmp_path, monkeypatch)
    services, native = made.run()
    assert services.lines == made.expected.lines and 0 < native.calls["launch"] < made.card.launches
    assert made.card.copies > 1


# copies, and a gradient whose tape has them: of rank 1 and 2, of bytes, words and double words
COPIES = """
fn far(x: f32[n, m], w: f32[3, m]) -> f32 {
  var y = x
  for l in 0..3 { y = for[i, j] sin(y[i, j]) * w[l, j] }
  sum(for[i, j] y[i, j] * y[i, (j + 1) % m])
}

fn main(n: i64 = 40) {
  let x = for[i < n, j < 30] f32(i * j % 7)
  let w = for[l < 3, j < 30] f32(l + j % 3) / 3.0
  var g = grad(far)(x, w)
  var b = for[i < n] u8(i)
  var c = for[i < n] f64(i)
  for step in 0..5 {
    let (d, e) = (b, c)
    b[step] = 7
    c[step] = 7.0
    b = for[i] b[n - 1 - i] + d[i]
    c = for[i] c[n - 1 - i] + e[i]
    let h = grad(far)(x, w)
    g = for[i, j] g[i, j] * 0.5 + h[i, j]
  }
  print(g[1], b, c, c[2])
}
"""


def test_copies_stay_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `copy` is a kernel; single elements, and what is printed, are copied to the host, so that no page of a tensor moves."""
    made = Made(COPIES, tmp_path, monkeypatch)
    assert {"copy_1", "copy_4", "copy_8"} <= set(made.kernels)
    services, _ = made.run()
    assert services.lines == made.expected.lines and services.lines
    assert made.card.fetched == 4 and made.card.prefetched > 4


STEPS = """
fn layer(x: f32[n, m], w: f32[m, m]) -> f32[n, m] = for[i, j] max(sum[k] x[i, k] * w[k, j], 0.1)

fn loss(w: f32[3, 12, 12], x: f32[n, 12]) -> f32 {
  var y = x
  for l in 0..3 { y = layer(y, w[l]) }
  mean(for[i] mean(for[j] (y[i, j] - 0.5) * (y[i, j] - 0.5)))
}

fn main(steps: i64 = 30, n: i64 = 17) {
  var w = for[l < 3, i < 12, j < 12] f32((i * 5 + j * 3 + l) % 7 - 3) / 8.0
  var m = for[l < 3, i < 12, j < 12] 0.0
  let x = for[i < n, j < 12] f32((i * 3 + j) % 11) / 11.0
  var total = 0.0
  for step in 0..steps {
    let (l, g) = value_and_grad(loss)(w, x)
    m = for[l, i, j] m[l, i, j] * 0.9 + g[l, i, j]
    let rate = 0.1 / f32(step + 1)
    w = for[l, i, j] w[l, i, j] - rate * m[l, i, j]
    total += l
    ODD
    if step % 10 == 9 { print(step, total, w[1, 2, 3]) }
  }
}
"""
EVEN = STEPS.replace("ODD", "")


@pytest.mark.parametrize("host", pipeline.hosts())
def test_a_step_is_a_few_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """The launches before and behind the loss; two of each, as the new weights are in another buffer than the old. The rate changes."""
    made = Made(EVEN, tmp_path, monkeypatch, host)
    services, native = made.run()
    card = made.card
    assert services.lines == made.expected.lines and services.lines
    assert card.graphs == 4 and card.graph_launched > card.launches * 3 // 4 and card.launches == card.done
    assert 20 < card.changes <= 30, "one launch of a step gets another rate"
    assert native.calls["launch"] < 50, "Python starts what gives the loss"


def test_a_stale_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If scalars are not told to it, the stub notices."""
    made = Made(EVEN, tmp_path, monkeypatch)
    made.card.set("stale_graphs", 1)
    assert made.run()[0].lines != made.expected.lines


@pytest.mark.parametrize("host", pipeline.hosts())
def test_wrong_guesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Where other kernels come than those that are expected, what was held back is started before them."""
    odd = """if step % 3 == 1 {
      m = for[l, i, j] m[l, j, i] * f32(1 + step % 2)
      w = for[l, i, j] w[l, i, j] * 0.75 + m[l, i, 11 - j]
    }
    if step % 7 == 5 { total += w[0, step % 5, 1] }"""
    made = Made(STEPS.replace("ODD", odd), tmp_path, monkeypatch, host)
    services, native = made.run()
    card = made.card
    assert services.lines == made.expected.lines and card.launches == card.done and card.graph_launches > 5
    assert isinstance(native.device, device.Gpu) and any(s.wrong for s in native.device.stretches.graphs.values())


def test_a_stretch_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "ROOM", 20)
    made = Made(EVEN, tmp_path, monkeypatch)
    services, _ = made.run()
    assert services.lines == made.expected.lines and not made.card.graphs


def test_not_every_stretch_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where graphs do not come, only some are, and so a graph is found later."""
    for name, value in (("BORED", 0), ("PAUSE", 20), ("LOOK", 3)):
        monkeypatch.setattr(stretches, name, value)
    made = Made(EVEN, tmp_path, monkeypatch)
    services, _ = made.run()
    assert services.lines == made.expected.lines and 0 < made.card.graph_launched < made.card.launches * 3 // 4


def test_no_room_for_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(EVEN, tmp_path, monkeypatch)
    made.card.set("no_graphs", 1)
    services, _ = made.run()
    assert services.lines == made.expected.lines and not made.card.graph_launches


@pytest.mark.parametrize("launch", [0, 7])
def test_a_graph_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: int) -> None:
    made = Made(EVEN, tmp_path, monkeypatch)
    made.card.set("graph_refuses_at", launch)
    with pytest.raises(Stop, match=r"failed on the GPU: another error .*, told by `cuGraphLaunch`"):
        made.run()
    assert made.card.graph_launches == launch + 1


def test_a_kernel_of_a_graph_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(EVEN, tmp_path, monkeypatch)
    made.card.set("fails_at", 400)
    with pytest.raises(Stop) as caught:
        made.run()
    assert ILLEGAL in caught.value.message and "one of the kernels" in caught.value.message and made.card.graph_launches > 10
    assert caught.value.message.endswith(", told by `cuStreamSynchronize`")


def test_one_run_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is on a thread of its own, which has to have the context: in the second the host itself starts the first kernel."""
    made = Made(EVEN, tmp_path, monkeypatch)
    services, native = made.run()
    native.run()
    assert services.lines == 2 * made.expected.lines and made.card.launches == made.card.done


class Files(Recorder):
    def extern(self, name: str, args: list[object]) -> list[object]:
        return list(WorldServices().extern(name, args))


def test_what_is_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goes to the GPU by a copy, and back."""
    path = tmp_path / "x.safetensors"
    text = f"""use io
fn main() {{
  io.save(for[i < 9, j < 5] f32(i * j), "{path}")
  let x = io.load("{path}", like = zeros(9, 5))
  print(sum(for[i, j] x[i, j] * f32(j)), x)
}}
"""
    made = Made(text, tmp_path, monkeypatch, services=Files)
    services, _ = made.run()
    assert services.lines == made.expected.lines and made.card.put and made.card.fetched > 1


@pytest.mark.parametrize(("name", "value"), [("no_memory", 1), ("room", 1000)])
def test_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    """Also where the driver would take the host's memory for what does not fit."""
    made = Made(SHORT, tmp_path, monkeypatch)
    made.card.set(name, value)
    with pytest.raises(Stop, match="there is no memory for a tensor of 16000 bytes") as caught:
        made.run()
    assert caught.value.kind == "memory" and str(caught.value.span).startswith("prog.tl:")
    has, plan, hint = caught.value.notes
    assert has.endswith("and the program holds 0 bytes of it") and "memory: at most" in plan and "%x" in plan and "smaller sizes" in hint


def test_machine_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver's version; and what the driver does not take is made again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = Made(SHORT, tmp_path, monkeypatch)
    made.run()
    first = made.card.assembled
    assert first > 0
    made.run()
    assert made.card.assembled == first
    made.card.set("version", 13010)
    made.run()
    assert made.card.assembled == 2 * first
    made.card.set("old_binary", 1)
    assert made.run()[0].lines == made.expected.lines and made.card.assembled == 2 * first + 1


def test_what_the_assembler_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = Made(SHORT, tmp_path, monkeypatch)
    made.card.set("faulty_text", 1)
    with pytest.raises(RuntimeStop, match="the driver cannot assemble the kernel `map_0`: ptxas fatal : a line that is none"):
        made.run()


@pytest.mark.parametrize(("name", "value", "why"), [("devices", 0, "there is no GPU"), ("major", 7, "the GPU is too old: sm_70")])
def test_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int, why: str) -> None:
    made = Made("fn main() { print(sum[i < 9] f32(i)) }", tmp_path, monkeypatch)
    made.card.set(name, value)
    with pytest.raises(RuntimeStop, match=why) as caught:
        made.run()
    assert caught.value.kind == "device"


def test_an_old_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made("fn main() { print(sum[i < 9] f32(i)) }", tmp_path, monkeypatch)
    monkeypatch.setattr(stretches, "SET_ARGUMENTS", "cuGraphOfTomorrow")
    with pytest.raises(RuntimeStop, match="the driver for NVIDIA's GPUs has no `cuGraphOfTomorrow`: it is too old"):
        made.run()


def test_what_users_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a driver, and without the tools: a code, and what there is to do."""
    monkeypatch.setattr(driver, "LIBRARY", "libnothing.so.1")
    monkeypatch.setattr(ptx, "missing", lambda: ["numba-cuda", "nvidia-nvvm"])
    program = tmp_path / "prog.tl"
    program.write_text("fn main() { print(sum[i < 9] f32(i)) }\n")
    assert cli.main(["--device", "cuda", str(program)]) == 1
    said = capsys.readouterr().err
    assert said == "error[R0018]: the driver for NVIDIA's GPUs is not installed: there is no `libnothing.so.1`\n"
    assert cli.main(["emit", "ptx", str(program)]) == 1
    assert capsys.readouterr().err == (
        "error[R0017]: kernels for GPUs are compiled by numba-cuda, and there is no numba-cuda, nvidia-nvvm: install `tlc[cuda]`\n"
    )


def test_recursion_in_kernels_is_not_there_yet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = tmp_path / "prog.tl"
    program.write_text("fn fib(n: i64) -> i64 = if n < 2 { n } else { fib(n - 1) + fib(n - 2) }\nfn main() { print(for[i < 9] fib(i)) }\n")
    assert cli.main(["emit", "cuda", str(program)]) == 3
    said = capsys.readouterr().err
    assert "error[E0901]: " in said and "in a kernel for a GPU: not supported yet" in said and "prog.tl:" in said
