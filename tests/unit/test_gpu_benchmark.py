"""`benchmarks/gpu.py` runs all but the GPU here: small sizes, emulated. All rows: `python -m pytest -m slow tests/unit/test_gpu_benchmark.py`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def gpu() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("gpu")
    finally:
        sys.path.remove(str(FOLDER))


def test_every_program_has_its_rows(gpu: ModuleType) -> None:
    for tiny in (False, True):
        assert {row.program for row in gpu.rows(tiny).values()} == {p.stem for p in (FOLDER / "gpu_tensor").glob("*.tl")}
        assert all((FOLDER / f"{t.program}.tl").exists() for t in gpu.trainings(tiny).values())
    assert {f"product {elem} {n}" for elem in ("f32", "bf16") for n in (1024, 2048, 4096, 8192)} <= set(gpu.rows(tiny=False))


def test_what_is_compared(gpu: ModuleType) -> None:
    a, b = (x.astype(np.float64) for x in gpu.product_row(40).operands())
    assert np.allclose(gpu.product_shown(a, b), gpu.shown([a @ b]), rtol=1e-12)
    for x, nearest in [(1.0, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (-(1 + 2**-7), -(1 + 2**-7))]:
        assert gpu.bf16(np.array([x]))[0] == nearest


def run(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """Raises `SystemExit` where results are wrong."""
    monkeypatch.setenv("TLC_DATA", "")
    monkeypatch.setattr(gpu, "torch_for", lambda device: None)
    gpu.main(["--tiny", "--device", "cuda-emulated", "--samples", "1", "--rows", pattern])


def test_a_row(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(gpu, monkeypatch, "softmax*")
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["tlc,", "ms"] and row.startswith("softmax 24 x 100 ") and "GB/s" in row


@pytest.mark.slow
def test_every_row(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    if "slow" not in request.config.getoption("markexpr"):
        pytest.skip("some minutes")
    run(gpu, monkeypatch, "*")
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(gpu.rows(tiny=True)) + len(gpu.trainings(tiny=True))


@pytest.mark.skipif(find_library("cuda") is not None, reason="there may be a GPU")
def test_without_a_gpu(gpu: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends with 2 and says what is missing."""
    with pytest.raises(SystemExit) as ended:
        gpu.main(["--tiny", "--rows", "softmax*"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and any(f"error[{code}]" in said for code in gpu.NO_GPU)
