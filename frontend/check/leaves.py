"""How a type is told to a service: a line for each leaf, in the order in which the leaves are passed.

    (model, step) of an `Mlp` and an `i64`      0.hidden.w f32 2
                                                0.hidden.b f32 1
                                                1 i64 0

A line has the way to the leaf through fields and items, the element type and the rank. A value that is one tensor is named
`value`. A leaf that no field of the program stands for has no name: it only carries a dimension.
"""

from __future__ import annotations

from collections.abc import Iterator

from tlc.frontend import typed
from tlc.frontend.types import StructType, TensorType, TupleType, Type

ALONE = "value"


def layout(type: Type) -> str:
    """The lines for a type whose elements are known."""
    return "\n".join(f"{name} {leaf.elem} {leaf.rank}" for name, leaf in named_leaves(type))


def named_leaves(type: Type) -> Iterator[tuple[str, TensorType]]:
    """The leaves with their names, in order."""
    return ((".".join(path) or ALONE if path is not None else "", leaf) for path, leaf in _leaves(type, ()))


def _leaves(type: Type, path: tuple[str, ...] | None) -> Iterator[tuple[tuple[str, ...] | None, TensorType]]:
    match type:
        case TensorType():
            yield path, type
        case TupleType():
            for k, item in enumerate(type.items):
                yield from _leaves(item, (*path, str(k)) if path is not None else None)
        case StructType():
            for f, t in zip(type.decl.fields, typed.field_types(type), strict=True):
                yield from _leaves(t, (*path, f.name) if path is not None and not f.hidden else None)
        case _:
            raise AssertionError("a function value has no leaves")
