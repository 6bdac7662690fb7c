"""`tlc doc`, and the page of the standard library."""

from __future__ import annotations

from pathlib import Path

import pytest

from tlc.driver import cli, documentation, library_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "standard-library.md"


def tlc(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert cli.main(["doc", *words]) == status
    out, err = capsys.readouterr()
    return err if status else out


def test_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    text = tlc(capsys, "nn.nll")
    assert text == (
        "fn nll[T: float](log_probs: T[n], label: i64) -> T\n"
        "in nn, with `use nn`\n\n"
        "Minus `log_probs[label]`, for logarithms of probabilities.\n\n"
        "    >>> nn.nll([-0.5, -1.0], 1)\n"
        "    1.0\n"
    )
    assert tlc(capsys, "nll") == text  # without its module, where no other has it
    assert "with `use" not in tlc(capsys, "softmax")
    assert tlc(capsys, "sum").startswith("sum(x, axis = k)\n")


def test_a_struct_has_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert tlc(capsys, "nn.Linear").startswith("struct Linear(I, O) {\n  w: f32[I, O],\n  b: f32[O],\n}\n")


def test_modules(capsys: pytest.CaptureFixture[str]) -> None:
    text = tlc(capsys)
    assert all(f"\n  {name} " in text for name in documentation.names())
    module = tlc(capsys, "optim")
    assert module.startswith("optim\n\nOptimizers.") and "fn sgd[T: float](p: T, g: T, lr: T) -> T\n    One step of" in module
    assert "fn adam_rule" not in module  # no documentation: not for programs


def test_a_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "model.tl"
    path.write_text("## Twice as much.\nfn twice(x: f32) -> f32 = 2.0 * x\n\nfn other(\n  x: f32,\n  y: f32\n) -> f32 { x + y }\n", encoding="utf-8")
    assert tlc(capsys, str(path)) == f"{path}\n\nfn twice(x: f32) -> f32\n    Twice as much.\n\nfn other(x: f32, y: f32) -> f32\n"
    assert tlc(capsys, str(path), "twice") == "fn twice(x: f32) -> f32\n\nTwice as much.\n"
    assert f"`{path}` has no `twise`; did you mean `twice`?" in tlc(capsys, str(path), "twise", status=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sofmax"], "nothing is called `sofmax`; did you mean `softmax`?"),
        (["nn.lineer"], "`nn` has no `lineer`; did you mean `linear`?"),
        (["zzzzzz"], "nothing is called `zzzzzz`; `tlc doc` lists the modules"),
        (["nn", "linear"], "`tlc doc` takes one name, or a file and a name in it"),
        (["gone.tl"], "cannot read `gone.tl`"),
    ],
)
def test_what_there_is_not(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert message in tlc(capsys, *words, status=2)


def test_a_terminal_shows_code_in_colour(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tlc.driver.doc_command._terminal", lambda: True)
    assert "\x1b[1mfn nll" in tlc(capsys, "nn.nll")


def test_the_page_is_up_to_date(bless: bool) -> None:
    if bless:
        PAGE.write_text(library_page.page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == library_page.page(), "python -m tlc.driver.library_page > docs/standard-library.md"
