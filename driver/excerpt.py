"""One function out of the text of a stage, for `tlc emit STAGE prog.tl --fn NAME`.

In every text form but C a definition begins at the left margin with its keyword and its name, and goes on until the next one.
"""

from __future__ import annotations

import re

_BEGIN = re.compile(r"^(?=(?:fn|struct|const|func|asm|kernel|graph|define|declare)\b|#)", re.MULTILINE)
_NAME = re.compile(r'(?:(?:func|asm|define)\b[^@\n]*@|(?:fn|kernel|graph) +)(?:"([^"]+)"|([\w.~]+(?:\[[^\]]*\])?))')


_C_NAME = re.compile(r"^(?:static )?(?:inline )?\w+ \**(\w+)\(", re.MULTILINE)


def definitions(text: str) -> list[tuple[str, str]]:
    """The name and the text of each function, kernel and graph, in order."""
    if text.startswith("/*"):  # C: a definition stands between empty lines, comments before it
        return [(head[1], chunk) for chunk in text.split("\n\n") if (head := _C_NAME.search(chunk))]
    chunks = [chunk.strip("\n") for chunk in _BEGIN.split(text)]
    return [(head[1] or head[2], chunk) for chunk in chunks if (head := _NAME.match(chunk))]


def excerpt(text: str, name: str) -> str:
    """The definitions that belong to `name`: itself, its instances (`relu[f32]`), its graphs (`main.entry`). Empty if there are none."""
    return "\n\n".join(chunk for found, chunk in definitions(text) if _belongs(found, name))


def _belongs(found: str, name: str) -> bool:
    plain = found.removeprefix("f.").removeprefix("k.")  # as LLVM IR names functions and kernels
    return name in (found, plain, plain.partition("[")[0]) or plain.startswith(f"{name}.")
