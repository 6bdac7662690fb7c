"""The README shows what the compiler makes of a program: its blocks are what `tlc` prints today (`--bless` writes them)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tlc.driver import cli

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- ([\w ]+) -->\n```\n)(.*?)(```\n)", re.DOTALL)


def test_the_blocks_are_up_to_date(bless: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")

    def tlc(*args: str) -> str:
        status = cli.main(args)
        out, err = capsys.readouterr()
        assert status == 0, err
        return out.lstrip("\n")

    def fresh(block: re.Match[str]) -> str:
        what, _, function = block[2].partition(" ")
        if what == "source":
            body = Path("programs/layer.tl").read_text(encoding="utf-8")
        elif what == "output":
            body = tlc("programs/layer.tl")
        else:
            body = tlc("emit", what, "programs/layer.tl", "--fn", function)
        return block[1] + body + block[4]

    wanted = BLOCK.sub(fresh, text)
    if bless:
        readme.write_text(wanted, encoding="utf-8")
    assert text == wanted or bless, "run: python -m pytest tests/unit/test_readme.py --bless"


def test_every_stage_shown_is_a_stage() -> None:
    blocks = [name.split()[0] for _, name, *_ in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert len(blocks) >= 6
    assert set(blocks) - {"source", "output"} <= set(cli.STAGES)
