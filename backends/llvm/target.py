"""What schedules should know of this machine."""

from __future__ import annotations

import llvmlite.binding as llvm

from tlc.tensor.schedule import Target

# feature -> bytes of a vector register, how many there are; the first that the CPU has
_VECTORS = (("avx512f", 64, 32), ("avx2", 32, 16), ("neon", 16, 32))


def host_target() -> Target:
    """The vector registers of this CPU. Schedules differ with it in speed, never in results."""
    features = llvm.get_host_cpu_features()
    for name, size, count in _VECTORS:
        if features.get(name):
            return Target(vector_bytes=size, registers=count)
    return Target(vector_bytes=16, registers=16)
