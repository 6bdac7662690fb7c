"""The page docs/errors.md, made from the catalogue: `python -m tlc.driver.error_index > docs/errors.md`."""

from __future__ import annotations

from tlc.frontend.errors import ERRORS

SECTIONS = {
    "E01": "Lexing and parsing",
    "E02": "Names and modules",
    "E03": "Types, shapes, dimensions",
    "E04": "Calls, lifting, generics",
    "E05": "Statements and mutation",
    "E06": "Derivatives",
    "E07": "Keys and random numbers",
    "E08": "`main` and its flags",
    "E09": "Not supported yet",
    "E10": "Texts of intermediate forms",
    "R0": "Stops at run time",
    "W0": "Warnings",
}


def page() -> str:
    """The whole page: a section for each family of codes, a code with its cause, a program that shows it, and the mend."""
    lines = [
        "# Errors",
        "",
        "Every code that `tlc` gives, with a program that shows it and one that is right. `tlc explain CODE` prints an entry.",
        "This page is made from `frontend/errors.py`; a test compares them and compiles the programs.",
    ]
    for prefix, title in SECTIONS.items():
        rows = [row for code, row in sorted(ERRORS.items()) if code.startswith(prefix)]
        if rows:
            lines += ["", f"## {title}"]
        for row in rows:
            lines += ["", f"### {row.code}: {row.title}", "", row.cause]
            for text in (row.bad, row.mend):
                if text:
                    lines += ["", "```", text.rstrip("\n") if len(text) < 400 else text[:60].rstrip() + " ...", "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
