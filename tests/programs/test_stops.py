"""Every stop at run time of the catalogue: its program stops with that code, compiled and interpreted, and its mend does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tlc.driver import cli, pipeline
from tlc.driver.report import STOPS
from tlc.frontend.errors import ERRORS

DEVICES = {"R0017", "R0018", "R0019"}  # of a GPU: see tests/unit/test_cuda_device.py
CODES = [code for code in ERRORS if code.startswith("R") and code not in DEVICES]
NO_PLACE = {"R0011", "R0012"}  # the interpreter does not know where; the standard library asked
FLAGS = {"R0016": ["--trap-nan"]}  # what stops with a flag only

MODES = [["-O2", "--host", host] for host in pipeline.hosts()] + [["--interp"]]


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
@pytest.mark.parametrize("code", CODES)
def test_stop(code: str, mode: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    row = ERRORS[code]
    path = tmp_path / "x.tl"
    path.write_text(row.bad)
    mode = [*mode, *FLAGS.get(code, ())]
    status = cli.main([*mode, str(path)])
    err = capfd.readouterr().err
    assert status == 1, err
    assert f"error[{code}]: " in err
    if code not in NO_PLACE:
        assert f"{path}:" in err
    path.write_text(row.mend)
    status = cli.main([*mode, str(path)])
    assert status == 0, capfd.readouterr().err


def test_every_kind_has_a_code() -> None:
    assert sorted(STOPS.values()) == sorted([*CODES, *DEVICES])
