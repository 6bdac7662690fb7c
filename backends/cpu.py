"""The processor of this machine, as the kernel describes it (`/proc/cpuinfo`): to know it takes no compiler."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tlc.tensor.schedule import Target

# what x86-64-v3 has beyond the baseline, as far as own code uses it
V3 = ("avx", "avx2", "fma", "bmi1", "bmi2", "f16c")

VNNI = {"avx512_vnni", "avx_vnni"}
PAIRS = {"avx512_bf16", "avx512vl"}

_MODEL = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")  # on x86, on ARM

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

# feature -> bytes of a vector register, how many there are; the first that the processor has
_VECTORS = (("avx512f", 64, 32), ("avx2", 32, 16), ("asimd", 16, 32))


@cache
def fields() -> Mapping[str, str]:
    """What is said of the first processor, empty if nothing is."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            out: dict[str, str] = {}
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    break
                out[name.strip()] = value.strip()
            return out
    except OSError:
        return {}


@cache
def features() -> frozenset[str]:
    return frozenset((fields().get("flags") or fields().get("Features") or "").split())


@cache
def name() -> str:
    """What machine code for this processor depends on: its architecture, its model and its features."""
    return ", ".join([platform.machine(), *(f"{key}={fields()[key]}" for key in _MODEL if key in fields()), *sorted(features())])


def vectors() -> Target:
    """The vector registers and the cache, as schedules should know them: they differ with it in speed, never in results."""
    from tlc.tensor.schedule import Target  # a warm start asks only for the name

    room = own_cache() or Target().cache_bytes
    for feature, size, count in _VECTORS:
        if feature in features():
            return Target(vector_bytes=size, registers=count, cache_bytes=room, dots=dots(), pairs=features() >= PAIRS)
    return Target(vector_bytes=16, registers=16, cache_bytes=room, dots=dots())


def dots() -> int:
    """How many products of bytes one instruction adds to a sum: four with VNNI, two on any x86, elsewhere none that is known here."""
    return 4 if features() & VNNI else 2 if "sse2" in features() else 0


@cache
def own_cache() -> int:
    """The bytes of the second cache, which a core has to itself (where threads share a core, they share it); 0 if that is not known."""
    found = 0
    for index in _CACHES.glob("index*"):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if level == "2" and kind in ("Data", "Unified") and size.endswith("K") and size[:-1].isdigit():
            found = int(size[:-1]) << 10
    return found


def missing_for_own_code() -> str:
    """Why the own backend cannot make code for this machine, as the end of a sentence; empty if it can."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return f"it makes code for x86-64 on Linux, and this machine is {platform.machine()} on {platform.system()}"
    absent = [f for f in V3 if f not in features()]
    return f"it makes code for processors with {', '.join(V3)}, and this one has no {', '.join(absent)}" if absent else ""
