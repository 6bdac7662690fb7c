"""Prints a host module (after the memory plan) as LLVM IR: its functions (`backends/llvm/function.py`), its kernels, and the entry.

What native code cannot carry with it (texts of messages, templates, names) is numbered; `Tables` has the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tlc.backends.context import offset
from tlc.backends.llvm.abi import c_param, c_result, function_symbol, kernel_declaration, result_type
from tlc.backends.llvm.function import print_function
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.llvm.support import INTERNAL_SUPPORT, SUPPORT
from tlc.backends.llvm.timing import DECLARE_CLOCK, print_timed
from tlc.backends.program import ENTRY, Foreign, Program, Tables
from tlc.frontend.diagnostics import InternalError
from tlc.opt.polls import polled
from tlc.ssa.calls import reached, recursive
from tlc.ssa.ir import Function, Module, walk
from tlc.tensor.kernel.calls import applied
from tlc.tensor.kernel.ir import Kernel

# Of loops that poll: they run long, and copies of their bodies, with the loops inside, only take room in the cache of instructions.
_LONG = '!0 = distinct !{!0, !1}\n!1 = !{!"llvm.loop.unroll.disable"}\n'


def emit(module: Module, kernels: Mapping[str, Kernel], timed: bool = False) -> Program:
    """Print a module and its kernels, which count their time if `timed`. `main` takes no parameters: its flags are constants by now."""
    tables = Tables()
    functions = list(module.functions.values())
    runs, define = _runs(functions), _definition(module, timed)
    text = [SUPPORT, *_printed(functions, runs, module, kernels, tables, define)]
    if timed:
        text.append(DECLARE_CLOCK)
    if "main" in module.functions:
        text.append(_entry(module.functions["main"]))
    host = "\n".join([*text, *map(_foreign_declaration, tables.foreign), _LONG])
    return Program(host, _kernels_alone(runs, kernels, define, timed), tables)


def emit_kernels(module: Module, kernels: Mapping[str, Kernel], tables: Tables, timed: bool = False) -> Program:
    """Print the kernels of a module whose functions another backend compiles. Those that kernels apply come along, with what they
    call: so no code of LLVM calls code of that backend. `host` is empty if no kernel applies a function.
    """
    runs, define = _runs(list(module.functions.values())), _definition(module, timed)
    needed = reached(module, [name for run in runs for name in applied(kernels[run])])
    functions = [f for f in module.functions.values() if f.name in needed]
    alone = _kernels_alone(runs, kernels, define, timed)
    if not functions:
        return Program("", alone, tables)
    text = [INTERNAL_SUPPORT, *_printed(functions, runs, module, kernels, tables, define)]
    if timed:
        text.append(DECLARE_CLOCK)
    return Program("\n".join([*text, *map(_foreign_declaration, tables.foreign), _LONG]), alone, tables)


def _printed(
    functions: list[Function],
    runs: Iterable[str],
    module: Module,
    kernels: Mapping[str, Kernel],
    tables: Tables,
    define: Callable[[Kernel], str],
) -> Iterator[str]:
    """Functions, the kernels that apply functions, and declarations of the others that are run."""
    for name in runs:
        yield define(kernels[name]) if applied(kernels[name]) else kernel_declaration(kernels[name])
    again, polls = recursive(module), polled(module)
    for f in functions:
        yield print_function(f, kernels, tables, f.name in again, polls[f.name])


def _kernels_alone(runs: Iterable[str], kernels: Mapping[str, Kernel], define: Callable[[Kernel], str], timed: bool) -> str:
    """The kernels that call nothing."""
    texts = [define(kernels[name]) for name in runs if not applied(kernels[name])]
    return "\n".join([*texts, DECLARE_CLOCK] if timed and texts else texts)


def _definition(module: Module, timed: bool) -> Callable[[Kernel], str]:
    """How a kernel is printed."""
    if not timed:
        return print_kernel
    numbers = {name: k for k, name in enumerate(timed_kernels(module))}
    return lambda kernel: print_timed(kernel, numbers[kernel.name])


def timed_kernels(module: Module) -> list[str]:
    """The kernels of a module in the order of their rows in the table of a timed run."""
    return _runs(module.functions.values())


def _runs(functions: Iterable[Function]) -> list[str]:
    """Names of the kernels that functions run, in order of appearance."""
    return list(dict.fromkeys(str(i.attrs["kernel"]) for f in functions for i in walk(f.body) if i.op == "run"))


def emit_llvm(module: Module, kernels: Mapping[str, Kernel], host: str = "llvm") -> str:
    """All the text that LLVM gets, for people: kernels, and functions where this is the host."""
    program = emit(module, kernels) if host == "llvm" else emit_kernels(module, kernels, Tables())
    return f"; ---------------- kernels\n\n{program.kernels}\n; ---------------- host\n{program.host}"


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
