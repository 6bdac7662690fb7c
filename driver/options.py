"""What the flags of `tlc` ask of the compiler; apart from it, because a warm start needs only this."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field

from tlc.frontend.records import dataclass

Flags = Mapping[str, bool | int | float | str]

HOSTS = ("llvm", "x86")
DEVICES = ("cpu", "cuda", "cuda-emulated")
LEAST_SM = 80  # the oldest architecture of a GPU that kernels are made for, as in `sm_80`
REGISTERS = ("all", "few")


def default_host() -> str:
    """What `TLC_HOST` says, else our own backend where it makes code for this machine: it compiles faster, and its code is as good."""
    from tlc.backends.cpu import missing_for_own_code

    return os.environ.get("TLC_HOST") or ("llvm" if missing_for_own_code() else "x86")


def default_registers() -> str:
    """What `TLC_REGISTERS` says, else all: so that a whole run of tests may do with few."""
    return os.environ.get("TLC_REGISTERS") or "all"


@dataclass(frozen=True)
class Options:
    """What the flags of `tlc` ask of the compiler. `flags` are values for the parameters of `main`, where they are known."""

    level: int = 2
    verify: bool = False
    disable: tuple[str, ...] = ()
    flags: Flags | None = None
    strict: bool = False  # reductions of reals from left to right, without fused multiply-adds
    host: str = field(default_factory=default_host)  # what makes machine code of the host's functions, of `HOSTS`
    passes: tuple[str, ...] | None = None  # in place of the level's, behind those that every level needs
    registers: str = field(default_factory=default_registers)  # how many own code may use: `few` is three of each kind, for tests
    timed: bool = False  # kernels count their time (`tlc profile`)
    flash: bool = True  # matrices between products, as in attention, live by blocks of rows
    device: str = "cpu"  # where kernels run, of `DEVICES`; kernels for a GPU run on the CPU if it is emulated
    checked: bool = False  # each kernel for a GPU is looked at: interpreted where the GPU is emulated, waited for on one
    tensor_cores: bool = False  # products of f32 and narrower go to the GPU's tensor cores, whose sums have other bits
    sm: int = LEAST_SM  # the architecture that PTX is made for
    tuned: bool = False  # schedules that `tlc tune` found for this processor
    traps: bool = False  # the program stops where it first makes an infinity or NaN of finite numbers
