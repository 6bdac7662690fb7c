"""One entry of the REPL: its definitions and statements, checked as a script in which the variables of earlier entries are bound.

    let x = [1.0, 2.0]      let x = [1.0, 2.0];  extern session.store(7, x)
    sum(x) + 1.0            let x: f32[2] = extern session.load(7);  let value = sum(x) + 1.0;  extern session.show(0, value)

The services run around the user's statements: what is kept comes in at the beginning, if it is read at all, and what is new or
was assigned goes out at the end. So an entry that fails has changed nothing, and no statement ever runs twice. In types an
immutable `i64` of an earlier entry is its value, a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.blocks import diverges
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import dim_value, int_const, unit
from tlc.frontend.check.callee import function_of
from tlc.frontend.check.cells import NEVER
from tlc.frontend.check.derivatives import Derivative, Transformed
from tlc.frontend.check.flexible import Flexible, read
from tlc.frontend.check.functions import Closure, FunctionValue
from tlc.frontend.check.kept import (
    Changed,
    Kept,
    KeptFunction,
    KeptValue,
    KeyPlace,
    State,
    concrete,
    known_but,
    name_of,
    new_slot,
    renewed,
)
from tlc.frontend.check.outline import walk
from tlc.frontend.check.report import Failed
from tlc.frontend.check.scope import DimensionName, FunctionName, Kind, Scope, Variable
from tlc.frontend.check.scope import Entry as ScopeEntry
from tlc.frontend.check.session import Session
from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.typed import Local
from tlc.frontend.types import I64, KEY, UNIT, Type

LOAD, STORE, SHOW = "session.load", "session.store", "session.show"


@dataclass(frozen=True)
class Entry:
    """An entry that was checked. `program` has no main if there is nothing to run.

    `shown` are the types of its expressions, by their numbers; `stored` those of the values that go out, by slots. `lost` are the
    variables that its definitions made unreadable.
    """

    program: typed.Program
    shown: Mapping[int, Type]
    stored: Mapping[int, Type]
    after: State
    lost: tuple[str, ...]

    def state(self, values: Mapping[int, list[Any]]) -> State:
        """What the next entry finds, when this one has run. `values` are the leaves of what was stored."""
        known = {slot: _settled(self.stored[slot], leaves) for slot, leaves in values.items()}
        return replace(self.after, names=_with_values(self.after.names, known))


def check_entry(module: ast.Module, state: State) -> Entry:
    """Check an entry. Raises CompileError."""
    new = {name_of(d) for d in module.definitions}
    kept = [d for name, d in state.definitions.items() if name not in new]
    whole = ast.Module(module.source, (*kept, *module.definitions), module.stmts, module.doc)
    session = Session(whole)
    main = session.instances.reserve_main()  # before a function `main`, which is one like others here
    session.check_definitions()
    work = _Work(session, replace(state, names={n: k for n, k in state.names.items() if n not in new}))
    stmts = work.statements(module.stmts)
    span = Span(module.source, 0, len(module.source.text))
    if stmts:
        session.instances.add_main(main, unit(stmts, span, UNIT), span, module.doc)
    program = _without_unread(session.finished(main if stmts else None), {s.local for s in work.loads})
    definitions = {name_of(d): d for d in whole.definitions}
    after = State(definitions, work.names(), work.used())
    return Entry(program, _types(program, SHOW), _types(program, STORE), after, tuple(work.lost))


class _Work:
    """The checking of one entry. Mutable."""

    def __init__(self, session: Session, state: State) -> None:
        self.session = session
        self.body = Body(session, session.root, Scope(None, Kind.FUNCTION), returns=False)
        self.locals: dict[int, Local] = {}  # by slot: what lies there, in this entry
        self.slots: dict[int, int] = {}  # by the local's uid: where it lies when the entry has run
        self.aliases: dict[int, KeyPlace] = {}  # by the local's uid
        self.unchanged: dict[int, KeptValue] = {}  # by slot
        self.functions: dict[int, KeptFunction] = {}  # by the identity of the value
        self.loads: list[typed.Let] = []
        self.stores: list[typed.Stmt] = []
        self.dims: dict[str, int] = {}  # slots of dimension names
        self.shown = 0
        self.lost: list[str] = []
        self.span = Span(session.root.node.source, 0, 0)
        for name, kept in state.names.items():
            try:
                self.body.bind(name, self.bring_in(name, kept))
            except (Changed, Failed):
                self.lost.append(name)
        self.bring_keys(state)

    # ------------------------------------------------------------ what was kept

    def bring_in(self, name: str, kept: Kept) -> ScopeEntry:
        """A kept name, for the scope. Raises Changed or Failed."""
        if isinstance(kept, KeptFunction):
            return self.bring_function(kept)
        local = self.locals.get(kept.slot)
        if local is None:
            type = renewed(kept.type, self.session)
            pattern = renewed(kept.pattern, self.session) if kept.pattern is not None else None
            dim = Dim.const(kept.known) if kept.known is not None else None
            local = Local(name, pattern or type, kept.mutable, dim, kept.span)
            value: typed.Expr = typed.Extern(LOAD, (int_const(kept.slot, self.span),), type=type, span=self.span)
            if kept.known is not None:
                value = int_const(kept.known, self.span)
            if pattern is not None:
                self.body.flexible[local.uid] = Flexible(pattern, kept.wilds, type)
            self.loads.append(typed.Let(local, value, span=self.span))
            self.locals[kept.slot] = local
            self.slots[local.uid] = kept.slot
            self.unchanged[kept.slot] = kept
            if kept.alias is not None:
                self.aliases[local.uid] = kept.alias
        return Variable(local)

    def bring_function(self, kept: KeptFunction) -> FunctionName:
        """Its expression means what it meant: it is looked at in a scope of what its names stood for."""
        outer = self.body.scope
        self.body.scope = Scope(None, Kind.FUNCTION, {name: self.bring_in(name, k) for name, k in kept.captures.items()})
        try:
            value = function_of(self.body, kept.node)
        finally:
            self.body.scope = outer
        if value is None:
            raise Changed
        self.functions[id(value)] = kept
        return FunctionName(value)

    def bring_keys(self, state: State) -> None:
        """Keys that were used up stay so, also where their first name is hidden by now."""
        for uid, (slot, path) in self.aliases.items():
            self.body.keys.alias[uid] = keys.Place(self.key(slot), path)
        for (slot, path), span in state.used.items():
            if slot in self.locals:
                self.body.keys.used[keys.Place(self.locals[slot], path)] = span

    def key(self, slot: int) -> Local:
        """What lies in a slot; if no name leads there, a local that nobody reads."""
        if slot not in self.locals:
            self.locals[slot] = Local("", KEY)
            self.slots[self.locals[slot].uid] = slot
        return self.locals[slot]

    # ------------------------------------------------------------ the statements

    def statements(self, nodes: tuple[ast.Stmt, ...]) -> list[typed.Stmt]:
        """All of them, with what comes in before and what goes out behind."""
        stmts: list[typed.Stmt] = []
        for node in nodes:
            with self.body.recovering():
                stmts += self.statement(node)
        if not any(map(diverges, stmts)):
            self.store(stmts)
        return [*self.loads, *stmts, *self.stores] if stmts or self.stores else []

    def statement(self, node: ast.Stmt) -> list[typed.Stmt]:
        if isinstance(node, ast.ExprStmt) and has_value(node.expr):
            return self.expression(node.expr)
        stmts = self.body.stmt(node)
        if isinstance(node, ast.Binding) and node.target.name:
            bound = self.body.scope.names.get(node.target.name)
            if isinstance(bound, FunctionName) and id(bound.value) not in self.functions:
                scope = _scope_of(node.value, bound.value) or self.body.scope
                found = {name: entry for name in ast.names_of_all(node.value) if (entry := scope.lookup(name)) is not None}
                # what it captures is looked up now and stored at the end: a `let` keeps its value, a `var` was copied
                self.functions[id(bound.value)] = KeptFunction(node.value, {n: k for n, e in found.items() if (k := self.kept(e))})
        return stmts

    def expression(self, node: ast.Expr) -> list[typed.Stmt]:
        """An expression whose value is shown."""
        value = self.body.expr(node)
        if value.type == UNIT or value.type is NEVER:
            return [typed.Eval(value, span=node.span)]
        local = self.body.local("value", value.type, node.span)
        number = int_const(self.shown, node.span)
        self.shown += 1
        show = typed.Extern(SHOW, (number, typed.Read(local, type=local.type, span=node.span)), type=UNIT, span=node.span)
        return [typed.Let(local, value, span=node.span), typed.Eval(show, span=node.span)]

    # ------------------------------------------------------------ what is kept

    def store(self, stmts: list[typed.Stmt]) -> None:
        """Let the values of new and of assigned variables go out, each into a slot of its own."""
        for s in walk(tuple(stmts)):
            if isinstance(s, typed.Assign):
                self.slots.pop(s.local.uid, None)
        for name, entry in self.body.scope.names.items():
            if isinstance(entry, Variable):
                self.slot(entry.local)
            elif isinstance(entry, DimensionName):
                self.dims[name] = self.put(dim_value(entry.dim, self.span))

    def slot(self, local: Local) -> int:
        """Where a variable lies when the entry has run."""
        if local.uid not in self.slots:
            self.slots[local.uid] = self.put(read(self.body, local, self.span))
        return self.slots[local.uid]

    def put(self, value: typed.Expr) -> int:
        slot = new_slot()
        call = typed.Extern(STORE, (int_const(slot, self.span), value), type=UNIT, span=self.span)
        self.stores.append(typed.Eval(call, span=self.span))
        return slot

    def names(self) -> dict[str, Kept]:
        """The names that the next entry finds. Types of values are filled in when they are there."""
        found: dict[str, Kept] = {}
        for name, entry in self.body.scope.names.items():
            kept = KeptValue(self.dims[name], I64) if name in self.dims else self.kept(entry)
            if kept is not None:
                found[name] = kept
        return found

    def kept(self, entry: ScopeEntry) -> Kept | None:
        match entry:
            case Variable():
                local = entry.local
                place = self.body.keys.alias.get(local.uid)
                alias = self.place(place) if place is not None else None
                slot = self.slot(local)
                if slot in self.unchanged:
                    return replace(self.unchanged[slot], alias=alias)
                flexible = self.body.flexible.get(local.uid)
                pattern, wilds = (flexible.pattern, flexible.wilds) if flexible is not None else (None, frozenset())
                return KeptValue(slot, local.type, local.mutable, None, pattern, wilds, alias, local.span)
            case FunctionName():
                return self.functions.get(id(entry.value))
            case _:
                return None

    def used(self) -> dict[KeyPlace, Span]:
        return {place: span for p, span in self.body.keys.used.items() if (place := self.place(p)) is not None}

    def place(self, place: keys.Place) -> KeyPlace | None:
        """A key's place for the entries that follow; None if they cannot reach it."""
        slot = self.slots.get(place.local.uid)
        reachable = all(isinstance(step, int) or step.value is not None for step in place.path)
        return (slot, place.path) if slot is not None and reachable else None


