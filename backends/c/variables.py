"""Where the variables of a function in C are declared: a value under a name (`Let`) where it is made, as a constant; at the top of the
function what is assigned more than once, or read outside of the braces in which it is made.
"""

from __future__ import annotations

import re
from collections import Counter

from tlc.backends.c import control
from tlc.backends.c.control import Item, Let, Line

Variable = tuple[str, str]  # type and name


def placed(items: list[Item], acting: set[str]) -> tuple[list[Item], list[Variable]]:
    """Statements in which values that are read outside of their braces are variables, and these. A value that nobody reads goes, unless it
    comes of a call of one of `acting`.
    """
    far = set(_far(items))
    read = set(_words(items))

    def change(items: list[Item]) -> list[Item]:
        out: list[Item] = []
        for x in items:
            match x:
                case Let(_, name, value) if name not in read:
                    out += [Line(f"{value};")] if acting & set(re.findall(r"[A-Za-z_]\w*(?=\()", value)) else []
                case Let(_, name, value) if name in far:
                    out.append(Line(f"{name} = {value};"))
                case control.If(cond, then, other):
                    out.append(control.If(cond, change(then), change(other)))
                case control.Forever(body):
                    out.append(control.Forever(change(body)))
                case _:
                    out.append(x)
        return out

    return change(items), [(t, n) for t, n in _lets(items) if n in far]


def declarations(variables: list[Variable]) -> list[str]:
    """One line a type."""
    by_type: dict[str, list[str]] = {}
    for type, name in variables:
        base, stars = type.rstrip("* "), "*" * type.count("*")
        by_type.setdefault(base, []).append(f"{stars}{name}")
    return [f"{type} {', '.join(names)};" for type, names in by_type.items()]


def _lets(items: list[Item]) -> list[Variable]:
    out: list[Variable] = []
    for x in items:
        match x:
            case Let(type, name, _):
                out.append((type, name))
            case control.If(_, then, other):
                out += [*_lets(then), *_lets(other)]
            case control.Forever(body):
                out += _lets(body)
            case _:
                pass
    return out


def _words(items: list[Item]) -> list[str]:
    """Every word in the statements, with repetitions."""
    out: list[str] = []
    for x in items:
        match x:
            case Line(text):
                out += re.findall(r"[A-Za-z_]\w*", text)
            case Let(_, _, value):
                out += re.findall(r"[A-Za-z_]\w*", value)
            case control.If(cond, then, other):
                out += [*re.findall(r"[A-Za-z_]\w*", cond.text), *_words(then), *_words(other)]
            case control.Forever(body):
                out += _words(body)
            case _:
                pass
    return out


def _far(items: list[Item]) -> list[str]:
    """Names that are read outside of the braces around their definitions."""
    everywhere = Counter(_words(items))
    far: list[str] = []

    def look(scope: list[Item]) -> None:
        inside = Counter(_words(scope))
        for x in scope:
            match x:
                case Let(_, name, _) if everywhere[name] > inside[name]:
                    far.append(name)
                case control.If(_, then, other):
                    look(then)
                    look(other)
                case control.Forever(body):
                    look(body)
                case _:
                    pass

    look(items)
    return far
