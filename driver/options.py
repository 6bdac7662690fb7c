"""What the flags of `tlc` ask of the compiler; apart from it, because a warm start needs only this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Flags = Mapping[str, bool | int | float | str]


@dataclass(frozen=True)
class Options:
    """What the flags of `tlc` ask of the compiler. `flags` are values for the parameters of `main`, where they are known."""

    level: int = 2
    verify: bool = False
    disable: tuple[str, ...] = ()
    flags: Flags | None = None
    strict: bool = False  # reductions of reals from left to right, without fused multiply-adds
    host: str = "llvm"  # what makes machine code of the host's functions: "llvm" | "x86"
    passes: tuple[str, ...] | None = None  # in place of the level's, behind those that every level needs
    registers: str = "all"  # how many registers own code may use: "all" | "few" (three of each kind, for tests)
