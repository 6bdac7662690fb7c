"""What the host has to know of a kernel that it runs."""

from __future__ import annotations

from tlc.tensor.kernel.grid import is_gpu
from tlc.tensor.kernel.ir import Kernel


def may_end_run(kernel: Kernel) -> bool:
    """Whether the host has to look at the status of a kernel: a function may stop the program, and so may the driver of a GPU."""
    return bool(kernel.applied) or is_gpu(kernel)
