"""Commands for files of intermediate forms: running them, printing a stage of them, and `tlc opt`.

`RUN` and `EMIT` say which command an ending means.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tlc.driver import flags as flag
from tlc.driver.flags import UsageError
from tlc.driver.request import FLAGS, OK, Request, flag_values, read_source, refuse

# ---------------------------------------------------------------- running


def _run_ssa(request: Request) -> int:
    """`tlc prog.ssa`"""
    from tlc.backends.runtime.native import Native
    from tlc.backends.runtime.services import WorldServices
    from tlc.driver import pipeline, ssa_files

    path, *args = request.words
    source = read_source(path, ".ssa")
    module, stage = ssa_files.read(source)
    values = flag_values(path, ssa_files.flags(source, module), args)
    if values is None:
        return OK
    services = WorldServices()
    try:
        if request.flags["interp"]:
            ssa_files.interpret(source, module, stage, values, services)
        else:
            watch, options = request.watch(), request.options(values)
            tensors = next(value for name, _, value in ssa_files.stages(source, module, stage, options, watch) if name == "memory")
            executable = pipeline.machine_code(tensors, options, {}, watch)
            watch.say()
            Native(executable, services, request.threads).run()
    finally:
        services.close()
    return OK


def _run_mir(request: Request) -> int:
    """`tlc prog.mir`"""
    from tlc.backends.cpu import missing_for_own_code
    from tlc.backends.runtime.native import Native
    from tlc.backends.runtime.services import WorldServices
    from tlc.driver import mir_files

    path, *args = request.words
    source = read_source(path, ".mir")
    if flag_values(path, (), args) is None:
        return OK
    services = WorldServices()
    try:
        if request.flags["interp"]:
            mir_files.interpret(source, services)
        elif missing_for_own_code():
            raise UsageError(f"`{path}` cannot run natively ({missing_for_own_code()}); `tlc --interp {path}` interprets it")
        else:
            executable = mir_files.compiled(source, str(request.flags["registers"]), bool(request.flags["verify"]))
            Native(executable, services).run()
    finally:
        services.close()
    return OK


def _run_kernels(request: Request) -> int:
    """`tlc kernel.tk`"""
    from tlc.driver import kernel_files

    path, *args = request.words
    source = read_source(path, ".tk")
    natively = not request.flags["interp"]
    kernels = kernel_files.read(source, natively)
    values = flag_values(path, kernel_files.flags(kernels), args)
    if values is not None:
        print("\n".join(kernel_files.run(source, kernels, values, natively)))
    return OK


def _run_graph(request: Request) -> int:
    """`tlc graph.uir`, `tlc graph.tg`"""
    from tlc.driver import graph_files

    path, *args = request.words
    graph = graph_files.read(read_source(path, Path(path).suffix))
    values = flag_values(path, graph_files.flags(graph), args)
    if values is not None:
        watch = request.watch()
        lines = graph_files.run(graph, values, not request.flags["interp"], watch.decisions)
        watch.say()
        print("\n".join(lines))
    return OK


def refuse_device(request: Request, path: str) -> None:
    """What comes behind the choice of a device cannot choose one any more."""
    device, suffix = request.flags["device"], Path(path).suffix
    if device != "cpu" and suffix in (".mir", ".tk", ".uir", ".tg"):
        raise UsageError(f"`{path}` runs on the CPU, and `--device {device}` is for programs (`.tl`, `.ssa`): leave it out")


# ---------------------------------------------------------------- stages


def _emit_ssa(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a file of SSA, from its own on; None where `--help` was asked for."""
    from tlc.driver import ssa_files

    path, *args = words
    source = read_source(path, ".ssa")
    module, own = ssa_files.read(source)
    values = flag_values(path, ssa_files.flags(source, module), args, command=f"emit {stage}")
    if values is None:
        return None
    watch = request.watch()
    text = next((text() for name, text, _ in ssa_files.stages(source, module, own, request.options(values), watch) if name == stage), None)
    if text is None:
        raise UsageError(f"`{path}` begins behind the stage `{stage}`")
    watch.say()
    return text


def _emit_kernels(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a file of kernels."""
    from tlc.driver import graph_files, kernel_files

    (path,) = _only(words)
    source = read_source(path, ".tk")
    return graph_files.emit_kernels(kernel_files.read(source, natively=False), stage, source.path, request.options().sm)


def _emit_graph(request: Request, stage: str, words: list[str]) -> str | None:
    """A stage of a graph."""
    from tlc.driver import graph_files

    (path,) = _only(words)
    options = request.options()
    return graph_files.emit(read_source(path, Path(path).suffix), stage, options.sm, options.tensor_cores)


def _only(words: list[str]) -> list[str]:
    if len(words) > 1:
        raise UsageError(f"`tlc emit` of `{words[0]}` takes no flags, found `{words[1]}`")
    return words


def opt(request: Request) -> int:
    """`tlc opt FILE.ssa --passes sccp,gvn`: what the passes make of a text; flags may stand anywhere."""
    given = dict(request.flags)
    files: list[str] = []
    words = request.words
    while words:
        more, words = flag.parse_until_word(FLAGS, words)
        given |= more
        files += words[:1]
        words = words[1:]
    if len(files) != 1:
        raise UsageError(f"`tlc opt` needs one file of SSA, `tlc opt FILE.ssa --passes NAME,NAME`, found {len(files)}")
    request = Request(files, given)
    refuse(request)
    from tlc.driver import ssa_files

    watch = request.watch()
    print(ssa_files.optimize(read_source(files[0], ".ssa"), request.options(), watch).rstrip("\n"))
    watch.say()
    return OK


RUN: dict[str, Callable[[Request], int]] = {
    ".ssa": _run_ssa,
    ".mir": _run_mir,
    ".tk": _run_kernels,
    ".uir": _run_graph,
    ".tg": _run_graph,
}
EMIT: dict[str, Callable[[Request, str, list[str]], str | None]] = {
    ".ssa": _emit_ssa,
    ".tk": _emit_kernels,
    ".uir": _emit_graph,
    ".tg": _emit_graph,
}
