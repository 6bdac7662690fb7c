"""Machine IR that somebody wrote badly: text with words lost, doubled, swapped and replaced is refused with a place, or by the verifier, or
runs in bounds. Nothing else may be raised.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from mir_run import ENTRY, context

from tlc.backends.x86.ops import ROWS, TARGET
from tlc.frontend.diagnostics import CompileError, InternalError
from tlc.regalloc.allocate import allocate
from tlc.regalloc.interp import run
from tlc.regalloc.text import parse_module, print_module
from tlc.regalloc.verify import verify_module

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "mir").glob("*.mir"))
WORD = re.compile(r"\s+|%?[\w.]+|@[\w.]+|->|.", re.DOTALL)
OTHERS = ["%0", "rax", "in", "any", "late", "@rbx", "@slot0", "64", "8", "-1", "0x7fffffffffffffff", "{", "}", "[", "->", "context", "incoming", "None"]


def kind(word: str) -> str:
    return re.sub(r"\d+", "0", re.sub(r"[a-z_]+", "a", word)) if word[0] != "%" else "%"


def mutated(text: str, rng: random.Random) -> str:
    words = WORD.findall("".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")))
    for _ in range(rng.randrange(1, 4)):
        k = rng.randrange(len(words))
        match rng.randrange(9):
            case 0:
                del words[k]
            case 1:
                words.insert(k, words[rng.randrange(len(words))])
            case 2:
                j = rng.randrange(len(words))
                words[k], words[j] = words[j], words[k]
            case 3:
                words[k] = rng.choice([*OTHERS, rng.choice(list(ROWS)) + ".64", rng.choice(words)])
            case _:  # something of the same kind
                k = rng.choice([j for j, w in enumerate(words) if w.strip()])
                words[k] = rng.choice([w for w in words if kind(w) == kind(words[k])])
    return "".join(words)


def outcome(text: str, registers: str) -> str:
    try:
        module = parse_module(text, TARGET)
    except CompileError as e:
        (d,) = e.diagnostics
        assert 0 <= d.span.start <= d.span.end <= len(text)
        return "text"
    try:
        verify_module(module, TARGET)
        assert print_module(parse_module(print_module(module, TARGET), TARGET), TARGET) == print_module(module, TARGET)
        if ENTRY not in module.functions:
            return "no entry"
        if registers and not any(f.allocated for f in module.functions.values()):
            for f in module.functions.values():
                allocate(f, TARGET, TARGET.few if registers == "few" else TARGET.env, verify=True)
        run(module, TARGET, ENTRY, context(), {"labs": lambda machine, registers: {"rax": 0}}, limit=20_000)
    except InternalError:
        return "refused"
    return "ran"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_bad_text_is_refused_or_runs_in_bounds(path: Path) -> None:
    rng = random.Random(path.stem)
    found = [outcome(mutated(path.read_text(), rng), rng.choice(["", "all", "few"])) for _ in range(150)]
    assert "text" in found
    assert {"refused", "ran"} & set(found)
