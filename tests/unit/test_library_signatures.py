"""Signatures of the standard library are read when somebody asks for them, so here they all are: each is right, and none is read unasked."""

from __future__ import annotations

import pytest

from tlc.frontend import modules
from tlc.frontend.check import declare
from tlc.frontend.check.scope import FunctionDecl
from tlc.frontend.check.session import Session
from tlc.frontend.parser import parse
from tlc.frontend.source import Source


def session(text: str) -> Session:
    return Session(parse(Source("x.tl", text)))


@pytest.mark.parametrize("name", modules.library_names())
def test_every_signature_is_right(name: str) -> None:
    found = session("")
    scope = found.library(name)
    assert scope is not None
    functions = [e for e in scope.names.values() if isinstance(e, FunctionDecl)]
    assert [f.name for f in functions if f.signature is None] == []
    assert found.diagnostics == []


def test_only_those_are_read_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    usual = declare._signature
    monkeypatch.setattr(declare, "_signature", lambda s, f: (read.append(f.name), usual(s, f))[1])
    session("use nn\nfn f(x: f32[n]) -> f32[n] = relu(x)\nfn g(l: nn.Linear(2, n)) -> f32[n] = nn.linear(l, [1.0, 2.0])").program()
    assert read[:2] == ["f", "g"]
    assert "nn.linear" in read
    assert "nn.attention" not in read
