"""What becomes of the kernels of whole programs on a GPU: each assembles for both architectures, fits there, and spills nothing.

Where NVIDIA's tools are installed: some minutes, `python -m pytest -m slow tests/unit/test_cuda_machine_code.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from test_cuda_emit import assembled, needs_assembler

from tlc.backends.cuda import ptx
from tlc.backends.cuda.emit import emit
from tlc.driver import pipeline, stage_texts
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.tensor.kernel.ir import Declare, Kernel, Space, statements

ROOT = Path(__file__).resolve().parents[2]
REGISTERS = 65536  # of a multiprocessor: a block must do with them
PROGRAMS: dict[str, dict[str, int]] = {"mnist_mlp": {}, "mnist_cnn": {}, "gpt": {"layers": 1}}


def _has_tiles(kernel: Kernel) -> bool:
    """Whether operands go through shared memory. (What multiplies each row of a matrix once, by one vector, reads it where it lies.)"""
    return any(isinstance(s, Declare) and s.buffer.space is Space.SHARED for s in statements(kernel.body))


@needs_assembler
@pytest.mark.slow
@pytest.mark.parametrize("sm", [80, 90])
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_kernel(program: str, sm: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Products by tiles compute with fused multiply-adds, load shared memory by pairs at least, and where a program's rows are multiples of four
    elements the larger ones load and store 16 bytes at once.
    """
    if "slow" not in request.config.getoption("markexpr"):
        pytest.skip("some minutes")
    path = ROOT / f"programs/{program}.tl"
    front = pipeline.front(Source(str(path), path.read_text(encoding="utf-8")))
    flags = {f.name: PROGRAMS[program].get(f.name, f.default) for f in front.flags if f.default is not None}
    tensors = stage_texts.tensors_for_gpu(front, Options(flags=flags))
    unit = emit(tensors.kernels, module=tensors.module)
    products = []
    for f, text in zip(unit.functions, ptx.compile_unit(unit, sm), strict=True):
        said, code = assembled(text, sm, tmp_path)
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said, f.name
        registers = re.search(r"Used (\d+) registers", said)
        assert registers and int(registers[1]) * f.grid.threads <= REGISTERS, f.name
        if f.name.startswith("product") and _has_tiles(f.kernel):
            products.append((f.name, Counter(code)))
    assert products
    for name, count in products:
        assert count["FFMA"] >= 16 and not count["LDS"] and count["LDS.64"] + count["LDS.128"], name
    if program == "gpt":
        assert any(c["LDS.128"] >= 16 and c["LDG.E.128"] >= 4 and c["STG.E.128"] >= 4 for _, c in products)
