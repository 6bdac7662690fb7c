"""Programs on a GPU that is none: a driver library of our own, made by gcc, runs the emulated kernels when a launch asks for them.

So all is tested but the machine code: how arguments travel, grids, managed memory, copies, errors.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from ssa_services import Recorder

from tlc.backends.c.unit import FLAGS
from tlc.backends.c.unit import emit as emit_c
from tlc.backends.cuda import device, ptx
from tlc.backends.cuda.emit import Unit, emit
from tlc.backends.runtime.native import Native
from tlc.driver import cli, pipeline, stage_texts
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.ssa.world import RuntimeStop, Stop
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.ir import Kernel

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")

DRIVER = r"""
#include <stdlib.h>
#include <string.h>
int launches, synchronized, managed, freed, loaded, blocks, fails_at = -1, devices = 1, major = 9, no_memory;
typedef unsigned long long address;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = devices; return 0; }
int cuDeviceGet(int *device, int number) { *device = 7; return 0; }
int cuDeviceGetAttribute(int *value, int number, int device) {
  *value = device != 7 ? -1 : number == 75 ? major : number == 76 ? 0 : number == 83;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &launches; return device == 7 ? 0 : 101; }
int cuCtxSetCurrent(void *context) { return context == &launches ? 0 : 201; }
int cuMemAllocManaged(address *at, size_t size, unsigned flags) {
  if (no_memory) return 2;
  managed++;
  *at = (address)aligned_alloc(512, (size + 511) / 512 * 512);
  return flags == 1 ? 0 : 1;
}
int cuMemFree_v2(address at) { freed++; free((void *)at); return 0; }
int cuModuleLoadData(void **module, const char *text) { loaded++; *module = (void *)text; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = strdup(name); return 0; }
int cuGetErrorName(int status, const char **name) { *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0; }
int cuGetErrorString(int status, const char **text) { *text = "an illegal memory access was encountered"; return 0; }
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared, void *stream,
                   void **p, void **extra) {
  blocks += x * y * z;
  if (tx % 32 || ty != 1 || tz != 1 || shared || stream || extra) return 1;
  if (launches++ == fails_at) return 0;  /* told when somebody waits */
  RUN
  return 500;
}
int cuCtxSynchronize(void) { synchronized++; return fails_at >= 0 && launches > fails_at ? 700 : 0; }
"""

C_TYPES = {"uint8": "bool", "uint16": "uint16_t", "uint32": "uint32_t", "int64": "int64_t", "float32": "float", "float64": "double"}


class Card:
    """The library, and its counters."""

    def __init__(self, kernels: Mapping[str, Kernel], folder: Path) -> None:
        unit = emit(kernels)
        text = emit_c({name: emulated(kernel) for name, kernel in kernels.items()})
        cases = "".join(self.case(unit, name) for name in kernels)
        source, self.path = folder / "driver.c", folder / "libdriver.so"
        source.write_text(text + DRIVER.replace("RUN", cases))
        subprocess.run(["gcc", *FLAGS, "-O1", "-w", "-shared", "-fPIC", source, "-o", self.path, "-lm"], check=True)
        self.library = ctypes.CDLL(str(self.path))

    def case(self, unit: Unit, name: str) -> str:
        """The first grid of a kernel does it all, the others nothing."""
        first, *others = [f for f in unit.functions if f.kernel.name == name]
        args = [
            f"*({C_TYPES.get(t.rstrip('*'), f'{t}_t'.replace('*_t', '_t'))} {'*' if t.endswith('*') else ''}*)p[{k}]"
            for k, t in enumerate(first.parameters)
        ]
        text = f'if (!strcmp(f, "{first.name}")) {{ {name}({", ".join(args)}); return 0; }}\n'
        return text + "".join(f'if (!strcmp(f, "{f.name}")) return 0;\n' for f in others)

    def __getattr__(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.library, name).value

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.library, name).value = value


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
fn main(n: i64 = 40) {
  let x = for[i < n] f32(i % 7)
  let y = for[i] x[i] * sum(x)
  print(max(y))
}
"""


class Made:
    """A program for the device, and what it says on the CPU."""

    def __init__(self, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, host: str = "llvm") -> None:
        program = pipeline.front(Source("prog.tl", text))
        flags = {f.name: f.default for f in program.flags if f.default is not None}
        options = Options(flags=flags, host=host)
        self.expected = Recorder()
        Native(pipeline.build(program, options, {}), self.expected).run()
        self.program, self.options = program, replace(options, device="cuda")
        self.card = Card(stage_texts.tensors_for_gpu(program, options).kernels, folder)
        monkeypatch.setattr(device, "LIBRARY", str(self.card.path))
        monkeypatch.setattr(ptx, "compile_unit", lambda unit, sm: [f"sm_{sm}" for _ in unit.functions])

    def run(self) -> tuple[Recorder, Native]:
        services = Recorder()
        native = Native(pipeline.build(self.program, self.options, {}), services)
        native.run()
        return services, native


@pytest.mark.parametrize("host", pipeline.hosts())
def test_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    made = Made(PROGRAM, tmp_path, monkeypatch, host)
    services, native = made.run()
    assert services.lines == made.expected.lines and services.lines
    card = made.card
    assert card.launches == card.synchronized > 10 and card.blocks > card.launches
    assert card.loaded <= len(emit(stage_texts.tensors_for_gpu(made.program, made.options).kernels).functions), "each function is loaded once"
    assert card.managed >= native.context.mallocs > 0
    native.close()
    assert card.freed == native.context.mallocs


def test_a_kernel_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(SHORT, tmp_path, monkeypatch)
    made.card.set("fails_at", 1)
    with pytest.raises(Stop) as caught:
        made.run()
    said = "failed on the GPU: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"
    assert said in caught.value.message and caught.value.message.startswith("the kernel `") and caught.value.kind == "kernel"
    assert caught.value.span.source.path == "prog.tl" and made.card.launches == 2, "the run ends there"


def test_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(SHORT, tmp_path, monkeypatch)
    made.card.set("no_memory", 1)
    with pytest.raises(Stop, match="memory for a tensor"):
        made.run()


@pytest.mark.parametrize(("name", "value", "why"), [("devices", 0, "there is no GPU"), ("major", 7, "the GPU is too old: sm_70")])
def test_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int, why: str) -> None:
    made = Made("fn main() { print(sum[i < 9] f32(i)) }", tmp_path, monkeypatch)
    made.card.set(name, value)
    with pytest.raises(RuntimeStop, match=why) as caught:
        made.run()
    assert caught.value.kind == "device"


def test_what_users_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a driver, and without the tools: a code, and what there is to do."""
    monkeypatch.setattr(device, "LIBRARY", "libnothing.so.1")
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
