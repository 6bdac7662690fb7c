"""A file of C: kernels, the functions that they apply, and what both need, each before its use.

`emit(kernels)` prints kernels alone, `emit(kernels, module)` those of a program with their functions. The file needs nothing but the
C library, and any C11 compiler makes the same bits of it, provided that it neither contracts nor reassociates reals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tlc.backends.c.calls import Callee, can_stop, may_stop, reached
from tlc.backends.c.helpers import Helpers
from tlc.backends.c.kernel import head, print_kernel
from tlc.backends.c.procedure import STOPPED, function_head, print_function
from tlc.backends.c.words import Names
from tlc.frontend.records import dataclass
from tlc.ssa.calls import callee_of
from tlc.ssa.ir import Module, walk
from tlc.tensor.kernel.ir import Kernel

FLAGS = ("-std=gnu11", "-ffp-contract=off")  # what `emit` asks of gcc and clang

_HEAD = """\
/* {title}

   A kernel gets its results, then its inputs: tensors as pointers to their elements in row-major order, extents and other scalars as
   themselves. Reals round after every operation, in this order; a fused multiply-add is written `fma`. Compile with
   `cc -O2 -ffp-contract=off` (not with -ffast-math), and the bits of results are those of `tlc`. Integers wrap: where a signed number
   could overflow, the arithmetic is done on unsigned ones.{stops} */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
{more}
#if !defined(__GNUC__) || defined(__clang__)
#pragma STDC FP_CONTRACT OFF  /* gcc asks for the flag */
#endif
#if defined(__FAST_MATH__) || (defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0)
#error "reals have to round after every operation: compile without -ffast-math, and for SSE registers"
#endif
"""
_STOPS = "\n   A kernel that gives an `int` gives 0, or 1 if the program has to stop: `tlc_message` says why."


def emit(kernels: Mapping[str, Kernel], module: Module | None = None, title: str = "") -> str:
    """The text of a file. The module has the functions that kernels apply, after the memory plan."""
    return _Unit(kernels, module or Module(), title or "kernels of tlc").run()


@dataclass
class _Unit:
    kernels: Mapping[str, Kernel]
    module: Module
    title: str
    helpers: Helpers = field(default_factory=Helpers)
    texts: list[str] = field(default_factory=list)
    begun: dict[str, None] = field(default_factory=dict)  # kernels `k.NAME` and functions `f.NAME`
    done: set[str] = field(default_factory=set)
    ahead: dict[str, None] = field(default_factory=dict)  # declarations of what is called before it stands

    def run(self) -> str:
        names = Names()
        self.kernel_names = {name: names.of(name) for name in self.kernels}
        functions = self.module.functions
        needed = self.needed()
        self.callees = {name: Callee(names.of(name), may_stop(functions[name], functions, self.kernels)) for name in needed}
        for name in self.kernels:
            self.kernel(name)
        stops = any(c.can_stop for c in self.callees.values())
        includes = ["string.h"]
        if stops:
            includes += ["stdarg.h", "stdio.h", "stdlib.h"]
        more = "".join(f"#include <{name}>\n" for name in sorted(includes))
        types = [f"typedef uint16_t {name};  /* the 16 bits of a narrow real */" for name in self.helpers.types]
        top = _HEAD.format(title=self.title.replace("*/", "* /"), stops=_STOPS if stops else "", more=more)
        first = ["\n".join(types), STOPPED.strip("\n") if stops else ""]
        parts = [top, *first, *self.helpers.texts.values(), "\n".join(self.ahead), *self.texts]
        return "\n\n".join(p.rstrip("\n") for p in parts if p) + "\n"

    def needed(self) -> list[str]:
        """The functions that kernels apply, and those that these call."""
        return reached([f for k in self.kernels.values() for f in k.applied], self.module.functions, self.kernels)

    def kernel(self, name: str) -> None:
        key = f"k.{name}"
        if key in self.begun:
            if key not in self.done:
                self.ahead[f"{head(self.kernels[name], self.helpers, self.callees, self.kernel_names[name])};"] = None
            return
        self.begun[key] = None
        for f in self.kernels[name].applied:
            self.function(f)
        self.texts.append(print_kernel(self.kernels[name], self.helpers, self.callees, self.kernel_names[name]))
        self.done.add(key)

    def function(self, name: str) -> None:
        key = f"f.{name}"
        function = self.module.functions[name]
        if key in self.begun:
            if key not in self.done:
                self.ahead[f"{function_head(function, self.helpers, self.callees)};"] = None
            return
        self.begun[key] = None
        for instr in walk(function.body):
            if instr.op == "call" and callee_of(instr) != name:
                self.function(callee_of(instr))
            elif instr.op == "run":
                self.kernel(str(instr.attrs["kernel"]))
        self.texts.append(print_function(function, self.helpers, self.callees, self.kernels, self.kernel_names))
        self.done.add(key)


__all__ = ["FLAGS", "can_stop", "emit"]
