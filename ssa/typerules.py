"""The typing rule of every op, one row each: what the verifier checks and from what the builder infers result types.

A rule looks at a `Site` and gives the types of the results, or raises `InternalError`. Where the results are not
determined by the operands (`const`, `convert`, `pop`, ...) it checks the types that are `given` and gives them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.foreign import C_TYPES
from tlc.frontend.ops import SCALAR_OPS, ScalarOp
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.formatting import template_leaves
from tlc.ssa.ir import BOOL, I64, KEY, STR, Function, Instr, Module, Region, Type
from tlc.ssa.ops import ROWS

Types = tuple[Type, ...]

REDUCERS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
ORDERS = ("chain", "lanes", "strict")


@dataclass(frozen=True)
class Site:
    """What a rule sees of an instruction. `given` are the written result types, None where they are to be inferred."""

    op: str
    operands: Types
    attrs: Mapping[str, Any]
    regions: tuple[Region, ...] = ()
    given: Types | None = None
    module: Module | None = None

    def callee(self) -> Function:
        name = self.attrs["callee"]
        if self.module is None or name not in self.module.functions:
            raise InternalError(f"there is no function `{name}`")
        return self.module.functions[name]


Rule = Callable[[Site], Types]


def result_types(site: Site) -> Types:
    """The types of the results of an instruction; raises `InternalError` where the instruction breaks its rule."""
    if site.op not in RULES:
        raise InternalError(f"there is no op `{site.op}`")
    row = ROWS.get(site.op)
    attrs, regions = (row.attrs, row.regions) if row else ((), 0)
    if set(site.attrs) != set(attrs):
        raise InternalError(f"attributes are {sorted(site.attrs)}, should be {sorted(attrs)}")
    if len(site.regions) != regions:
        raise InternalError(f"has {len(site.regions)} regions, should have {regions}")
    types = RULES[site.op](site)
    if site.given is not None and site.given != types:
        raise InternalError(f"gives {_show(site.given)}, should give {_show(types)}")
    return types


def check_instr(instr: Instr, module: Module | None) -> None:
    """Raise `InternalError` where an instruction breaks the rule of its op."""
    given = tuple(r.type for r in instr.results)
    result_types(Site(instr.op, tuple(v.type for v in instr.operands), instr.attrs, instr.regions, given, module))


# ---------------------------------------------------------------- what rules are made of


def _show(types: Sequence[Type]) -> str:
    return f"({', '.join(map(str, types))})"


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InternalError(message)


def _operands(site: Site, *types: Type) -> None:
    _require(site.operands == types, f"takes {_show(site.operands)}, should take {_show(types)}")


def _all_i64(types: Sequence[Type], what: str) -> None:
    _require(all(t == I64 for t in types), f"{what} are {_show(types)}, should be i64")


def _given(site: Site, count: int | None = None) -> Types:
    if site.given is None:
        raise InternalError(f"the result types of `{site.op}` do not follow from its operands and must be given")
    _require(count is None or len(site.given) == count, f"gives {_show(site.given)}, should give {count} values")
    return site.given


def _yields(site: Site, rank: int) -> Types | None:
    """The types that the region yields; None if no path yields. Its entry takes one i64 an index."""
    (region,) = site.regions
    _require(bool(region.blocks), "the region is empty")
    params = [p.type for p in region.entry.params]
    _require(params == [I64] * rank, f"the region takes {_show(params)}, should take {rank} indices of i64")
    found: Types | None = None
    for block in region.blocks:
        if block.terminated and block.terminator.op == "yield":
            types = tuple(v.type for v in block.terminator.operands)
            _require(found is None or types == found, f"the region yields {_show(types)} and {_show(found or ())}")
            found = types
    return found


# ---------------------------------------------------------------- the rules


def _scalar(row: ScalarOp) -> Rule:
    def rule(site: Site) -> Types:
        operands = site.operands
        _require(len(operands) == row.arity, f"takes {len(operands)} operands, should take {row.arity}")
        _require(all(t.rank == 0 for t in operands), f"takes {_show(operands)}, should take scalars")
        if row.name == "select":
            _require(operands[0] == BOOL, f"the condition is {operands[0]}, should be bool")
            operands = operands[1:]
        _require(len(set(operands)) == 1, f"takes {_show(operands)}, should take one type")
        (type,) = set(operands)
        _require(type.elem in row.takes, f"does not take {type}")
        if row.gives == "same":
            return (type,)
        if row.gives == "bool":
            return (BOOL,)
        if row.name in _KEY_RESULTS:
            return (_KEY_RESULTS[row.name],)
        (target,) = _given(site, 1)
        _require(target.rank == 0 and target.elem in row.takes, f"does not give {target}")
        _require(row.name != "bitcast" or target.elem.width == type.elem.width, f"{type} and {target} differ in width")
        return (target,)

    return rule


_KEY_RESULTS = {"key_make": KEY, "key_hi": Type(Elem.U32), "key_lo": Type(Elem.U32)}


def _const(site: Site) -> Types:
    _operands(site)
    (type,) = _given(site, 1)
    value, elem = site.attrs["value"], type.elem
    _require(type.rank == 0, f"gives {type}, should give a scalar")
    fits = (
        isinstance(value, bool) if elem is Elem.BOOL
        else isinstance(value, str) if elem is Elem.STR
        else isinstance(value, float) if elem.is_real
        else isinstance(value, int) and not isinstance(value, bool) and _in_range(value, elem)
    )  # fmt: skip
    _require(fits, f"{value!r} is no value of {type}")
    return (type,)


def _in_range(value: int, elem: Elem) -> bool:
    return -(1 << elem.width - 1) <= value < 1 << elem.width - 1 if elem.is_signed else 0 <= value < 1 << elem.width


def _tabulate(site: Site) -> Types:
    rank = len(site.operands)
    _all_i64(site.operands, "extents")
    yields = _yields(site, rank)
    if yields is None:
        return _given(site)
    return tuple(Type(t.elem, t.rank + rank) for t in yields)


def _reduce(site: Site) -> Types:
    op, order = site.attrs["op"], site.attrs["order"]
    _require(op in REDUCERS, f"there is no reducer `{op}`")
    _require(order in ORDERS, f"there is no order `{order}`")
    _require(bool(site.operands), "reduces over no index")
    _all_i64(site.operands, "extents")
    yields = _yields(site, len(site.operands))
    if op in ("argmax", "argmin"):
        results = (I64,) * len(site.operands)
    else:
        results = (BOOL,) if op in ("any", "all") else yields or _given(site, 1)
    if yields is not None:
        _require(len(yields) == 1 and yields[0].rank == 0, f"the region yields {_show(yields)}, should yield one scalar")
        fits = yields[0] == BOOL if op in ("any", "all") else yields[0].elem.is_num
        _require(fits, f"`{op}` does not take {yields[0]}")
    return results


def _scatter(site: Site) -> Types:
    _require(len(site.operands) >= 1, "takes no tensor")
    x = site.operands[0]
    _require(site.attrs["op"] == "add" and x.elem.is_num, f"cannot `{site.attrs['op']}` into {x}")
    _all_i64(site.operands[1:], "extents")
    yields = _yields(site, len(site.operands) - 1)
    should = (I64,) * x.rank + (Type(x.elem),)
    _require(yields is None or yields == should, f"the region yields {_show(yields or ())}, should yield {_show(should)}")
    return (x,)


def _index(site: Site) -> Types:
    _require(len(site.operands) >= 1, "takes no tensor")
    x, indices = site.operands[0], site.operands[1:]
    _all_i64(indices, "indices")
    _require(len(indices) <= x.rank, f"{len(indices)} indices for {x}")
    return (Type(x.elem, x.rank - len(indices)),)


def _index_if(site: Site) -> Types:
    _require(len(site.operands) >= 2, "takes a condition and a tensor")
    c, x, *indices = site.operands
    _require(c == BOOL, f"the condition is {c}, should be bool")
    _all_i64(indices, "indices")
    _require(len(indices) == x.rank > 0, f"{len(indices)} indices for {x}")
    return (Type(x.elem),)


def _update(site: Site) -> Types:
    _require(len(site.operands) >= 2, "takes a tensor, indices and a value")
    x, *indices, v = site.operands
    _all_i64(indices, "indices")
    _require(len(indices) <= x.rank, f"{len(indices)} indices for {x}")
    part = Type(x.elem, x.rank - len(indices))
    _require(v == part, f"the new part is {v}, should be {part}")
    return (x,)


def _dim(site: Site) -> Types:
    _require(len(site.operands) == 1, "takes one tensor")
    x, axis = site.operands[0], site.attrs["axis"]
    _require(isinstance(axis, int) and 0 <= axis < x.rank, f"{x} has no axis {axis}")
    return (I64,)


def _reshape(site: Site) -> Types:
    _require(len(site.operands) >= 1, "takes no tensor")
    _all_i64(site.operands[1:], "extents")
    return (Type(site.operands[0].elem, len(site.operands) - 1),)


def _call(site: Site) -> Types:
    if site.module is None:
        return _given(site)
    f = site.callee()
    _operands(site, *(p.type for p in f.params))
    return f.results


def _grad(site: Site) -> Types:
    wrt, value = site.attrs["wrt"], site.attrs["value"]
    _require(isinstance(value, bool), "`value` is no bool")
    _require(isinstance(wrt, tuple) and all(isinstance(k, int) and 0 <= k < len(site.operands) for k in wrt), f"`wrt` is {wrt!r}")
    of: Types
    if site.module is None:
        of = _given(site)[: int(value)]
    else:
        f = site.callee()
        _operands(site, *(p.type for p in f.params))
        of = f.results
        _require(len(of) == 1 and of[0].rank == 0 and of[0].elem.is_real, f"differentiates {_show(of)}, should be one real scalar")
    return (of if value else ()) + tuple(site.operands[k] for k in wrt)


def _jvp(site: Site) -> Types:
    wrt, count = site.attrs["wrt"], len(site.operands)
    _require(isinstance(wrt, tuple) and all(isinstance(k, int) and 0 <= k < count - len(wrt) for k in wrt), f"`wrt` is {wrt!r}")
    if site.module is None:
        return _given(site)
    f = site.callee()
    _operands(site, *(p.type for p in f.params), *(f.params[k].type for k in wrt))
    return f.results + tuple(t for t in f.results if t.elem.is_real)


def _same(site: Site) -> Types:
    _require(len(site.operands) == 1, f"takes {len(site.operands)} operands, should take 1")
    return site.operands


def _anything(site: Site) -> Types:
    return _given(site)


def _foreign(site: Site) -> Types:
    results = _given(site)
    _require(len(results) <= 1, f"gives {_show(results)}, should give one scalar or nothing")
    scalars = (*site.operands, *results)
    _require(all(t.rank == 0 and t.elem in C_TYPES for t in scalars), f"{_show(scalars)} are not all scalars of C")
    return results


def _check(site: Site) -> Types:
    _require(site.operands[:1] == (BOOL,), f"takes {_show(site.operands)}, the first should be bool")
    _require(all(t.rank == 0 for t in site.operands), f"takes {_show(site.operands)}, should take scalars")
    return ()


def _trap(site: Site) -> Types:
    watched = site.attrs["watched"]
    _require(site.operands[:1] == (BOOL,), f"takes {_show(site.operands)}, the first should be bool")
    _require(isinstance(watched, int) and 0 <= watched < len(site.operands), f"cannot watch {watched} of {len(site.operands) - 1} values")
    wrong = [t for t in site.operands[1 : 1 + watched] if not t.elem.is_real and t.elem is not Elem.BOOL]
    _require(not wrong, f"watches {_show(wrong)}, which is neither real nor bool")
    return ()


def _format(site: Site) -> Types:
    holes = template_leaves(site.attrs["template"])
    _require(len(site.operands) == holes, f"takes {len(site.operands)} values for {holes} leaves")
    return (STR,)


def _takes(operands: Types, results: Types = ()) -> Rule:
    def rule(site: Site) -> Types:
        _operands(site, *operands)
        return results

    return rule


def _consumes_one(site: Site) -> Types:
    _same(site)
    return ()


def _produces_one(site: Site) -> Types:
    _operands(site)
    return _given(site, 1)


def _launch(site: Site) -> Types:
    results = _given(site)
    extents = site.operands[: sum(t.rank for t in results)]
    _require(len(extents) == sum(t.rank for t in results), "too few extents")
    _all_i64(extents, "extents")
    return results


def _load(site: Site) -> Types:
    x = _tensor_and_place(site, 2)
    return (Type(x.elem),)


def _store(site: Site) -> Types:
    x = _tensor_and_place(site, 3)
    _require(site.operands[2] == Type(x.elem), f"the new element is {site.operands[2]}, should be {Type(x.elem)}")
    return (x,)


def _tensor_and_place(site: Site, count: int) -> Type:
    _require(len(site.operands) == count, f"takes {len(site.operands)} operands, should take {count}")
    x, at = site.operands[:2]
    _require(x.rank > 0, f"takes {x}, should take a tensor")
    _all_i64((at,), "positions")
    return x


def _view(site: Site) -> Types:
    _require(len(site.operands) > 0, "takes nothing, should take a tensor")
    x, *words = site.operands
    (type,) = _given(site, 1)
    _all_i64(words, "indices and extents")
    _require(type.elem is x.elem and type.rank > 0, f"a view of {x} is {type}")
    _require(0 <= len(words) - type.rank <= x.rank, f"{len(words)} indices and extents for a view of {x} as {type}")
    return (type,)


def _split(site: Site) -> Types:
    _require(len(site.operands) > 0, "takes nothing, should take a tensor")
    x, *indices = site.operands
    _all_i64(indices, "indices")
    _require(len(indices) < x.rank, f"{len(indices)} indices leave no tensor of {x}")
    return x, Type(x.elem, x.rank - len(indices))


def _join(site: Site) -> Types:
    _require(len(site.operands) == 2, f"takes {len(site.operands)} operands, should take 2")
    x, part = site.operands
    _require(x.elem is part.elem and 0 < part.rank <= x.rank, f"{part} is no part of {x}")
    return (x,)


def _alloc(site: Site) -> Types:
    _all_i64(site.operands, "extents")
    (type,) = _given(site, 1)
    _require(type.rank == len(site.operands), f"{len(site.operands)} extents for {type}")
    return (type,)


def _run(site: Site) -> Types:
    results = _given(site)
    _require(site.operands[: len(results)] == results, "the first operands should be the buffers that it gives back")
    return results


RULES: dict[str, Rule] = {
    **{row.name: _scalar(row) for row in SCALAR_OPS.values()},
    "const": _const,
    "tabulate": _tabulate,
    "reduce": _reduce,
    "scatter": _scatter,
    "index": _index,
    "index_if": _index_if,
    "update": _update,
    "dim": _dim,
    "reshape": _reshape,
    "call": _call,
    "grad": _grad,
    "jvp": _jvp,
    "call_vjp": _call,
    "stop_grad": _same,
    "barrier": _same,
    "extern": _anything,
    "foreign": _foreign,
    "check": _check,
    "trap": _trap,
    "format": _format,
    "print": _takes((STR,)),
    "progress_begin": _takes((STR, I64), (I64,)),
    "progress_tick": _takes((I64, I64)),
    "progress_due": _takes((I64,), (BOOL,)),
    "progress_note": _takes((I64, I64, STR)),
    "progress_end": _takes((I64,)),
    "push": _consumes_one,
    "pop": _produces_one,
    "get": _produces_one,
    "set": _consumes_one,
    "launch": _launch,
    "load": _load,
    "store": _store,
    "view": _view,
    "alloc": _alloc,
    "run": _run,
    "copy": _same,
    "free": _consumes_one,
    "split": _split,
    "join": _join,
}

_untyped = (set(ROWS) | set(SCALAR_OPS)) ^ set(RULES)
assert not _untyped, f"ops without a typing rule, or rules without an op: {sorted(_untyped)}"
