"""The programs of `benchmarks/scalar.py` give what C gives, on every host."""

from __future__ import annotations

import importlib.util
import math
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tlc.driver.pipeline import hosts

# Worked out by the programs in C and by numba.
RESULTS = {
    "nbody": -0.16909656666614964, "spectral_norm": 1.2742241392519493, "fannkuch": 8629030, "mandelbrot": 11517349, "sieve": 664579,
    "collatz": 230631443, "fib": 9227465, "matmul": 20249775, "insertion_sort": 413439, "edit_distance": 1481, "histogram": 267247,
    "hash": 3554183413,
}  # fmt: skip


@pytest.fixture(scope="module")
def scalar() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "scalar.py"
    spec = importlib.util.spec_from_file_location("scalar_benchmark", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_every_program_has_its_result(scalar: ModuleType) -> None:
    assert set(scalar.PROGRAMS) == set(RESULTS)
    for name in RESULTS:
        for ending in ("tl", "c", "py"):
            assert (scalar.FOLDER / f"{name}.{ending}").exists()


@pytest.mark.parametrize("host", hosts())
@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str, host: str, scalar: ModuleType) -> None:
    result, seconds = scalar.compile_tl(name, host).turn()
    assert math.isclose(result, RESULTS[name], rel_tol=1e-12)
    assert seconds > 0


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", RESULTS)
def test_results_of_c(name: str, scalar: ModuleType, tmp_path: Path) -> None:
    result, _ = scalar.compile_c(name, ("-O1",), tmp_path)()
    assert math.isclose(result, RESULTS[name], rel_tol=1e-12)
