"""Prints a host module (after the memory plan) as LLVM IR: its functions (`backends/llvm/function.py`), its kernels, and the entry.

What native code cannot carry with it (texts of messages, templates, names) is numbered; `Tables` has the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tlc.backends.context import offset
from tlc.backends.llvm.abi import c_param, c_result, function_symbol, kernel_declaration, result_type
from tlc.backends.llvm.function import print_function
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.llvm.support import INTERNAL_SUPPORT, SUPPORT
from tlc.backends.llvm.timing import DECLARE_CLOCK, print_timed
from tlc.backends.program import ENTRY, Foreign, Tables
from tlc.frontend.diagnostics import InternalError
from tlc.opt.polls import polled
from tlc.ssa.calls import reached, recursive
from tlc.ssa.ir import Function, Module, walk
from tlc.tensor.kernel.ir import Kernel

# Of loops that poll: they run long, and copies of their bodies, with the loops inside, only take room in the cache of instructions.
_LONG = '!0 = distinct !{!0, !1}\n!1 = !{!"llvm.loop.unroll.disable"}\n'


def print_host(module: Module, kernels: Mapping[str, Kernel], tables: Tables, timed: bool = False) -> str:
    """A module's functions, the kernels that apply functions, and the entry; what these refer to becomes rows of `tables`. `main` takes
    no parameters: its flags are constants by now. Kernels count their time if `timed`.
    """
    text = [SUPPORT, *_printed(list(module.functions.values()), module, kernels, tables, timed)]
    if "main" in module.functions:
        text.append(_entry(module.functions["main"]))
    return "\n".join([*text, *map(_foreign_declaration, tables.foreign), _LONG])


def print_applied(module: Module, kernels: Mapping[str, Kernel], tables: Tables, timed: bool = False) -> str:
    """The kernels that apply functions, and those, of a module whose functions another backend compiles: they come along with what they
    call, so no code of LLVM calls code of that backend. Empty if no kernel applies a function.
    """
    needed = reached(module, [name for run in _runs(module) for name in kernels[run].applied])
    functions = [f for f in module.functions.values() if f.name in needed]
    if not functions:
        return ""
    text = [INTERNAL_SUPPORT, *_printed(functions, module, kernels, tables, timed)]
    return "\n".join([*text, *map(_foreign_declaration, tables.foreign), _LONG])


def _printed(
    functions: list[Function], module: Module, kernels: Mapping[str, Kernel], tables: Tables, timed: bool
) -> Iterator[str]:
    """Functions, the kernels that apply functions, and declarations of the others that are run."""
    define = definition(module) if timed else print_kernel
    for name in _runs(module):
        yield define(kernels[name]) if kernels[name].applied else kernel_declaration(kernels[name])
    again, polls = recursive(module), polled(module)
    for f in functions:
        yield print_function(f, kernels, tables, f.name in again, polls[f.name])
    if timed:
        yield DECLARE_CLOCK


def alone(module: Module, kernels: Mapping[str, Kernel]) -> list[Kernel]:
    """The kernels that are run and call nothing, in order of appearance."""
    return [kernels[name] for name in _runs(module) if not kernels[name].applied]


def definition(module: Module) -> Callable[[Kernel], str]:
    """How a kernel is printed that counts its time."""
    numbers = {name: k for k, name in enumerate(timed_kernels(module))}
    return lambda kernel: print_timed(kernel, numbers[kernel.name])


def timed_kernels(module: Module) -> list[str]:
    """The kernels of a module in the order of their rows in the table of a timed run."""
    return _runs(module)


def _runs(module: Module) -> list[str]:
    """Names of the kernels that functions run, in order of appearance."""
    return list(dict.fromkeys(str(i.attrs["kernel"]) for f in module.functions.values() for i in walk(f.body) if i.op == "run"))


def emit_llvm(module: Module, kernels: Mapping[str, Kernel], host: str = "llvm") -> str:
    """All the text that LLVM gets, for people: kernels, and functions where this is the host."""
    rest = print_host if host == "llvm" else print_applied
    texts = "\n".join(map(print_kernel, alone(module, kernels)))
    return f"; ---------------- kernels\n\n{texts}\n; ---------------- host\n{rest(module, kernels, Tables())}"


def _foreign_declaration(f: Foreign) -> str:
    return f"declare {c_result(f.result)} @{f.name}({', '.join(map(c_param, f.params))}) nounwind"


def _entry(main: Function) -> str:
    if main.params:
        raise InternalError("`main` still has parameters", "llvm")
    type = result_type(main.results)
    return f"""
define i32 @{ENTRY}(ptr %ctx) noinline nounwind {{
  %frame = call ptr @llvm.frameaddress.p0(i32 0)
  %here = ptrtoint ptr %frame to i64
  %bytes.at = getelementptr i8, ptr %ctx, i64 {offset("stack_bytes")}
  %bytes = load i64, ptr %bytes.at
  %limit = sub i64 %here, %bytes
  %limit.at = getelementptr i8, ptr %ctx, i64 {offset("stack_limit")}
  store i64 %limit, ptr %limit.at
  %all = call {type} {function_symbol("main")}(ptr %ctx)
  %status = extractvalue {type} %all, 0
  ret i32 %status
}}
"""
