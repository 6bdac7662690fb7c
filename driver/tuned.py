"""What `tlc tune` found, kept on disk: for a kernel and a processor, the choice of knobs that is faster than the rules.

A file of the folder `tuned` of the cache holds one choice (`frontend/disk_cache.py` keeps each of them whole, whoever else writes). Its
name is a hash of the kernel as the rules make it, nameless, which has all extents that are known; of the processor; and of the versions
of this compiler and of LLVM. So a choice serves every program with that kernel. What cannot be read is no choice, and a value that a knob
does not have is not taken (`tensor/knobs.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from tlc.backends import cpu
from tlc.driver.cache import CHOICE, choices_folder, choices_stamp
from tlc.driver.flags import UsageError
from tlc.frontend import disk_cache
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import print_kernel
from tlc.tensor.knobs import Asked, ByRule, Choice, Choices, Value


class Tuned:
    """The folder of choices, for kernels on this processor."""

    def __init__(self) -> None:
        self.folder = choices_folder()
        self._is_empty = choices_stamp() is None

    def choice(self, kernel: Kernel, asked: Mapping[str, Asked]) -> Choice:
        """What was found for a kernel as the rules make it; nothing where nothing was."""
        if self._is_empty or not asked:
            return {}
        payload = disk_cache.read(self._path(kernel))
        return _choice(payload) if payload is not None else {}

    def keep(self, kernel: Kernel, choice: Choice) -> None:
        """Remember a choice in place of an earlier one; an empty one is what the rules do, so nothing is remembered."""
        path = self._path(kernel)
        if choice:
            disk_cache.write(path, json.dumps(choice).encode())
        else:
            with suppress(OSError):
                path.unlink()

    def _path(self, kernel: Kernel) -> Path:
        nameless = replace(kernel, name="", notes=())
        made_from = (*_versions(), cpu.name(), print_kernel(nameless))
        return self.folder / f"{hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]}{CHOICE}"


@cache
def _versions() -> tuple[str, str]:
    from importlib import metadata  # slow to load, and few programs have choices

    return metadata.version("tlc"), metadata.version("llvmlite")


def check_writable() -> None:
    """Complain before long work if no choice could be kept."""
    folder = choices_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"choices cannot be kept in `{folder}`: {(error.strerror or str(error)).lower()}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"choices cannot be kept in `{folder}`: it may not be written")


def choices(wanted: bool) -> Choices:
    """What was found on this processor, if it is wanted."""
    return Tuned() if wanted else ByRule()


def _choice(payload: bytes) -> Choice:
    """A choice from its text; nothing where it is none."""
    try:
        found = json.loads(payload)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    values = {name: _value(v) for name, v in found.items()}
    return {name: v for name, v in values.items() if v is not None}


def _value(found: object) -> Value | None:
    match found:
        case int():
            return found
        case [int() as a, int() as b]:
            return a, b
        case _:
            return None
