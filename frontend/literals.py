"""What numbers and pieces of strings stand for."""

from __future__ import annotations

import re
from typing import Protocol

from tlc.frontend.source import Span
from tlc.frontend.tokens import Token

ELEMENT_SUFFIXES = ("i8", "i32", "i64", "u8", "u32", "f16", "bf16", "f32", "f64")

_NUMBER = re.compile(
    r"(?P<base>0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+)(?P<base_suffix>\w*)"
    r"|(?P<digits>[0-9][0-9_]*)(?P<fraction>\.[0-9][0-9_]*)?(?P<exponent>[eE][+-]?[0-9][0-9_]*)?(?P<suffix>\w*)"
)

_SIMPLE_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b",
    "\\": "\\", '"': '"', "'": "'", "{": "{", "}": "}",
}  # fmt: skip


class Report(Protocol):
    def __call__(self, code: str, message: str, span: Span, label: str = "", help: str = "") -> None: ...


def read_number(token: Token, report: Report) -> None:
    """Set the value and the suffix of a number: `literal = (value, suffix)`."""
    match = _NUMBER.fullmatch(token.text)
    token.literal = (0, "")
    if match is None:
        report("E0108", f"`{token.text}` is not a number", token.span)
        return
    suffix = match["base_suffix"] or match["suffix"] or ""
    if token.text.lower() in ("0x", "0b", "0o"):
        report("E0108", f"`{token.text}` has no digits", token.span)
        return
    if suffix and suffix not in ELEMENT_SUFFIXES:
        report("E0108", f"unknown suffix `{suffix}` of a number", token.span, help=f"the suffixes are {' '.join(ELEMENT_SUFFIXES)}")
        suffix = ""
    if len(token.text) > 400:
        report("E0108", "a number of more than 400 characters", token.span)
        return
    real_text = match["fraction"] or match["exponent"]
    if match["base"]:
        digits = match["base"].replace("_", "")
        if len(digits) == 2:  # `0x_`
            report("E0108", f"`{token.text}` has no digits", token.span)
            return
        value: int | float = int(digits, 0)
    elif real_text:
        value = float(
            match["digits"].replace("_", "") + (match["fraction"] or "").replace("_", "") + (match["exponent"] or "").replace("_", "")
        )
    else:
        value = int(match["digits"].replace("_", ""))
    if real_text and suffix and "f" not in suffix:
        report("E0108", f"a real number cannot be an `{suffix}`", token.span, help=f"convert it: `{suffix}({token.text[: -len(suffix)]})`")
    elif "f" in suffix:
        value = float(value)
    if value == float("inf"):
        report("E0108", "a number too large for every real type", token.span, help="infinity is written `inf`")
    token.literal = (value, suffix)


def read_text(token: Token, report: Report) -> None:
    """Set what a piece of a string stands for."""
    text = token.text
    if text in ("{{", "}}"):
        token.literal = text[0]
    elif text[0] != "\\":
        token.literal = text
    elif text[1] in "xuU" and len(text) > 2:
        code = int(text[2:], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            report("E0107", f"`{text}` is not a character", token.span)
            code = 0xFFFD
        token.literal = chr(code)
    elif text[1] in _SIMPLE_ESCAPES:
        token.literal = _SIMPLE_ESCAPES[text[1]]
    else:
        report("E0107", f"unknown escape `{text}`", token.span, help="a backslash is written `\\\\`")
        token.literal = text[1:]
