"""What the standard library's `extern fn`s stand for, one row each.

A function takes the arguments as Python values or arrays and gives a tuple of arrays or scalars, one for each tensor of
the declared result, of its element type. A failure is a `RuntimeStop`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tlc.backends.runtime.mnist import read_mnist
from tlc.backends.runtime.stop import RuntimeStop
from tlc.backends.runtime.texts import read_text

__all__ = ["EXTERNS", "RuntimeStop"]

# the name as the typed AST has it: module, dot, function
EXTERNS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "clock": lambda: (time.monotonic(),),  # () -> f64
    "data.read_mnist": read_mnist,  # (split: str) -> (u8[?n, 784], u8[?n])
    "data.read_text": read_text,  # (name: str) -> u8[?]
}
