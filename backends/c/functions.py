"""The elementary functions of `frontend/elementary.py` as static functions of C, each printed once a file.

    static inline float tanh_f32(float x) {
      const float t0 = fabsf(x) * -2.0f;
      ...
      return f32_from_bits_of_i32(i32_from_bits_of_f32(-t9 / (t9 + 2.0f)) | (i32_from_bits_of_f32(x) & INT32_MIN));
    }

What the expansion uses more than once, or what would be a long line, gets a name.
"""

from __future__ import annotations

from tlc.backends.c.helpers import Helpers
from tlc.backends.c.scalar import emit
from tlc.backends.c.words import TYPES, Text, literal
from tlc.frontend import elementary
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.graph.expand import GraphArith
from tlc.tensor.graph.ir import Expr, Scalar, scalar, walk

_LONG = 96


def elementary_function(helpers: Helpers, name: str, elem: Elem) -> str:
    """The C name of an elementary function; its text is in the file from now on."""
    full = f"{name}_{elem}"
    if full not in helpers.texts:
        params = ("x", "y", "z")[: SCALAR_OPS[name].arity]
        root = elementary.expand(name, GraphArith(), elem, *(scalar(Scalar(p, elem)) for p in params))
        assert isinstance(root, Expr)
        lines = _body(helpers, root)
        head = f"static inline {TYPES[elem]} {full}({', '.join(f'{TYPES[elem]} {p}' for p in params)}) {{"
        helpers.add(full, "\n".join([head, *(f"  {line}" for line in lines), "}"]))
    return full


def _body(helpers: Helpers, root: Expr) -> list[str]:
    uses: dict[Expr, int] = {}
    for e in walk([root]):
        for a in e.args:
            uses[a] = uses.get(a, 0) + 1
    texts: dict[Expr, Text] = {}
    lines: list[str] = []
    names = 0
    for e in walk([root]):
        match e.op:
            case "const":
                texts[e] = literal(e.data, e.elem)
                continue
            case "scalar":
                texts[e] = Text(e.data.name)
                continue
        text = emit(helpers, e.op, e.elem, tuple((texts[a], a.elem) for a in e.args))
        if e is not root and (uses[e] > 1 or len(text.text) > _LONG):
            lines.append(f"const {TYPES[e.elem]} t{names} = {text};")
            text = Text(f"t{names}")
            names += 1
        texts[e] = text
    return [*lines, f"return {texts[root]};"]
