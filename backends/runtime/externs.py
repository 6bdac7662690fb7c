"""What the standard library's `extern fn`s stand for, one row each.

A function takes the arguments as Python values or arrays and gives one array or scalar for each tensor of the declared result, of its
element type. An array that it is given lies in the program's memory and is read, not kept. A failure is a `RuntimeStop`. What a type
parameter stands for comes before the arguments, as the text of a layout (`leaves.py`).

A row names module and function, and the module is imported when a program calls it: most programs need none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any

# the name as the typed AST has it: module, dot, function
EXTERNS = {
    "clock": "externs.clock",  # () -> f64
    "data.read_mnist": "mnist.read_mnist",  # (split: str) -> (u8[?n, 784], u8[?n])
    "data.text": "texts.read_text",  # (name: str) -> u8[?]
    "data.npy": "arrays.npy",  # [T: any](path: str) -> T
    "data.csv": "arrays.table",  # (path: str, separator: str) -> f64[?, ?]
    "data.column": "arrays.column",  # (path: str, name: str, separator: str) -> f64[?]
    "io.save": "checkpoints.save",  # [P: any](value: P, path: str)
    "io.load": "checkpoints.load",  # [P: any](path: str, like: P) -> P
    "io.load_tensor": "checkpoints.load_tensor",  # [T: any](path: str, name: str) -> T
    "io.read": "files.read",  # (path: str) -> str
    "io.read_bytes": "files.read_bytes",  # (path: str) -> u8[?]
    "io.write": "files.write",  # (path: str, text: str)
    "io.write_bytes": "files.write_bytes",  # (path: str, content: u8[n])
    "io.append": "files.append",  # (path: str, text: str)
    "io.ensure_writable": "files.ensure_writable",  # (path: str)
    "io.exists": "files.exists",  # (path: str) -> bool
    "io.encode": "files.encode",  # (text: str) -> u8[?]
    "io.decode": "files.decode",  # (content: u8[n]) -> str
}

# Those that write to the terminal, or read from it, get the world before all else.
SPEAKING = {
    "put": "console.put",  # (text: str), for `print` with an `end`
    "io.read_line": "console.read_line",  # (prompt: str) -> (str, bool)
    "plot.ensure_drawable": "plots.ensure_drawable",  # (path: str)
    "plot.line": "plots.line",  # [T: num](y: T[n], path: str, title: str, x_label: str, y_label: str)
    "plot.lines": "plots.lines",  # [T: num](x: T[n], y: T[k, n], names: str, path: str, title: str, x_label: str, y_label: str)
    "plot.image": "plots.image",  # [T: num](x: T[h, w], path: str, title: str)
}


@cache
def extern(name: str) -> Callable[..., Iterable[Any] | None]:
    """The function of a row."""
    module, function = (EXTERNS.get(name) or SPEAKING[name]).split(".")
    found: Callable[..., Iterable[Any] | None] = getattr(import_module(f"tlc.backends.runtime.{module}"), function)
    return found


def clock() -> tuple[float]:
    """Seconds, of a clock that never goes back."""
    return (time.monotonic(),)
