"""Documents show what the compiler makes of programs: their blocks are what `tlc` prints today (`--bless` writes them).

A block stands behind a comment that says what it is, of which program, and of which function: `<!-- memory layer main -->`. `source` is the
program itself, from `programs/`; one that is not there is what the document says. `plan` is the comments of `memory`, `gpu` the kernels for a GPU.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tlc.driver import cli, pipeline

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- (\w+) (\w+)(?: (\w+))? -->\n```\n)(.*?)(```\n)", re.DOTALL)
DOCUMENTS = ("README.md", "docs/how-it-works.md")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_blocks_are_up_to_date(
    document: str, bless: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    (tmp_path / "programs").symlink_to(ROOT / "programs")
    monkeypatch.chdir(tmp_path)

    def tlc(*args: str) -> str:
        status = cli.main(["--registers", "all", *args])  # also where the tests run with few
        out, err = capsys.readouterr()
        assert status == 0, err
        return out.lstrip("\n")

    def fresh(block: re.Match[str]) -> str:
        _, what, name, function, body, _ = block.groups()
        program = Path(f"programs/{name}.tl")
        if not program.is_file():
            program = Path(f"{name}.tl")
        match what:
            case "source" if program.parent.name == "programs":
                body = program.read_text(encoding="utf-8")
            case "source":
                program.write_text(body, encoding="utf-8")
            case "output":
                body = tlc(str(program))
            case "asm" if "x86" not in pipeline.hosts():
                pass
            case "plan":
                lines = tlc("emit", "memory", str(program)).splitlines()
                body = "".join(f"{line}\n" for line in lines if line.lstrip().startswith("#"))
            case "gpu":
                body = tlc("--device", "cuda", "emit", "kernels", str(program), "--fn", function)
            case _:
                body = tlc("emit", what, str(program), "--fn", function)
        return block[1] + body + block[6]

    wanted = BLOCK.sub(fresh, text)
    if bless:
        path.write_text(wanted, encoding="utf-8")
    assert text == wanted or bless, "run: python -m pytest tests/unit/test_readme.py --bless"


@pytest.mark.parametrize(("document", "least"), [("README.md", 6), ("docs/how-it-works.md", 3)])
def test_every_stage_shown_is_a_stage(document: str, least: int) -> None:
    blocks = [what for _, what, *_ in BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))]
    assert len(blocks) >= least
    assert set(blocks) - {"source", "output", "plan", "gpu"} <= set(cli.STAGES)
