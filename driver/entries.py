"""A session of the REPL without its surface: the state, the values, and running an entry.

Every entry is compiled, also `1 + 2`: that takes a twentieth of a second, and a loop may follow. The interpreter would answer
sooner for a short entry, but it adds reals in another order within a reduction, so the same expression would have two values.
(`tlc --interp` asks for it, for all entries.)

Values live here, as NumPy arrays and scalars, and are copied into native memory by the entries that read them; see
`frontend/check/entry.py`. An entry that fails, or that is stopped, leaves state and values as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from tlc.backends.runtime.native import Native
from tlc.backends.runtime.services import WorldServices
from tlc.driver import pipeline, stage_texts
from tlc.driver.options import Options
from tlc.driver.token_text import token_text
from tlc.frontend import ast, ast_text, modules, typed_text
from tlc.frontend.check.builtins import BUILTINS
from tlc.frontend.check.entry import LOAD, SHOW, STORE, Entry, check_entry
from tlc.frontend.check.kept import KeptFunction, KeptValue, State, concrete, name_of
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.frontend.tokens import KEYWORDS, REDUCERS
from tlc.frontend.typed import field_types, leaf_types
from tlc.frontend.types import Elem, StructType
from tlc.ssa import formatting
from tlc.ssa.lower import layout


class Session:
    """Mutable: `run` goes from state to state. `texts` are the entries in order, `before` is the state that the last of them found."""

    def __init__(self, options: Options, interpreted: bool = False, threads: int = 1) -> None:
        self.options, self.interpreted, self.threads = options, interpreted, threads
        self.state = self.before = State()
        self.values: dict[int, list[Any]] = {}  # leaves, by slot
        self.objects: dict[str, bytes] = {}  # machine code of this session
        self.texts: list[str] = []

    def run(self, text: str) -> tuple[str, ...]:
        """Run an entry; gives the variables that were lost, because their struct is another one now.

        Raises CompileError, or what running a program raises.
        """
        self.texts.append(text)
        self.before = self.state
        entry = check_entry(_parse(text, f"<entry {len(self.texts)}>"), self.state)
        stored: dict[int, list[Any]] = {}
        if entry.program.main is not None:
            services = _Services(entry, self.values, stored)
            try:
                self._execute(entry, services)
            finally:
                services.close()
        state = entry.state(stored)
        slots = state.slots()
        self.values = {slot: leaves for slot, leaves in (self.values | stored).items() if slot in slots}
        self.state = state
        return entry.lost

    def _execute(self, entry: Entry, services: WorldServices) -> None:
        if self.interpreted:
            pipeline.interpret(entry.program, self.options, services)
        else:
            native = Native(pipeline.build(entry.program, self.options, self.objects), services, self.threads)
            try:
                native.run()
            finally:
                native.close()

    # ------------------------------------------------------------ looking

    def type_of(self, text: str) -> str:
        """The type of an expression, or the head of a function's definition. Raises CompileError."""
        module = _parse(text, ":type")
        node = module.stmts[0].expr if len(module.stmts) == 1 and isinstance(module.stmts[0], ast.ExprStmt) else None
        path = _path(node)
        definition = self.definition(path) if path is not None and path[0] not in self.state.names else None
        if isinstance(definition, ast.Function | ast.StructDef):
            return _head(definition)
        kept = self.state.names.get(path[0]) if path is not None and len(path) == 1 else None
        if isinstance(kept, KeptFunction):
            return _text(kept.node)
        types = list(check_entry(module, self.state).shown.values())
        return str(types[-1]) if types else "it has no value"

    def emit(self, stage: str, text: str) -> str | None:
        """A stage of the last entry, or of `text` as an entry now; None if there is nothing to run. Raises CompileError."""
        state = self.state if text else self.before
        module = _parse(text or self.texts[-1], ":emit")
        if stage == "tokens":
            return token_text(module.source)
        if stage == "ast":
            return ast_text.dump(module)
        program = check_entry(module, state).program
        if stage == "typed":
            return typed_text.print_program(program)
        if program.main is None:
            return None
        return stage_texts.stage_text(program, stage, self.options, ":emit")

    # ------------------------------------------------------------ names

    def definition(self, path: list[str]) -> ast.Definition | None:
        """What a name, or a name in a module, is defined as."""
        names = _always_there() | dict(self.state.definitions)
        for name in path[:-1]:
            names = self._members(names.get(name))
        return names.get(path[-1])

    def completions(self, word: str) -> Iterator[str]:
        """Names that begin like `word`: of everything, or behind a dot, of a module or of a variable's fields."""
        base, dot, start = word.rpartition(".")
        names = self._behind(base.split(".")) if dot else self._names()
        yield from (base + dot + name for name in sorted(set(names)) if name.startswith(start) and not name.startswith("__"))

    def _names(self) -> Iterator[str]:
        yield from KEYWORDS
        yield from REDUCERS
        yield from BUILTINS
        yield from (str(elem) for elem in Elem)
        yield from _always_there()
        yield from self.state.definitions
        yield from self.state.names

    def _behind(self, path: list[str]) -> Iterator[str]:
        kept = self.state.names.get(path[0])
        if not isinstance(kept, KeptValue):
            yield from self._members(self.definition(path))
            return
        type = kept.type
        for name in path[1:]:
            fields = {f.name: t for f, t in zip(type.decl.fields, field_types(type), strict=True)} if isinstance(type, StructType) else {}
            if name not in fields:
                return
            type = fields[name]
        if isinstance(type, StructType):
            yield from (f.name for f in type.decl.fields)
            yield from (p.name for p in type.decl.params)
        else:
            yield from ("shape", "T")

    def _members(self, use: ast.Definition | None) -> dict[str, ast.Definition]:
        """The definitions of the module that a `use` names; none if it cannot be read."""
        if not isinstance(use, ast.Use):
            return {}
        try:
            if use.path.startswith("."):
                path = modules.beside(use.span.source, use.path)
                module: ast.Module | None = modules.read(path, str(path))
            else:
                module = modules.library(use.path)
        except (OSError, CompileError):
            return {}
        return {name_of(d): d for d in module.definitions} if module is not None else {}