# ---------------------------------------------------------------- looking at trees


def has_value(e: ast.Expr) -> bool:
    """Whether an expression could have a value, by its form: an `if` or a block for its effect has none."""
    match e:
        case ast.IfExpr():
            return e.other is not None and has_value(e.then) and has_value(e.other)
        case ast.Block():
            last = e.stmts[-1] if e.stmts else None
            return isinstance(last, ast.ExprStmt) and has_value(last.expr)
        case _:
            return True


def _scope_of(node: ast.Expr, value: FunctionValue) -> Scope | None:
    """The scope that the anonymous function in `fn(x) => e` or `grad(fn(x) => e)` took with it."""
    while isinstance(node, ast.Call) and isinstance(value, Derivative | Transformed):
        node, value = node.args[0].value, value.of
    return value.scope if isinstance(node, ast.Lambda) and isinstance(value, Closure) else None


def _types(program: typed.Program, service: str) -> dict[int, Type]:
    """The types of what goes to a service, by the number that goes with it."""
    if program.main is None:
        return {}
    calls = [n for n in walk(program.functions[program.main].body) if isinstance(n, typed.Extern) and n.name == service]
    return {int(n.args[0].value): n.args[1].type for n in calls if isinstance(n.args[0], typed.Const)}


def _without_unread(program: typed.Program, loaded: set[Local]) -> typed.Program:
    """The program without the loads of variables that the entry does not mention."""
    if program.main is None:
        return program
    main = program.functions[program.main]
    assert isinstance(main.body, typed.Do)
    mentioned = {n.local for n in walk(main.body) if isinstance(n, typed.Read | typed.Assign)}
    stmts = tuple(s for s in main.body.stmts if not isinstance(s, typed.Let) or s.local not in loaded or s.local in mentioned)
    short = replace(main, body=replace(main.body, stmts=stmts))
    return replace(program, functions={**program.functions, program.main: short})


# ---------------------------------------------------------------- when the values are there


def _with_values(names: Mapping[str, Kept], types: Mapping[int, tuple[Type, int | None]]) -> dict[str, Kept]:
    """The names with the types of the values that are there now."""
    return {name: _with_value(kept, types) for name, kept in names.items()}


def _with_value(kept: Kept, types: Mapping[int, tuple[Type, int | None]]) -> Kept:
    if isinstance(kept, KeptFunction):
        return KeptFunction(kept.node, _with_values(kept.captures, types))
    if kept.slot not in types:
        return kept
    type, number = types[kept.slot]
    pattern = known_but(kept.pattern, kept.wilds, type) if kept.pattern is not None else None
    return replace(kept, type=type, known=None if kept.mutable else number, pattern=pattern)


def _settled(type: Type, leaves: list[Any]) -> tuple[Type, int | None]:
    """The type of a value, and the value itself if it may be a dimension."""
    return concrete(type, [getattr(v, "shape", ()) for v in leaves]), int(leaves[0]) if type == I64 else None
