"""The elementary functions of `frontend/elementary.py` as device functions, each printed once a file. What the expansion uses more than
once, or what would be a long line, gets a name.
"""

from __future__ import annotations

from collections import Counter

from tlc.backends.c.words import Text
from tlc.backends.cuda.helpers import Helpers
from tlc.backends.cuda.scalar import emit
from tlc.frontend import elementary
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.graph.expand import GraphArith
from tlc.tensor.graph.ir import Expr, Scalar, scalar, walk

_LONG = 96


def elementary_function(helpers: Helpers, name: str, elem: Elem) -> str:
    """The name of an elementary function; its text is in the file from now on."""
    full = f"{name}_{elem}"
    if full not in helpers.texts:
        params = ("x", "y", "z")[: SCALAR_OPS[name].arity]
        root = elementary.expand(name, GraphArith(), elem, *(scalar(Scalar(p, elem)) for p in params))
        assert isinstance(root, Expr)
        lines = _body(helpers, root)
        head = f"@cuda.jit(device=True)\ndef {full}({', '.join(params)}):"
        helpers.texts[full] = "\n".join([head, *(f"    {line}" for line in lines)])
    return full


def _body(helpers: Helpers, root: Expr) -> list[str]:
    uses = Counter(a for e in walk([root]) for a in e.args)
    texts: dict[Expr, Text] = {}
    lines: list[str] = []
    for e in walk([root]):
        match e.op:
            case "const":
                texts[e] = helpers.literal(e.data, e.elem)
                continue
            case "scalar":
                texts[e] = Text(e.data.name)
                continue
        text = emit(helpers, e.op, e.elem, tuple((texts[a], a.elem) for a in e.args))
        if e is not root and (uses[e] > 1 or len(text.text) > _LONG):
            name = f"t{len(lines)}"
            lines.append(f"{name} = {text}")
            text = Text(name)
        texts[e] = text
    return [*lines, f"return {texts[root]}"]
