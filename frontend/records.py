"""`@dataclass`, as the whole compiler uses it: that of the standard library, but cheap to load and to make objects of.

The compiler has some hundreds of these classes, and a run uses few of their methods. The standard decorator writes and compiles all
methods of a class when the class is loaded, which was half of the time that `tlc` took to start. Here a method is compiled when it is
called for the first time.

`frozen=True` is a promise, which mypy checks, and makes a class hashable; when the compiler runs, nothing refuses an assignment. A
refusal is what makes objects of the standard library's frozen classes dear: their `__init__` has to go around it for every field.

`field`, `fields`, `replace` and patterns work as ever. Of the decorator's options there are those that are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from dataclasses import dataclass as standard
from functools import cache, partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field_names"]

Code = tuple[str, dict[str, Any]]  # the text of a function, and what it names that is not built in


def _record(cls: type[Any] | None = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False) -> Any:
    if cls is None:
        return partial(_record, frozen=frozen, eq=eq, kw_only=kw_only)
    methods: dict[str, Any] = {"__init__": _on_first_call(cls, "__init__", _init), "__repr__": _repr}
    if eq:
        methods["__eq__"] = _on_first_call(cls, "__eq__", _eq)
        methods["__hash__"] = _on_first_call(cls, "__hash__", _hash) if frozen else None
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    cls.__doc__ = cls.__doc__ or cls.__name__  # where there is none, `standard` would work out a signature to put there
    return standard(init=False, repr=False, eq=False, kw_only=kw_only)(cls)


def _on_first_call(cls: type[Any], name: str, write: Callable[[type[Any]], Code]) -> Callable[..., Any]:
    """A method of a class that puts the compiled one into its own place."""

    def first(self: object, *args: object, **named: object) -> Any:
        text, scope = write(cls)
        exec(compile(text, f"<{cls.__module__}.{cls.__qualname__}>", "exec"), scope)
        method = scope[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *args, **named)

    return first


def _init(cls: type[Any]) -> Code:
    """`self.x = x` for every field, as plain assignments."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    places: list[str] = []
    named: list[str] = []  # those that can only be given by name
    body = []
    for f in fields(cls):
        value = f.name
        if f.default_factory is not MISSING:
            scope[f"make_{f.name}"] = f.default_factory
            value = f"make_{f.name}() if {f.name} is MISSING else {f.name}" if f.init else f"make_{f.name}()"
        elif f.default is not MISSING:
            scope[f"default_{f.name}"] = f.default
        if f.init:
            (named if f.kw_only else places).append(f.name + _default(f))
        if f.init or f.default_factory is not MISSING:
            body.append(f" self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join(["self", *places, *(["*", *named] if named else [])])
    return "\n".join([f"def __init__({parameters}):", *(body or [" pass"])]), scope


def _default(f: Field[Any]) -> str:
    if f.default is not MISSING:
        return f"=default_{f.name}"
    return "=MISSING" if f.default_factory is not MISSING else ""


def _eq(cls: type[Any]) -> Code:
    """Objects of one class are equal if what is compared of them is."""
    mine, others = _compared(cls, "self"), _compared(cls, "other")
    return f"def __eq__(self, other):\n return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented", {}


def _hash(cls: type[Any]) -> Code:
    return f"def __hash__(self):\n return hash({_compared(cls, 'self')})", {}


def _compared(cls: type[Any], name: str) -> str:
    """The tuple of the fields that comparisons look at."""
    return _tuple(f"{name}.{f.name}" for f in fields(cls) if f.compare)


def _tuple(items: Iterable[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)})"


def _field_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of a class's fields, in order: for walks, which ask at every node."""
    return tuple(f.name for f in fields(cls))


field_names: Callable[[Any], tuple[str, ...]] = cache(_field_names)  # not `@cache`: mypy would not let a class be a key


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _record
