"""Calls with a derivative of their own: `@vjp(g)` and `checkpoint`.

Such a call is a `call_vjp`, which no pass inlines, while a derivative may be made of it; everywhere else, and afterwards, it is a `call`.

`checkpoint(f)` keeps nothing of what `f` computes: the reverse sweep differentiates an objective, which runs `f` again,

    f.objective(a.., d.., s..) = <f(a..), d> + <a, s>        gradient by a: the adjoints that f adds, to those which a has already

where d are the adjoints of the real results and s those of the real operands. The sum over s stands last, so the sweep starts with it:
adjoints are added in the order in which they would be if `f` stood there itself, and their bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from tlc.ssa.builder import Builder, new_function
from tlc.ssa.calls import DERIVED, NAMED, callee_of, reached
from tlc.ssa.ir import Attr, Function, Instr, Module, Type, Value, walk


def objective_name(callee: str) -> str:
    return f"{callee}.objective"


def attributes(callee: str, rule: str | None) -> dict[str, Attr]:
    """Those of a `call_vjp`: with a rule, or to be run again."""
    return {"callee": callee, "rule": rule or objective_name(callee), "again": rule is None, "shapes": ()}


def make_objective(module: Module, callee: Function) -> str:
    """The scalar function whose gradient is the reverse sweep of a function of the module; its name."""
    name = objective_name(callee.name)
    if name in module.functions:
        return name
    operands = [(p.name, p.type) for p in callee.params]
    adjoints = [(f"d{k}", t) for k, t in enumerate(callee.results) if t.elem.is_real]
    so_far = [(f"s{k}", p.type) for k, p in enumerate(callee.params) if p.type.elem.is_real]
    scalar = Type(adjoints[0][1].elem)
    function, b = new_function(name, [*operands, *adjoints, *so_far], [scalar], module, callee.span)
    given, rest = function.params[: len(operands)], function.params[len(operands) :]
    results = [r for r in b.call(callee.name, given, callee.results) if r.type.elem.is_real]
    b.ret(_products(b, zip([*results, *(p for p in given if p.type.elem.is_real)], rest, strict=True), scalar))
    return name


def make_pushed(module: Module, instr: Instr, wrt: tuple[int, ...]) -> str:
    """For the tangents t of the operands `wrt` of a call with a rule: the scalar <rule(a, r, u), t> of (a.. r.. u.. t..), u for each
    real r, is linear in u; its gradient by u is what becomes of the tangents.
    """
    rule = module.functions[str(instr.attrs["rule"])]
    name = f"{rule.name}.pushed[{','.join(map(str, wrt))}]"
    if name in module.functions:
        return name
    real = [r for r in instr.results if r.type.elem.is_real]
    params = [(v.name, v.type) for v in (*instr.operands, *instr.results, *real)] + [("t", instr.operands[k].type) for k in wrt]
    scalar = Type(real[0].type.elem)
    function, b = new_function(name, params, [scalar], module, rule.span)
    count = len(instr.operands) + len(instr.results)
    given, u, t = function.params[:count], iter(function.params[count : count + len(real)]), function.params[count + len(real) :]
    results = given[len(instr.operands) :]
    gradients = iter(b.call(rule.name, [*given, *(next(u) if r.type.elem.is_real else r for r in results)], rule.results))
    of_operand = {k: next(gradients) for k, v in enumerate(instr.operands) if v.type.elem.is_real}
    b.ret(_products(b, zip((of_operand[k] for k in wrt), t, strict=True), scalar))
    return name


def _products(b: Builder, pairs: Iterable[tuple[Value, Value]], type: Type) -> Value:
    """The sum of the inner products of pairs of tensors or numbers; there is one at least."""
    total: Value | None = None
    for x, y in pairs:
        part = b.convert(_inner_product(b, x, y), type)
        total = part if total is None else b.op("add", total, part)
    assert total is not None
    return total


def _inner_product(b: Builder, x: Value, y: Value) -> Value:
    if not x.type.rank:
        return b.op("mul", x, y)
    return b.reduce("sum", b.dims(x), lambda b, *at: b.op("mul", b.index(x, *at), b.index(y, *at)), "chain")


def make_objectives(module: Module) -> None:
    """All that the calls of a module name."""
    for function in list(module.functions.values()):
        for instr in walk(function.body):
            if instr.op == "call_vjp" and instr.attrs["again"]:
                make_objective(module, module.functions[callee_of(instr)])


def settle(module: Module) -> None:
    """What no derivative is made of is called like anything else."""
    of = [callee_of(i) for f in module.functions.values() for i in walk(f.body) if i.op in DERIVED]
    differentiated = reached(module, of, NAMED)
    for name, function in module.functions.items():
        if name not in differentiated:
            make_calls(function)


def make_calls(function: Function) -> None:
    """Every `call_vjp` of a function becomes a `call`."""
    for instr in walk(function.body):
        if instr.op == "call_vjp":
            make_call(instr)


def make_call(instr: Instr) -> None:
    instr.op, instr.attrs = "call", {"callee": instr.attrs["callee"]}
