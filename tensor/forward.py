"""Forward mode: from a function to one that computes its tangents as well, beside its values.

    f(a.., ) -> r..                 f.jvp(a.., t..) -> r.., u..       t: tangents of the operands asked for, u: of every real result

A value is varied if it depends on what is asked for through derivatives that are not constantly zero; it gets one more value beside it, its
tangent, made right behind it. So control flow stays as it is, loops and recursion need no tape, and the side of a branch that is not
taken has no part. Operands on a tape (of a derivative that is differentiated) come in pairs.

    y = mul a, b                    ty = add (mul ta, b), (mul tb, a)              the rules of reverse mode: each is linear in the adjoint
    y = tabulate n { .. yield v }   y, ty = tabulate n { .. yield v, tv }
    s = reduce sum { mul a, b }     s as it is; ts = add (reduce sum { mul ta, b }), (reduce sum { mul tb, a })
    m = reduce max { v }            k = reduce argmax { v }; tm = reduce sum { select (eq i, k), tv, 0 }
    p = reduce prod { v }           tp = the sum of tv times the product of the others (without a division by zero)
    call g(a)                       call g.jvp(a, ta)
    call_vjp g(a) by rule r         ty = the gradient by u of <r(a, y, u), ta>, which is linear in u

Requires: SSA without unreachable blocks. Method: Griewank and Walther 2008, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.builder import Builder
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.clone import clone_region
from tlc.ssa.edit import insert_before, remove_unreachable
from tlc.ssa.ir import I64, Attr, Block, Function, Instr, Region, Terminator, Type, Value, erase, walk
from tlc.ssa.reductions import product
from tlc.ssa.rules import make_call
from tlc.ssa.tape import tape_of
from tlc.tensor.derivative_region import unknown_service
from tlc.tensor.derivative_rules import At, partial
from tlc.tensor.factors import KNOWN, others

SAME = ("index", "index_if", "reshape", "barrier")  # linear in their tensor, and computed from nothing else that is real


class Calls(Protocol):
    """What a forward sweep asks about functions that are called."""

    @property
    def touching(self) -> frozenset[str]:
        """Those that push or pop."""

    def jvp(self, callee: str, wrt: tuple[int, ...], /) -> str:
        """The function that computes the tangents of another, by these operands."""

    def pushed(self, instr: Instr, wrt: tuple[int, ...], /) -> str:
        """The scalar function whose gradient is what the rule of a `call_vjp` makes of tangents (`ssa/rules.py`)."""


def forward(function: Function, wrt: Sequence[int], calls: Calls) -> None:
    """Add the tangents of the parameters `wrt` to the parameters, and of all real results to the results. In place."""
    _Forward(function, wrt, calls).run()


class _Forward:
    def __init__(self, function: Function, wrt: Sequence[int], calls: Calls) -> None:
        self.function, self.calls = function, calls
        self.wrt = [function.params[k] for k in wrt]
        for region in (function.body, *(r for i in walk(function.body) for r in i.regions)):
            remove_unreachable(region)
        self.varied = set(self.wrt)
        self.tangents: dict[Value, Value] = {}

    def run(self) -> None:
        body = self.function.body
        self._find_varied()
        for v in self.wrt:
            self.tangents[v] = body.entry.add_param(v.type, _name(v))
        self.blocks(body)
        self.function.results += tuple(t for t in self.function.results if t.elem.is_real)

    # ------------------------------------------------------------ what varies

    def _find_varied(self) -> None:
        instrs = list(walk(self.function.body))
        ends = [b.terminator for region in (self.function.body, *(r for i in instrs for r in i.regions)) for b in region.blocks]
        size = -1
        while size != len(self.varied):
            size = len(self.varied)
            for i in instrs:
                self.varied.update(r for k, r in enumerate(i.results) if r.type.elem.is_real and self._varies(i, k))
            for end in ends:
                for target, args in end.edges:
                    self.varied.update(p for p, a in zip(target.params, args, strict=True) if a in self.varied)

    def _varies(self, instr: Instr, result: int) -> bool:
        match instr.op:
            case op if op in SCALAR_OPS:
                return any(v in self.varied and partial(instr, k) is not None for k, v in enumerate(instr.operands))
            case "tabulate":
                return any(end.operands[result] in self.varied for end in _yields(instr.regions[0]))
            case "reduce":
                return any(end.operands[0] in self.varied for end in _yields(instr.regions[0]))
            case "scatter":
                return instr.operands[0] in self.varied or any(end.operands[-1] in self.varied for end in _yields(instr.regions[0]))
            case "stop_grad" | "dim" | "const":
                return False
            case "pop":
                return True
            case "call" if callee_of(instr) in self.calls.touching:
                return True
        return any(v in self.varied for v in instr.operands)

    # ------------------------------------------------------------ blocks

    def blocks(self, region: Region) -> None:
        """Tangents in all blocks of a region; what it yields is left to its instruction."""
        order = reverse_postorder(region)
        for block in order[1:]:
            for p in list(block.params):
                if p in self.varied:
                    self.tangents[p] = block.add_param(p.type, _name(p))
        for block in order:
            for instr in list(block.instrs):
                self._instr(instr)
        for block in order:
            self._end(block)

    def _end(self, block: Block) -> None:
        t = block.terminator
        if t.op == "return":
            b = Builder(block, None, t.span)
            tangents = [self._tangent(b, v) for v in t.operands if v.type.elem.is_real]
            block.terminator = Terminator("return", (*t.operands, *tangents), (), t.span)
        elif t.op in ("jump", "branch"):
            b, edges = Builder(block, None, t.span), []
            for target, args in t.edges:
                old = target.params[: len(args)]
                edges.append((target, (*args, *(self._tangent(b, a) for p, a in zip(old, args, strict=True) if p in self.varied))))
            block.terminator = Terminator(t.op, t.own, tuple(edges), t.span)

    def _tangent(self, b: Builder, v: Value) -> Value:
        return self.tangents[v] if v in self.tangents else _zeros(b, v)

    # ------------------------------------------------------------ instructions

    def _instr(self, instr: Instr) -> None:
        assert instr.block is not None
        varied = any(r in self.varied for r in instr.results)
        b = Builder.behind(instr)
        b.span = instr.span.of_derivative()
        match instr.op:
            case "push" if instr.operands[0].type.elem.is_real:
                b.emit("push", [self._tangent(b, instr.operands[0])], attrs=dict(instr.attrs))
            case "pop" if instr.result.type.elem.is_real:
                b = Builder(instr.block, None, b.span, before=instr)  # last in, first out
                popped = b.emit("pop", (), [instr.result.type], {"tape": tape_of(instr)}, names=[_name(instr.result)])
                self.tangents[instr.result] = popped.result
            case "call" if varied or callee_of(instr) in self.calls.touching:
                self._call(instr)
            case _ if not varied:
                return
            case op if op in SCALAR_OPS:
                self._is(instr.result, self._scalar(b, instr))
            case "tabulate":
                self._tabulate(instr)
            case "reduce":
                self._is(instr.result, self._reduce(b, instr))
            case "scatter":
                self._is(instr.result, self._scatter(b, instr))
            case op if op in SAME:
                operands = [self.tangents.get(v, v) for v in instr.operands]
                self._is(instr.result, b.emit(op, operands, [instr.result.type], dict(instr.attrs)).result)
            case "update":
                x, *at, part = instr.operands
                self._is(instr.result, b.update(self._tangent(b, x), at, self._tangent(b, part)))
            case "call_vjp":
                self._call_vjp(b, instr)
            case "foreign" | "extern":
                raise unknown_service(instr)
            case op:
                raise InternalError(f"no tangent of `{op}`", "derivatives", instr.span)

    def _is(self, value: Value, tangent: Value) -> None:
        tangent.name = tangent.name or _name(value)
        self.tangents[value] = tangent

    def _scalar(self, b: Builder, instr: Instr) -> Value:
        if instr.op == "convert":
            return b.convert(self.tangents[instr.operands[0]], instr.result.type)
        parts = []
        for k, v in enumerate(instr.operands):
            rule = partial(instr, k)
            if rule is not None and v in self.varied:
                parts.append(rule(At(b, instr, self.tangents[v], lambda x: x)))
        return _total(b, parts)

    def _tabulate(self, instr: Instr) -> None:
        """The same comprehension, which yields tangents as well."""
        region = instr.regions[0]
        self.blocks(region)
        which = [k for k, r in enumerate(instr.results) if r in self.varied]
        for end in _yields(region):
            assert end.block is not None
            b = Builder(end.block, None, end.span)
            b.yield_(*end.operands, *(self._tangent(b, end.operands[k]) for k in which))
        old = instr.results
        types = (*(r.type for r in old), *(old[k].type for k in which))
        names = (*(r.name for r in old), *(_name(old[k]) for k in which))
        instr.regions = ()
        self._instead(instr, Instr("tabulate", instr.operands, types, {}, (region,), instr.span, names), which)

    def _instead(self, instr: Instr, new: Instr, which: Sequence[int]) -> None:
        """Put another instruction in place of one: it gives the same results, and behind them the tangents of `which` of them."""
        old, count = instr.results, len(instr.results)
        insert_before(instr, new)
        for x, y in zip(old, new.results[:count], strict=True):
            x.replace_by(y)
            if x in self.varied:
                self.varied.add(y)
        erase(instr)
        for k, tangent in zip(which, new.results[count:], strict=True):
            self.tangents[new.results[k]] = tangent

    # ------------------------------------------------------------ reductions

    def _copy(self, region: Region) -> Region:
        """A copy in which the same values vary."""
        values: dict[Value, Value] = {}
        copy = clone_region(region, values)
        self.varied.update(new for old, new in values.items() if old in self.varied)
        return copy

    def _again(self, b: Builder, instr: Instr, op: str, order: Attr, element: Callable[[Builder, Value, Region], Value]) -> Sequence[Value]:
        """Another reduction over the same elements, of something made of each."""
        copy = self._copy(instr.regions[0])
        self.blocks(copy)
        type = None
        for end in _yields(copy):
            assert end.block is not None
            inner = Builder(end.block, None, b.span)
            value = element(inner, end.operands[0], copy)
            type = value.type
            inner.yield_(value)
        assert type is not None
        types = [I64] * len(copy.entry.params) if op in ("argmax", "argmin") else [type]
        return b.emit("reduce", instr.operands, types, {"op": op, "order": order}, [copy]).results

    def _reduce(self, b: Builder, instr: Instr) -> Value:
        match instr.attrs["op"]:
            case "sum":
                return self._sum(b, instr)
            case "max" | "min" as op:
                best = self._again(b, instr, f"arg{op}", "lanes", lambda b, v, _: v)

                def at_best(b: Builder, v: Value, region: Region) -> Value:
                    here = b.every(b.op("eq", i, k) for i, k in zip(region.entry.params, best, strict=True))
                    return b.op("select", here, self._tangent(b, v), b.const(0.0, v.type))

                return self._again(b, instr, "sum", "lanes", at_best)[0]
        return self._prod(b, instr)

    def _sum(self, b: Builder, instr: Instr) -> Value:
        """A sum of products has a sum of products for each factor that varies."""
        ends = list(_yields(instr.regions[0]))
        fused = product(instr, ends[0].operands[0]) if len(ends) == 1 else None
        if fused is None:
            return self._again(b, instr, "sum", "lanes", lambda b, v, _: self._tangent(b, v))[0]
        parts = []
        for k in range(2):
            if fused.operands[k] in self.varied:
                copy = self._copy(instr.regions[0])
                self.blocks(copy)
                (end,) = _yields(copy)
                assert end.block is not None
                factors = end.operands[0].owner.operands if isinstance(end.operands[0].owner, Instr) else ()
                inner = Builder(end.block, None, b.span)
                inner.yield_(inner.op("mul", *(self.tangents[v] if j == k else v for j, v in enumerate(factors))))
                parts.append(b.emit("reduce", instr.operands, [instr.result.type], dict(instr.attrs), [copy]).result)
        return _total(b, parts)

    def _prod(self, b: Builder, instr: Instr) -> Value:
        """A sum of tangents, each times the product of the other elements."""
        known: list[Value] = []
        for op, of, _ in KNOWN:
            order = instr.attrs["order"] if op == "prod" else "lanes"
            known += self._again(b, instr, op, order, lambda b, v, _, of=of: of(b, v))  # type: ignore[misc]

        def part(b: Builder, v: Value, _: Region) -> Value:
            return b.op("mul", self._tangent(b, v), others(b, v, *known))

        return self._again(b, instr, "sum", "lanes", part)[0]

    def _scatter(self, b: Builder, instr: Instr) -> Value:
        into = self._tangent(b, instr.operands[0])
        if not any(end.operands[-1] in self.varied for end in _yields(instr.regions[0])):
            return into
        copy = self._copy(instr.regions[0])
        self.blocks(copy)
        for end in _yields(copy):
            assert end.block is not None
            inner = Builder(end.block, None, b.span)
            inner.yield_(*end.operands[:-1], self._tangent(inner, end.operands[-1]))
        return b.emit("scatter", (into, *instr.operands[1:]), [instr.result.type], dict(instr.attrs), [copy]).result

    # ------------------------------------------------------------ calls

    def _call(self, instr: Instr) -> None:
        """The call of a function that gives the tangents of its real results behind the results."""
        wrt = tuple(k for k, v in enumerate(instr.operands) if v in self.varied)
        positions = [k for k, r in enumerate(instr.results) if r.type.elem.is_real]
        real = [instr.results[k] for k in positions]
        callee = self.calls.jvp(callee_of(instr), wrt)
        operands = (*instr.operands, *(self.tangents[instr.operands[k]] for k in wrt))
        types = (*(r.type for r in instr.results), *(r.type for r in real))
        names = (*(r.name for r in instr.results), *map(_name, real))
        self._instead(instr, Instr("call", operands, types, {"callee": callee}, (), instr.span, names), positions)

    def _call_vjp(self, b: Builder, instr: Instr) -> None:
        if instr.attrs["again"]:  # nothing is kept anyhow
            make_call(instr)
            self._call(instr)
            return
        wrt = tuple(k for k, v in enumerate(instr.operands) if v in self.varied)
        real = [r for r in instr.results if r.type.elem.is_real]
        zeros = [_zeros(b, r) for r in real]
        operands = (*instr.operands, *instr.results, *zeros, *(self.tangents[instr.operands[k]] for k in wrt))
        start = len(instr.operands) + len(instr.results)
        attrs: dict[str, Attr] = {"callee": self.calls.pushed(instr, wrt), "value": False, "wrt": tuple(range(start, start + len(real)))}
        found = b.insert(Instr("grad", operands, tuple(r.type for r in real), attrs, (), b.span)).results
        for r, tangent in zip(real, found, strict=True):
            self._is(r, tangent)


def _yields(region: Region) -> Iterator[Terminator]:
    return (b.terminator for b in region.blocks if b.terminator.op == "yield")


def _name(v: Value) -> str:
    return f"t_{v.name}" if v.name else ""


def _zeros(b: Builder, v: Value) -> Value:
    zero = Type(v.type.elem)
    if not v.type.rank:
        return b.const(0.0, zero)
    return b.tabulate(b.dims(v), lambda b, *_: b.const(0.0, zero))


def _total(b: Builder, parts: Sequence[Value]) -> Value:
    first, *others = parts
    for p in others:
        first = b.op("add", first, p) if not p.type.rank else _sum_of(b, first, p)
    return first


def _sum_of(b: Builder, x: Value, y: Value) -> Value:
    return b.tabulate(b.dims(x), lambda b, *at: b.op("add", b.index(x, *at), b.index(y, *at)))
