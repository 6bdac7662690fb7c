"""Kernels for a GPU as numba.cuda: in the simulator they give the bits of the interpreter, and for a GPU they compile."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from c_run import numbers, same, stored
from cuda_sim import Job, needs_simulator, simulate
from golden_runner import Case, cases
from ssa_services import Recorder
from test_c_kernel import results_of

from tlc.backends.cuda import ptx, scalar
from tlc.backends.cuda.emit import Function, Unit, dimensions, emit
from tlc.driver import pipeline, stage_texts
from tlc.driver.options import Options
from tlc.frontend.narrow_reals import from_memory
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.ssa.interp import Interpreter
from tlc.tensor.kernel.interp import run
from tlc.tensor.kernel.ir import Buffer, For, Kernel, Kind, Load, Stmt, Store, Var, const, op
from tlc.tensor.kernel.scalars import value_of
from tlc.tensor.kernel.text import parse_kernels
from tlc.tensor.kernel.verify import verify

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "cuda"
THREADS = 64


def arguments(kernel: Kernel, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """As a launch passes them."""
    out = [stored(o, b.elem).reshape(-1) for o, b in zip(outputs, kernel.outputs, strict=True)]
    for p, v in zip(kernel.inputs, inputs, strict=True):
        bits = stored(v, p.elem)
        bits = bits.view({Elem.F16: np.uint16, Elem.BOOL: np.uint8}.get(p.elem, bits.dtype))
        out.append(bits.reshape(-1) if isinstance(p, Buffer) else bits[()].item())
    return [a.view({np.dtype(np.float16): np.uint16, np.dtype(bool): np.uint8}.get(a.dtype, a.dtype)) if isinstance(a, np.ndarray) else a for a in out]


def job(unit: Unit, f: Function, scalars: Mapping[str, Any], given: list[Any]) -> Job:
    return Job(unit.text, f.name, dimensions(f, scalars), f.grid.threads, given, f.dynamic)


def value(bits: Any, b: Buffer, shape: tuple[int, ...]) -> Any:
    cells = from_memory(bits) if b.elem is Elem.BF16 else np.asarray(bits).view(DTYPES[b.elem])
    return cells.reshape(shape)


# ---------------------------------------------------------------- every op


def op_kernels() -> list[Kernel]:
    """For each element type a kernel with every op that takes it: `y3[t] = op(a[t], ..)`."""
    out = []
    for elem in Elem:
        if elem is Elem.STR:
            continue
        t, n = Var("t"), const(THREADS)
        a, b, c, cond = (Buffer(name, e, (n,)) for name, e in (("a", elem), ("b", elem), ("c", elem), ("cond", Elem.BOOL)))
        body: list[Stmt] = []
        outputs: list[Buffer] = []
        for name, row in SCALAR_OPS.items():
            if elem not in row.takes or row.elementary:
                continue
            for result in results_of(name, elem) if row.gives == "type" else [None]:
                operands = (cond, a, b) if name == "select" else (a, b, c)[: row.arity]
                e = op(name, *(Load(x, (t,)) for x in operands), elem=result)
                outputs.append(Buffer(f"{name}_{result or elem}_{len(outputs)}", e.elem, (n,)))
                body.append(Store(outputs[-1], (t,), e))
        threads = For(t, const(0), n, tuple(body), Kind.THREAD)
        kernel = Kernel(f"ops_{elem}", tuple(outputs), (a, b, c, cond), (For(Var("i"), const(0), const(1), (threads,), Kind.BLOCK),))
        verify(kernel)
        out.append(kernel)
    return out


def test_the_table_is_total() -> None:
    assert set(scalar.FORMS) == set(SCALAR_OPS)


@needs_simulator
def test_every_op_on_every_type(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    kernels = op_kernels()
    unit = emit({k.name: k for k in kernels})
    jobs, inputs = [], []
    for f in unit.functions:
        given = [numbers(random, p.elem, (THREADS,)) for p in f.kernel.inputs]
        results = [np.zeros(THREADS, DTYPES[b.elem]) for b in f.kernel.outputs]
        inputs.append(given)
        jobs.append(job(unit, f, {}, arguments(f.kernel, results, given)))
    checked = 0
    with np.errstate(all="ignore"):
        for f, given, after in zip(unit.functions, inputs, simulate(jobs, tmp_path), strict=True):
            loaded = {p.name: v for p, v in zip(f.kernel.inputs, given, strict=True)}
            for b, bits in zip(f.kernel.outputs, after, strict=False):
                name = b.name.rsplit("_", 2)[0]
                operands = ["cond", "a", "b"] if name == "select" else ["a", "b", "c"][: SCALAR_OPS[name].arity]
                meaning = np.asarray(SCALAR_OPS[name].evaluate(b.elem, *(loaded[x] for x in operands)))
                assert same(value(bits, b, (THREADS,)), meaning), (f.name, b.name)
                checked += 1
    assert checked > 200


# ---------------------------------------------------------------- kernels

SIZES: dict[str, dict[str, int]] = {
    "map": {"n": 3, "m": 37}, "vectors": {"n": 11}, "softmax": {"n": 2, "m": 100}, "gather": {"n": 4, "m": 5}, "pad": {"n": 50},
    "narrow": {"s": 3, "flag": 1}, "scatter": {"n": 5, "m": 3}, "product_small": {}, "shared": {},
}  # fmt: skip


def kernels_of(name: str) -> list[Kernel]:
    kernels = list(parse_kernels((GOLDEN / f"{name}.tk").read_text(encoding="utf-8").partition("\n----\n")[0]).values())
    for kernel in kernels:
        verify(kernel)
    return kernels


def kernel_of(name: str) -> Kernel:
    (kernel,) = kernels_of(name)
    return kernel


@pytest.mark.parametrize("case", cases("golden/cuda", "*.tk"), ids=str)
def test_text(case: Case, bless: bool) -> None:
    case.check(lambda source: emit(parse_kernels(source.text, source.path), case.why).text, bless)


def shapes(kernel: Kernel, scalars: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    buffers = kernel.buffers
    return {b.name: tuple(int(value_of(e, scalars)) for e in b.shape) for b in buffers}


@needs_simulator
def test_kernels_in_the_simulator(tmp_path: Path) -> None:
    """Launches one after the other, on the same arrays; every result has the bits of the interpreter."""
    random = np.random.default_rng(1)
    jobs: list[Job] = []
    wanted = []
    for name, kernel in ((n, k) for n in SIZES for k in kernels_of(n)):
        sizes = SIZES[name]
        scalars = {p.name: DTYPES[p.elem].type(sizes.get(p.name, 2)) for p in kernel.inputs if isinstance(p, Var)}
        shape = shapes(kernel, scalars)
        inputs = [_input(random, p, shape[p.name], sizes) if isinstance(p, Buffer) else scalars[p.name] for p in kernel.inputs]
        outputs = [np.zeros(shape[b.name], DTYPES[b.elem]) for b in kernel.outputs]
        unit = emit({kernel.name: kernel}, wide=name == "gather")
        given = arguments(kernel, outputs, inputs)
        jobs += [job(unit, f, scalars, given) for f in unit.functions]
        with np.errstate(all="ignore"):
            run(kernel, outputs, inputs, races=True)
        wanted.append((kernel, outputs, len(jobs) - 1))
    after = simulate(jobs, tmp_path)
    for kernel, outputs, k in wanted:
        for b, mine, bits in zip(kernel.outputs, outputs, after[k], strict=False):
            assert same(value(bits, b, mine.shape), mine), (kernel.name, b.name)


APPLIED = """
fn steps(n: i64, most: i64, x: f32[m]) -> f32 {
  var k = 0
  var at = n
  var y = 1.0
  while at > 1 and k < most {
    if at % 2 == 0 { at = at // 2 } else { at = 3 * at + 1 }
    y = y * 0.5 + f32(k % 3)
    k += 1
  }
  if k > 5 { -y } else { y }
}

fn main(count: i64 = 40) {
  let x = for[i < 3] f32(i)
  print(for[i < count] steps(i, 9, x))
}
"""


@needs_simulator
def test_functions_that_kernels_apply(tmp_path: Path) -> None:
    program = pipeline.front(Source("prog.tl", APPLIED))
    tensors = stage_texts.tensors_for_gpu(program, Options(flags={"count": 40}))
    unit = emit(tensors.kernels, module=tensors.module)
    (f,) = (f for f in unit.functions if f.kernel.applied)
    assert "while at > 1 and k < 9:" in unit.text
    (y,) = outputs = [np.zeros(40, np.float32)]
    inputs = [np.arange(3, dtype=np.float32) if isinstance(p, Buffer) else 40 for p in f.kernel.inputs]
    ((bits, *_),) = simulate([job(unit, f, {"count": 40}, arguments(f.kernel, outputs, inputs))], tmp_path)
    run(f.kernel, outputs, inputs, lambda name, args: Interpreter(tensors.module, Recorder()).call(name, args)[0])
    assert same(bits, y) and len(set(y)) >= 10
    if not ptx.missing():
        assert ".visible .entry" in ptx.compile_unit(unit, 80)[0]


def _input(random: np.random.Generator, b: Buffer, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Any:
    if b.name == "at":
        return random.integers(0, min(sizes.values()), shape)
    return numbers(random, b.elem, shape)


# ---------------------------------------------------------------- machine code


def tool(name: str) -> str | None:
    """One of NVIDIA's programs, where it is on the path or installed as a package."""
    spec = find_spec("nvidia")
    places = [Path(place) / "cu13" / "bin" for place in (spec.submodule_search_locations or [] if spec else [])]
    return which(name) or next((str(p / name) for p in places if (p / name).exists()), None)


needs_compiler = pytest.mark.skipif(bool(ptx.missing()), reason="the extra `cuda` is not installed")
needs_assembler = pytest.mark.skipif(
    bool(ptx.missing()) or tool("ptxas") is None or tool("nvdisasm") is None, reason="ptxas and nvdisasm (the extra `cuda-tools`) are not there"
)


@needs_compiler
@pytest.mark.parametrize("sm", [80, 90])
def test_nothing_contracts(sm: int) -> None:
    """What the kernel multiplies is rounded, and each fused multiply-add is one of its own."""
    (text,) = ptx.compile_unit(emit({"softmax": kernel_of("softmax")}), sm)
    assert f".target sm_{sm}\n" in text and ".visible .entry softmax(" in text
    assert not re.findall(r"\b(?:mul|mad)\.f32", text), "a product that may contract"
    assert "mul.rn.f32" in text and text.count("shfl.sync") == 11 and ".maxntid 64, 1, 1" in text
    assert text.count("fma.rn.f32") >= 1


@needs_compiler
def test_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unit = emit({"blur": kernel_of("pad")})
    first = ptx.compile_unit(unit, 80)
    monkeypatch.setattr(ptx, "_compile", lambda *_: pytest.fail("compiled again"))
    assert ptx.compile_unit(emit({"blur": kernel_of("pad")}, "another title"), 80) == first


@needs_compiler
@pytest.mark.parametrize(("sm", "version"), [(80, "7.8"), (90, "7.8"), (100, "9.0")])
def test_drivers_older_than_the_compiler(sm: int, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They refuse PTX of a version that they do not know. (That the text is of this version, the assembler says in other tests.)"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (text,) = ptx.compile_unit(emit({"blur": kernel_of("pad")}), sm)
    assert re.findall(r"^\.version (.*)$", text, re.MULTILINE) == [version] and f".target sm_{sm}" in text


def assembled(text: str, sm: int, folder: Path) -> tuple[str, list[str]]:
    """What the assembler says of PTX, and the instructions but those that never run (`@!PT`, as before copies to shared memory)."""
    source, binary = folder / "k.ptx", folder / "k.cubin"
    source.write_text(text)
    said = subprocess.run([str(tool("ptxas")), "-v", "-O3", f"-arch=sm_{sm}", source, "-o", binary], capture_output=True, text=True, check=True)
    code = subprocess.run([str(tool("nvdisasm")), binary], capture_output=True, text=True, check=True).stdout
    return said.stderr, [m[1] for m in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(?!@!PT )(?:@!?\w+ +)?([A-Z][\w.]*)", code)]


@needs_assembler
@pytest.mark.parametrize("sm", [80, 90])
def test_the_product_in_machine_code(sm: int, tmp_path: Path) -> None:
    """64 multiply-adds for each k, eight k in a stage; shared and global memory by accesses of 16 bytes; nothing spilled."""
    (text,) = ptx.compile_unit(emit({"product": kernel_of("product")}), sm)
    said, code = assembled(text, sm, tmp_path)
    assert "0 bytes spill stores, 0 bytes spill loads" in said
    registers = re.search(r"Used (\d+) registers", said)
    assert registers and int(registers[1]) <= 255
    count = Counter(code)
    assert count["FFMA"] == 512
    assert count["LDS.128"] == 32 and count["LDG.E.128"] == 8 and count["STG.E.128"] == 16
    assert not count["LDS"] and not count["LDG.E"] and len(code) < 900


@needs_assembler
def test_sums_of_products_stay_two_instructions(tmp_path: Path) -> None:
    """`x * a + b`: the product is rounded, by the assembler too."""
    (text,) = ptx.compile_unit(emit({"scale": kernel_of("map")}), 90)
    count = Counter(assembled(text, 90, tmp_path)[1])
    assert count["FMUL"] == 1 and count["FADD"] == 1 and not count["FFMA"]


ATTENTION = """
fn attention(q: f32[t, d], k: f32[t, d], v: f32[t, d]) -> f32[t, d] =
  softmax(for[i, j] if j <= i { (sum[c] q[i, c] * k[j, c]) / sqrt(f32(d)) } else { -inf }) @ v
fn loss(q: f32[b, t, d], k: f32[b, t, d], v: f32[b, t, d], w: f32[b, t, d]) -> f32 = sum(w * attention(q, k, v))

fn main(b: i64 = 16, t: i64 = 1024) {
  let x = for[h < b, i < t, c < 64] sin(f32(h + i * 7 + c))
  print(attention(x, x, x))
  let (q, k, v) = grad(loss)(x, x, x, x, wrt = (q, k, v))
  print(q, k, v)
}
"""


@needs_assembler
def test_attention_in_machine_code(tmp_path: Path) -> None:
    """Nothing is spilled; operands come from shared memory by 16 bytes, 64 multiply-adds for ten accesses or eight; more than 48 KB of
    it are asked for. The grid of columns has room for two tiles: one is copied past the registers while the other is read.
    """
    program = pipeline.front(Source("prog.tl", ATTENTION))
    tensors = stage_texts.tensors_for_gpu(program, Options(flags={"b": 16, "t": 1024}))
    unit = emit({name: k for name, k in tensors.kernels.items() if name.startswith("blocks")})
    assert len(unit.functions) == 3 and all(f.dynamic > 48 << 10 for f in unit.functions)
    copied = []
    for text in ptx.compile_unit(unit, 90):
        said, code = assembled(text, 90, tmp_path)
        count = Counter(code)
        copied.append(count["LDGSTS.E.BYPASS.128"])
        assert "0 bytes spill stores, 0 bytes spill loads" in said
        assert count["LDS.128"] >= 24 and count["STS.128"] >= 10 and count["LDG.E.128"] + copied[-1] >= 8 and count["STG.E.128"] >= 8
        assert not count["LDS"] and not count["STS"] and count["FFMA"] > 6 * count["LDS.128"]
    assert copied == [0, 0, 8]
