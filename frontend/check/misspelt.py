"""The warning for a dimension variable that looks like a misspelling.

A name in a signature that is bound to nothing is a new dimension variable, so `f32[bacth, n]` beside `f32[batch, n]` is no error: it
is another dimension. Such a name of three or more letters, used once and one slip away from another name, gives a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tlc.frontend import ast
from tlc.frontend.check.report import Failed, warning
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import DimVar

LEAST = 3  # shorter names are all alike


def misspelt(node: ast.Function, variables: Iterable[DimVar], others: dict[str, DimVar | None]) -> list[Failed]:
    """The warnings for a function. `others` are the names that a dimension may have had in mind, those of `variables` included."""
    long = [v for v in variables if len(v.name) >= LEAST]
    if not long:
        return []
    uses = Counter(ast.names_of_all(*(p.type for p in node.params), node.result, node.body))
    out: list[Failed] = []
    for v in long:
        if uses[v.name] != 1:
            continue
        for name, other in others.items():
            # Of two names that are used once the second is the slip.
            if one_slip(v.name, name) and (uses[name] != 1 or other is None or other.span.start < v.span.start):
                labels = (Label(other.span, f"`{name}` is here"),) if other is not None else ()
                message = f"the dimension `{v.name}` is used once, and there is `{name}`"
                out.append(warning("W0001", message, v.span, "a dimension of its own", labels, f"did you mean `{name}`?"))
                break
    return out


def one_slip(a: str, b: str) -> bool:
    """Whether a letter too many, one missing, a wrong one or two in the wrong order make one name of the other.

    Numbered names and families (`dim1` and `dim2`, `in_x` and `in_y`) are meant to differ: a wrong letter at the end is no slip.
    """
    if a == b or any(c.isdigit() for c in a + b):
        return False
    start = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    x, y = a[start:], b[start:]
    wrong = x[1:] == y[1:] and len(x) > 1
    swapped = x[:2] == y[:2][::-1] and x[2:] == y[2:]
    return wrong or swapped or x[1:] == y or x == y[1:]
