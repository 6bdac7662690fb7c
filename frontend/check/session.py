"""One run of the checker over a program: its modules, its instances, its errors.

    modules      a `ModuleScope` a file, filled by `declare.py`; names resolve through `entity`
    instances    a definition with element types, types and functions for its variables is checked once (`instances.py`);
                 calls ask for instances when the caller's types are final (`zonk.py`), so the work is a queue
    errors       collected; the check goes on with the next statement or definition

Definitions of the program's own files are checked whether called or not; those of the standard library when an instance is asked for.
"""

from __future__ import annotations

from pathlib import Path

from tlc.frontend import ast, modules, typed
from tlc.frontend.check import declare, habits
from tlc.frontend.check.constants import constant_value
from tlc.frontend.check.instances import Instances
from tlc.frontend.check.limits import Expansions
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import ConstEntity, Entity, FunctionDecl, ModuleScope, Namespace, Poisoned, near
from tlc.frontend.diagnostics import CompileError, Diagnostic, Severity
from tlc.frontend.source import Span

PRELUDE = "prelude"


def check(module: ast.Module) -> typed.Program:
    """Check a program: a file with `main`, or a script of top-level statements. Raises CompileError with everything found.

    A file with neither is checked as a library: the program's `main` is None.
    """
    return Session(module).program()


class Session:
    def __init__(self, module: ast.Module) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.libraries: dict[str, ModuleScope] = {}
        self.files: dict[Path, ModuleScope | Poisoned] = {}
        self.instances = Instances(self)
        self.expansions = Expansions()
        self.prelude: ModuleScope | None = None
        self.root = ModuleScope("", module, trusted=False)
        self.own = [self.root]  # the program's own files
        self.prelude = self.library(PRELUDE)
        declare.fill(self, self.root)

    # ------------------------------------------------------------ the program

    def program(self) -> typed.Program:
        self.check_definitions()
        main = declare.main(self, self.root)
        return self.finished(main.ref, main.flags) if main is not None else self.finished(None)

    def check_definitions(self) -> None:
        """Have the definitions of the program's own files checked, called or not."""
        for scope in self.own:
            for entity in list(scope.names.values()):
                if isinstance(entity, FunctionDecl) and entity.node.body is not None:
                    self.instances.request_representative(entity)
                elif isinstance(entity, ConstEntity):
                    try:
                        self.constant(entity)
                    except Failed as e:
                        self.report(e)

    def finished(self, main: typed.FunctionRef | None, flags: tuple[typed.Flag, ...] = ()) -> typed.Program:
        """The program, when everything that was asked for is checked. Raises CompileError."""
        self.instances.run()
        found = sorted(self.diagnostics, key=lambda d: (d.span.source.path, d.span.start))
        if any(d.severity is Severity.ERROR for d in found):
            raise CompileError(found)
        name = main.name if main is not None else None
        sources = tuple(scope.node.source for scope in self.own)
        return typed.Program(self.instances.reachable(name), name, flags, self.root.node.doc, sources, tuple(found))

    # ------------------------------------------------------------ errors

    def report(self, failure: Failed) -> None:
        """Note an error; the same mistake at the same place is said once, for whatever instance."""
        d = failure.diagnostic
        if d is not None and not any(o.span == d.span and o.code == d.code for o in self.diagnostics):
            self.diagnostics.append(d)

    # ------------------------------------------------------------ modules and names

    def library(self, name: str) -> ModuleScope | None:
        """A module of the standard library."""
        if name not in self.libraries:
            node = modules.library(name)
            if node is None:
                return None
            self.libraries[name] = scope = ModuleScope(name, node, trusted=True)
            declare.fill(self, scope)
        return self.libraries[name]

    def use(self, user: ModuleScope, node: ast.Use) -> Namespace | Poisoned:
        """The module that a `use` means. Raises Failed."""
        if not node.path.startswith("."):
            scope = self.library(node.path)
            if scope is None:
                help = near(node.path, modules.library_names())
                raise fail(
                    "E0203", f"there is no module `{node.path}`", node.span, help=help or f"a file beside this one is `use ./{node.path}`"
                )
            return Namespace(scope, node.span)
        path = modules.beside(user.node.source, node.path)
        if path not in self.files:
            try:
                module = modules.read(path, str(Path(user.node.source.path).parent / f"{node.path}.tl"))
            except OSError:
                raise fail("E0203", f"there is no file `{path}`", node.span) from None
            except CompileError as e:
                self.diagnostics += e.diagnostics
                self.files[path] = Poisoned()
                return Poisoned()
            scope = ModuleScope(node.alias, module, trusted=False)
            self.files[path] = scope
            self.own.append(scope)
            declare.fill(self, scope)
        found = self.files[path]
        return found if isinstance(found, Poisoned) else Namespace(found, node.span)

    def entity(self, module: ModuleScope, path: list[str], span: Span) -> Entity | None:
        """What a possibly qualified name means at the top of a module. Raises Failed for an unknown member of a module."""
        first = path[0]
        found = module.names.get(first)
        if found is None and self.prelude is not None:
            found = self.prelude.names.get(first)
            if isinstance(found, Namespace):
                found = None
        if found is None and modules.reexported().get(first, module.name) != module.name:
            home = self.library(modules.reexported()[first])
            found = home.names.get(first) if home is not None else None
        for name in path[1:]:
            if not isinstance(found, Namespace):
                return None
            member = found.module.names.get(name)
            if member is None:
                always = name in modules.reexported() or (self.prelude is not None and name in self.prelude.names)
                help = habits.FUNCTIONS.get(name) or near(name, list(found.module.names))
                help = f"`{name}` is always there: write it without `{first}.`" if always else help
                raise fail("E0204", f"`{first}` has no `{name}`", span, help=help)
            found = member
        return found

    def member(self, module: str, name: str) -> bool:
        """Whether a module of the standard library has a definition of this name."""
        scope = self.library(module)
        return scope is not None and name in scope.names

    def helper(self, module: str, name: str) -> FunctionDecl:
        """A function of the standard library that the checker itself calls."""
        scope = self.library(module)
        found = scope.names.get(name) if scope is not None else None
        assert isinstance(found, FunctionDecl), f"the standard library has no {module}.{name}"
        return found

    def constant(self, entity: ConstEntity) -> bool | int | float | str | None:
        """The value of a constant, or None if it is not a scalar. Raises Failed."""
        return constant_value(self, entity)