class _Services(WorldServices):
    """The world of an entry: that of any program, and the session's values."""

    def __init__(self, entry: Entry, values: dict[int, list[Any]], stored: dict[int, list[Any]]) -> None:
        super().__init__()
        self.entry, self.values, self.stored = entry, values, stored

    def extern(self, name: str, args: list[Any]) -> Iterable[Any]:
        if name == LOAD:
            return self.values[int(args[0])]
        if name == STORE:
            self.stored[int(args[0])] = deepcopy(args[1:])
            return []
        if name == SHOW:
            self.show(int(args[0]), args[1:])
            return []
        return super().extern(name, args)

    def show(self, number: int, leaves: list[Any]) -> None:
        """Write a value and its type."""
        type = self.entry.shown[number]
        marked = [formatting.marked(leaf, t.elem) for leaf, t in zip(leaves, leaf_types(type), strict=True)]
        text = formatting.render((("hole", "", layout(type)),), marked)
        self.print(f"{text} : {concrete(type, [getattr(leaf, 'shape', ()) for leaf in leaves])}")


# ---------------------------------------------------------------- helpers


def _parse(text: str, path: str) -> ast.Module:
    """The tree of an entry. The path stands for it in messages."""
    return parse(Source(path, text))


def _always_there() -> dict[str, ast.Definition]:
    return _library("prelude") | {name: _library(module)[name] for name, module in modules.reexported().items()}


def _library(name: str) -> dict[str, ast.Definition]:
    module = modules.library(name)
    assert module is not None, name
    return {name_of(d): d for d in module.definitions}


def _path(node: ast.Expr | None) -> list[str] | None:
    """`nn.linear` as a path."""
    match node:
        case ast.Name():
            return [node.name]
        case ast.Field():
            base = _path(node.base)
            return [*base, node.name] if base is not None else None
        case _:
            return None


def _text(node: ast.Node) -> str:
    return node.span.source.text[node.span.start : node.span.end]


def _head(definition: ast.Function | ast.StructDef) -> str:
    """A struct as it is written, a function without its body."""
    text, body = _text(definition), definition.body if isinstance(definition, ast.Function) else None
    if body is not None:
        text = text[: body.span.start - definition.span.start].rstrip().removesuffix("=").rstrip()
    return text
