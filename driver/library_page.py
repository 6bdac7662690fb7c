"""`docs/standard-library.md` from the `##` comments. To make it again: `python -m tlc.driver.library_page > docs/standard-library.md`."""

from __future__ import annotations

from tlc.driver import documentation as docs

_INTRODUCTION = """# The standard library

Every function in one line. `tlc doc NAME` prints the whole documentation of one, with examples; `tlc doc` lists the modules. What takes a
number applies to tensors and structs, and what takes a row to every row of a matrix: that is lifting, and no function says it.

The pages `builtins`, `prelude`, `activations` and `arrays` need no `use`; the others do (`use nn`, then `nn.linear`).
"""


def page() -> str:
    """The text of the page."""
    parts = [_INTRODUCTION]
    for name in docs.names():
        found = docs.page(name)
        assert found is not None
        parts.append(f"## {name}\n\n{' '.join(found.about.split())}\n")
        section = ""
        lines: list[str] = []
        for entry in found.entries:
            if entry.section != section:
                section = entry.section
                lines += [*([""] if lines else []), f"**{section[0].upper()}{section[1:]}**", ""]
            lines.append(f"- `{entry.line}`: {entry.about}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
