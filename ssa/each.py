"""A `call_vjp` for every element of a comprehension, as one over whole arrays: what flattening makes of a lifted call.

    Y = tabulate [b] { call_vjp (index X, b), w {callee = "f", rule = "g"} }
    Y = call_vjp %n, X, w {callee = "f.each[1:10]", rule = "g.each[1:10]"}

    f.each(n, X, w)            = tabulate [b < n] { f(index X, b; w) }
    g.each(n, X, w, Y, dY)     = (tabulate [b < n] { .. dx of g(index X, b; w; index Y, b; index dY, b) .. },
                                  the sum over b of its dw)

The name says over how many indices, and which operands vary with them. What runs again for a gradient has the objective of `f.each`, so
that its derivative is that of the whole comprehension.
"""

from __future__ import annotations

from collections.abc import Sequence

from tlc.ssa.builder import Builder, new_function
from tlc.ssa.calls import callee_of
from tlc.ssa.ir import I64, Attr, Function, Instr, Module, Type, Value
from tlc.ssa.rules import make_objective


def for_each(module: Module, instr: Instr, count: int, varies: Sequence[bool]) -> dict[str, Attr]:
    """The attributes of the call over `count` indices whose operands are the extents, then those of `instr`: those that vary have the
    indices for their first dimensions, and so have all results.
    """
    marks = f"each[{count}:{''.join(str(int(v)) for v in varies)}]"
    function = _each(module, module.functions[callee_of(instr)], marks, count, varies)
    again, rule = instr.attrs["again"], instr.attrs["rule"]
    assert isinstance(rule, str)
    name = make_objective(module, function) if again else _each_rule(module, instr, module.functions[rule], marks, count, varies)
    return {"callee": function.name, "rule": name, "again": again, "shapes": _shapes(instr, count, varies)}


def _larger(type: Type, by: int) -> Type:
    return Type(type.elem, type.rank + by)


def _params(callee: Function, count: int, varies: Sequence[bool]) -> list[tuple[str, Type]]:
    own = [(f"n{k}", I64) for k in range(count)]
    return own + [(p.name, _larger(p.type, count * v)) for p, v in zip(callee.params, varies, strict=True)]


def _each(module: Module, callee: Function, marks: str, count: int, varies: Sequence[bool]) -> Function:
    name = f"{callee.name}.{marks}"
    if name in module.functions:
        return module.functions[name]
    results = [_larger(t, count) for t in callee.results]
    function, b = new_function(name, _params(callee, count, varies), results, module, callee.span)
    extents, given = function.params[:count], function.params[count:]
    b.ret(*b.tabulate_many(extents, lambda b, *at: b.call(callee.name, _elements(b, given, varies, at), callee.results)).results)
    return function


def _elements(b: Builder, values: Sequence[Value], varies: Sequence[bool], at: Sequence[Value]) -> list[Value]:
    return [b.index(x, *at) if v else x for x, v in zip(values, varies, strict=True)]


def _each_rule(module: Module, instr: Instr, rule: Function, marks: str, count: int, varies: Sequence[bool]) -> str:
    name = f"{rule.name}.{marks}"
    if name in module.functions:
        return name
    every = [*varies, *(True for _ in (*instr.results, *instr.results))]
    real = [varies[k] for k, v in enumerate(instr.operands) if v.type.elem.is_real]
    results = [_larger(t, count * v) for t, v in zip(rule.results, real, strict=True)]
    function, b = new_function(name, _params(rule, count, every), results, module, rule.span)
    extents, given = function.params[:count], function.params[count:]
    parts = b.tabulate_many(extents, lambda b, *at: b.call(rule.name, _elements(b, given, every, at), rule.results)).results
    b.ret(*(p if v else _total(b, p, extents) for p, v in zip(parts, real, strict=True)))
    return name


def _total(b: Builder, parts: Value, extents: Sequence[Value]) -> Value:
    """The sum over the first dimensions."""
    rest = [b.dim(parts, k) for k in range(len(extents), parts.type.rank)]

    def summed(b: Builder, *at: Value) -> Value:
        return b.reduce("sum", extents, lambda b, *own: b.index(parts, *own, *at))

    return b.tabulate(rest, summed) if rest else summed(b)


def _shapes(instr: Instr, count: int, varies: Sequence[bool]) -> Attr:
    """Attribute `shapes` of the new call."""
    known = instr.attrs["shapes"]
    assert isinstance(known, tuple)
    out = []
    for k, result in enumerate(instr.results):
        inner = known[k] if known else ((),) * result.type.rank
        out.append((*((axis, -1) for axis in range(count)), *(_moved(extent, count, varies) for extent in inner)))
    return tuple(out)


def _moved(extent: tuple[int, ...], count: int, varies: Sequence[bool]) -> tuple[int, ...]:
    if len(extent) < 2:
        return extent
    k, axis = extent
    if axis < 0:
        return () if varies[k] else (count + k, -1)
    return (count + k, axis + count * varies[k])
