"""For tests: derivatives of expressions by reverse and by forward mode, beside finite differences.

A case is an expression over some parameters. Its value, of any shape, is weighed to one number `loss`; a program, which the interpreter of
unoptimized SSA runs, prints for each case

    reverse       elements of `grad(loss)` beside central differences: all, or three to five of a large tensor
    forward       `jvp(loss)` in one direction beside the product of that direction with the gradient
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from whole_program import interpreted

from tlc.driver import pipeline
from tlc.frontend.source import Source

STEP = {"f64": 1e-6, "f32": 4e-3}
CLOSE = {"f64": 2e-8, "f32": 4e-3}  # by how much a derivative may differ, relative to the largest of its tensor, or to 1


@dataclass(frozen=True)
class Case:
    """`expression` over the names in `shapes`, each a tensor of that shape with elements between -1 and 1.

    `values` says what becomes of such an element `x` before it is used; if it begins with `=`, of the whole tensor `x`.
    """

    expression: str
    shapes: dict[str, tuple[int, ...]]
    values: dict[str, str]
    elem: str = "f64"


def case(expression: str, elem: str = "f64", values: dict[str, str] | None = None, **shapes: tuple[int, ...]) -> Case:
    return Case(expression, shapes, values or {}, elem)


def _text(number: int, c: Case) -> str:
    """The functions of a case."""
    names = list(c.shapes)
    args = ", ".join(names)
    several = len(names) > 1
    types = {n: c.elem + (f"[{', '.join(map(str, s))}]" if s else "") for n, s in c.shapes.items()}
    sizes = {n: int(np.prod(s, dtype=int)) for n, s in c.shapes.items()}
    params = ", ".join(f"{n}: {types[n]}" for n in names)
    functions = [f"fn loss{number}({params}) -> {c.elem} = weigh_{c.elem}(reshape({c.expression}, -1))"]
    lines = []
    for k, n in enumerate(names):
        angle = f"2.3f64 * f64(i * i) + 1.1f64 * f64(i) + {k + 0.4}f64"
        wave, move = (_shaped(f"for[i < {sizes[n]}] {c.elem}({f}({angle}))", c.shapes[n]) for f in ("sin", "cos"))
        value = c.values.get(n, "x")
        apply = f"value{number}_{n}(x)"
        if value.startswith("="):
            apply = value[1:]
        else:
            functions.append(f"fn value{number}_{n}(x: {c.elem}) -> {c.elem} = {value}")
        lines += [f"let {n}: {types[n]} = {{", f"  let x: {types[n]} = {wave}", f"  {apply}", "}", f"let move_{n}: {types[n]} = {move}"]
    gradients = [f"g_{n}" for n in names]
    wrt, pattern = (f"({args})", f"({', '.join(gradients)})") if several else (args, gradients[0])
    lines.append(f"let {pattern} = grad(loss{number})({args}, wrt = {wrt})")
    for n in names:
        up, down = (", ".join(f"{m} {sign} e" if m == n else m for m in names) for sign in "+-")
        unit = _shaped(f"for[j < {sizes[n]}] if j == at {{ {STEP[c.elem]!r} }} else {{ 0.0 }}", c.shapes[n])
        lines += [
            f"for at in 0..{sizes[n]} by {1 if sizes[n] <= 5 else sizes[n] // 3} {{",
            f"  let e: {types[n]} = {unit}",
            f"  let slope = (loss{number}({up}) - loss{number}({down})) / {2 * STEP[c.elem]!r}",
            f'  print("{number} {n} {{reshape(g_{n}, -1)[at]}} {{slope}}")',
            "}",
        ]
    tangents = ", ".join(f"move_{n}" for n in names)
    dots = " + ".join(f"sum(g_{n} * move_{n})" if c.shapes[n] else f"g_{n} * move_{n}" for n in names)
    point = f"({args}), ({tangents})" if several else f"{args}, {tangents}"
    lines += [f"let (y, slope) = jvp(loss{number})({point})", f'print("{number} forward {{slope}} {{{dots}}}")']
    body = "\n".join(f"  {line}" for line in lines)
    return "\n".join([*functions, f"fn case{number}() {{", body, "}"])


def _shaped(flat: str, shape: tuple[int, ...]) -> str:
    return f"reshape({flat}, {', '.join(map(str, shape))})" if shape else f"({flat})[0]"


def gradcheck(cases: Sequence[Case], uses: Sequence[str] = ()) -> list[str]:
    """Compare the derivatives of all cases; gives what does not agree, a line each."""
    functions = [f"fn weigh_{e}(y: {e}[n]) -> {e} = sum[i] y[i] * cos({e}(i) + 0.5)" for e in STEP]
    parts = [*(f"use {u}" for u in uses), *functions, *(_text(k, c) for k, c in enumerate(cases))]
    parts.append("fn main() {\n" + "\n".join(f"  case{k}()" for k in range(len(cases))) + "\n}\n")
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for line in interpreted(pipeline.front(Source("gradcheck.tl", "\n".join(parts)))):
        number, what, a, b = line.split()
        found.setdefault((int(number), what), []).append((float(a), float(b)))
    wrong = []
    for (number, what), pairs in found.items():
        got, wanted = np.array(pairs).T
        bound = CLOSE[cases[number].elem] * max(1.0, np.abs(wanted).max())
        if not (np.abs(got - wanted) <= bound).all():
            wrong.append(f"{cases[number].expression} by {what}: {got} beside {wanted}")
    assert len(found) >= len(cases)
    return wrong
