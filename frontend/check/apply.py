"""Applying a function value to arguments: order, defaults, fitting, lifting.

arrange       arguments by position and name -> one a parameter, defaults filled in
Application   struct lifting, then dimensions (`lifting.py` has the loops), then the variables of the signature are bound
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, part, read
from tlc.frontend.check.callee import function_of
from tlc.frontend.check.cells import BOUNDS, Mismatch, Pattern, conversion_help, elem_of, is_real
from tlc.frontend.check.dimension import dims_of_value, extent_of, is_i64
from tlc.frontend.check.functions import FunctionValue, Site
from tlc.frontend.check.habits import argument_help
from tlc.frontend.check.lifting import Operand, over_dims, over_structs
from tlc.frontend.check.pending import Outline
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import Kind, Scope
from tlc.frontend.check.signature import Bindings as Bound
from tlc.frontend.check.signature import Parameter, Signature, dims_of_type, finish, is_tree, known, match, rank_of, substitute, whole_of
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.typed import Local, TypeParam
from tlc.frontend.types import I64, UNIT, Elem, FunctionType, StructType, TensorType, TupleType

Given = tuple[Parameter, ast.Expr | typed.Expr]  # a typed expression is a default that was checked in its own module


def call(body: Body, fn: FunctionValue, args: Sequence[ast.Argument], span: Span) -> typed.Expr:
    """`fn(args)`"""
    sig = fn.signature(body)
    given = arrange(body, fn, sig, args, span)
    functions: dict[str, ast.Expr] = {}
    others: list[ast.Expr | typed.Expr] = []
    for p, a in given:
        if isinstance(p.type, FunctionType):
            assert not isinstance(a, typed.Expr)
            functions[p.name] = a
        else:
            others.append(a)
    values = body.each(others, lambda a: a if isinstance(a, typed.Expr) else argument(body, a))
    return apply(body, fn, values, functions, span)


def argument(body: Body, node: ast.Expr) -> typed.Expr:
    """The value of an argument."""
    value = body.expr(node)
    if value.type == UNIT:
        raise fail("E0503", "this has no value to pass", node.span)
    return value


def arrange(body: Body, fn: FunctionValue, sig: Signature, args: Sequence[ast.Argument], span: Span) -> list[Given]:
    """One expression a parameter, in the order of the parameters."""
    found: dict[str, ast.Expr] = {}
    for k, a in enumerate(args):
        if a.name:
            if a.name not in {p.name for p in sig.params}:
                help = argument_help(a.name, [p.name for p in sig.params])
                raise fail("E0401", f"`{fn.name}` has no parameter `{a.name}`", a.span, help=help)
            name = a.name
        else:
            if k >= len(sig.params):
                message = f"`{fn.name}` takes {count(len(sig.params))}, {len(args)} are given"
                raise fail("E0401", message, a.span, "one too many", help=fn.usage)
            name = sig.params[k].name
        if name in found:
            raise fail("E0401", f"`{name}` is given twice", a.span)
        found[name] = a.value
    out: list[Given] = []
    for p in sig.params:
        if p.name in found:
            out.append((p, found[p.name]))
        elif p.default is not None:
            out.append((p, default(body, fn, p)))
        else:
            labels = (Label(p.span, "declared here"),) if p.span.source.text else ()
            raise fail("E0401", f"`{fn.name}` needs an argument for `{p.name}`", span, labels=labels)
    return out


def count(n: int) -> str:
    """How many arguments, in words."""
    return "no arguments" if n == 0 else "1 argument" if n == 1 else f"{n} arguments"


def default(body: Body, fn: FunctionValue, p: Parameter) -> typed.Expr:
    """The default value of a parameter, as its own module understands it."""
    assert p.default is not None
    decl = fn.default_scope(body)
    if decl is None:
        return body.expr(p.default)
    saved = body.module, body.scope
    body.module, body.scope = decl.module, Scope(None, Kind.FUNCTION)
    try:
        return body.expr(p.default)
    finally:
        body.module, body.scope = saved


# ---------------------------------------------------------------- fitting


def apply(body: Body, fn: FunctionValue, values: list[typed.Expr], functions: dict[str, ast.Expr], span: Span) -> typed.Expr:
    """The call with these values (for the parameters that are no functions), lifted where they are larger than asked."""
    sig = fn.signature(body)
    params = [p for p in sig.params if not isinstance(p.type, FunctionType)]
    return Application(body, fn, sig, params, functions, span).apply(values)


@dataclass(frozen=True)
class Application:
    """A call while its arguments are fitted. `params` are the parameters that are no functions; values go with them."""

    body: Body
    fn: FunctionValue
    sig: Signature
    params: list[Parameter]
    functions: dict[str, ast.Expr]
    span: Span

    def apply(self, values: list[typed.Expr]) -> typed.Expr:
        """Arguments that are dimensions of the signature are bound before anything is lifted, so that types can speak of them."""
        if not self.fn.is_service:
            for v in values:
                keys.use(self.body, v, v.span)
        before = Bindings()
        values = [self._dimension(p, v, before) for p, v in zip(self.params, values, strict=True)]
        return before.wrap(self.lift(values))

    def _dimension(self, p: Parameter, value: typed.Expr, before: Bindings) -> typed.Expr:
        if p.dim in self.sig.in_types and is_i64(value.type):
            return extent_of(self.body, value, before, p.name)[0]
        return value

    # ------------------------------------------------------------ lifting

    def lift(self, values: list[typed.Expr]) -> typed.Expr:
        """Struct lifting first, then dimensions."""
        what = f"`{self.fn.name}`"
        operands = [Operand(v, _rank(p), p.name, _is_key(p.type)) for p, v in zip(self.params, values, strict=True)]
        trees = [p for p, v in zip(self.params, values, strict=True) if _lifts(p.type) and is_tree(v.type)]
        if trees:
            self._no_dims(trees)
            for p, v in zip(self.params, values, strict=True):
                if isinstance(p.type, StructType | TupleType) and not is_tree(v.type):
                    raise misfit(self.fn, p, v, Mismatch())
                if not _lifts(p.type) and is_tree(v.type):
                    raise misfit(self.fn, trees[0], values[self.params.index(trees[0])], Mismatch())
            first = self.params.index(trees[0])

            def leaf(leaves: list[typed.Expr]) -> typed.Expr:
                try:
                    return self.lift(leaves)
                except Failed as e:
                    raise self._of_leaf(e, values[first], leaves[first]) from None

            return over_structs(self.body, operands, leaf, self.span, what, any(_wants_real(p) for p in trees))
        for p, o in zip(self.params, operands, strict=True):
            too_small = o.rank is not None and len(dims_of_value(o.value)) < o.rank
            if too_small or (o.extra and isinstance(p.type, TensorType) != isinstance(o.value.type, TensorType)):
                raise misfit(self.fn, p, o.value, Mismatch())
        self._no_dims([p for p, o in zip(self.params, operands, strict=True) if o.extra])
        before = Bindings()
        spread = [_spread(p.type, o, before) for p, o in zip(self.params, operands, strict=True)]
        self._no_dims([p for p, s in zip(self.params, spread, strict=True) if isinstance(s, list)])
        flat = [o for s in spread for o in _flat(s)]

        def make(inner: list[typed.Expr]) -> typed.Expr:
            rest = iter(inner)
            return self.fit([_regrouped(s, rest, v.span) for s, v in zip(spread, values, strict=True)], values)

        return before.wrap(over_dims(self.body, flat, make, self.span, what))

    def _of_leaf(self, failure: Failed, tree: typed.Expr, leaf: typed.Expr) -> Failed:
        """An error of one leaf, saying of which; and where others are of another real type, that this is what stands in the way."""
        d = failure.diagnostic
        if d is None or is_tree(leaf.type):
            return failure
        note = f"`{self.fn.name}` is applied to each leaf of `{tree.type}`; this one is `{leaf.type}`"
        reals = {str(elem_of(t)) for t in typed.leaf_types(tree.type) if is_real(t)}
        if len(reals) == 1:
            return Failed(replace(d, notes=(*d.notes, note)))
        help = f"give all leaves one real type: here are {' and '.join(f'`{r}`' for r in sorted(reals))}"
        return Failed(replace(d, notes=(note,), help=help))

    def _no_dims(self, lifted: list[Parameter]) -> None:
        """What cannot be lifted: a parameter that occurs in a dimension, a function whose result has `?`."""
        for p in lifted:
            if p.dim is not None and p.dim in self.sig.in_types:
                message = f"`{self.fn.name}` cannot be lifted over `{p.name}`, which is a dimension in its signature"
                raise fail("E0404", message, self.span, help="write the loop: `for[i] ...`")
        if lifted and self.fn.is_service:
            message = f"`{self.fn.name}` cannot be lifted over `{lifted[0].name}`: it acts on the world once"
            raise fail("E0404", message, self.span, help="write the loop")
        if lifted and self.sig.fresh:
            message = f"`{self.fn.name}` cannot be lifted: its result has a dimension that only the run knows"
            raise fail("E0404", message, self.span, help="write the loop")

    # ------------------------------------------------------------ fitting

    def fit(self, values: list[typed.Expr], given: list[typed.Expr]) -> typed.Expr:
        """The call of arguments that need no lifting. `given` are the arguments as they were, for messages."""
        binds = Bound()
        own = {p.dim for p in self.params if p.dim is not None}
        bindable = frozenset({*self.sig.dims, *own})
        before = Bindings()
        values = list(values)
        for k, p in enumerate(self.params):
            if p.dim is not None:
                self._match(k, values[k], given, binds, bindable)
                if p.dim in self.sig.in_types:
                    values[k], binds.dims[p.dim] = extent_of(self.body, values[k], before, p.name)
        for k, p in enumerate(self.params):
            if p.dim is None:
                self._match(k, values[k], given, binds, bindable)
        try:
            finish(binds, bindable)
        except Mismatch as m:
            raise self._disagree(given, m) from None
        outlines = []
        for p in self.sig.params:
            if isinstance(p.type, FunctionType):
                outlines.append((p.name, _function(self.body, p, self.functions[p.name], binds, bindable)))
        return before.wrap(self.fn.emit(self.body, Site(binds, values, outlines, self.span)))

    def _match(self, k: int, value: typed.Expr, given: list[typed.Expr], binds: Bound, bindable: frozenset[DimVar]) -> None:
        p = self.params[k]
        if p.type is None:
            return
        try:
            match(p.type, value.type, binds, bindable)
        except Mismatch as m:
            raise misfit(self.fn, p, given[k], m, binds, self._bound_by(m, k, given)) from None

    def _bound_by(self, m: Mismatch, before: int, given: list[typed.Expr]) -> Label | None:
        """The argument that gave a dimension variable its first value."""
        for p, g in zip(self.params[:before], given, strict=False):
            if m.atom is not None and p.type is not None and (p.dim == m.atom or m.atom in dims_of_type(p.type)):
                same = str(m.atom) == str(m.dims[0])
                return Label(g.span, f"it must have the `{m.atom}` of this one" if same else f"`{m.atom}` is `{m.dims[0]}` by this one")
        return None

    def _disagree(self, given: list[typed.Expr], m: Mismatch) -> Failed:
        labels = tuple(Label(v.span, f"`{p.name}` is `{v.type}`") for p, v in zip(self.params, given, strict=True) if dims_of_value(v))
        return fail("E0402", f"the dimensions of the arguments of `{self.fn.name}` do not agree", self.span, m.reason, labels, m.help)


Spread = Operand | list["Spread"]  # an argument that lifts whole, or the items of a tuple that lift each by itself


def _spread(type: Pattern | None, operand: Operand, before: Bindings) -> Spread:
    """The operand; of a tuple for a tuple parameter its items, if any of them has dimensions to lift over."""
    value = operand.value
    if not isinstance(type, TupleType) or not isinstance(value.type, TupleType) or len(type.items) != len(value.type.items):
        return operand
    inner = Bindings()
    kept = inner.keep(value, operand.name)
    items: list[Spread] = []
    for k, t in enumerate(type.items):
        item = Operand(part(kept, k), rank_of(t) if isinstance(t, StructType) or _lifts(t) else None, f"{operand.name}{k}", _is_key(t))
        if item.rank is not None and len(dims_of_value(item.value)) < item.rank:
            return operand
        items.append(_spread(t, item, inner))
    if not any(o.extra for i in items for o in _flat(i)):
        return operand
    before.stmts += inner.stmts
    return items


def _flat(spread: Spread) -> list[Operand]:
    return [spread] if isinstance(spread, Operand) else [o for s in spread for o in _flat(s)]


def _regrouped(spread: Spread, values: Iterator[typed.Expr], span: Span) -> typed.Expr:
    """The argument from the values of its operands."""
    if isinstance(spread, Operand):
        return next(values)
    items = tuple(_regrouped(s, values, span) for s in spread)
    return typed.Tuple(items, type=TupleType(tuple(i.type for i in items)), span=span)


def _rank(p: Parameter) -> int | None:
    if p.type is None or isinstance(p.type, TypeParam | TupleType) or whole_of(p.type) is not None:
        return None
    return rank_of(p.type)


def _lifts(type: Pattern | None) -> bool:
    """Whether a struct for this parameter is lifted over its fields."""
    return isinstance(type, TensorType) and whole_of(type) is None


def _is_key(type: Pattern | None) -> bool:
    return isinstance(type, TensorType) and elem_of(type) is Elem.KEY


def _wants_real(p: Parameter) -> bool:
    assert isinstance(p.type, TensorType)
    elem = elem_of(p.type)
    return elem.is_real if isinstance(elem, Elem) else isinstance(elem, TypeParam) and elem.bound == "float"


def misfit(fn: FunctionValue, p: Parameter, value: typed.Expr, m: Mismatch, binds: Bound | None = None, by: Label | None = None) -> Failed:
    """An argument that does not fit its parameter. What is wanted is said with the dimensions that are known; `by` marks the argument
    that gave the one which disagrees.
    """
    labels: list[Label] = [by] if by is not None else []
    if p.span.source.text:
        labels.append(Label(p.span, f"`{p.name}: {p.type}` is wanted"))
    for v in dict.fromkeys(dim_atoms(value)):
        if v.span.source.text and v.span != value.span:
            labels.append(Label(v.span, f"`{v.name}` comes from here"))
    help = m.help
    if not help and isinstance(p.type, TensorType) and isinstance(value.type, TensorType):
        elem, found = elem_of(p.type), elem_of(value.type)
        if isinstance(elem, TypeParam):
            help = f"`{elem.name}` is one of {', '.join(map(str, BOUNDS.get(elem.bound, BOUNDS['num'])))}"
        elif elem is Elem.STR:
            help = 'a value is written into a string by interpolation: `"{x}"`'
        elif elem is not found:
            help = conversion_help(elem, found)
    wanted = known(p.type, binds) if p.type is not None and binds is not None else p.type
    if not help and isinstance(wanted, StructType) and isinstance(value.type, StructType) and _is_batch(value.type, wanted):
        help = "there is one for each of a batch, as of the gradient of a lifted function: differentiate the mean over the batch"
    message = f"the argument `{p.name}` of `{fn.name}` must be `{wanted}`, found `{value.type}`"
    return fail("E0402", message, value.span, f"this is `{value.type}`", tuple(labels), help, () if by is not None else m.notes)


def _is_batch(found: StructType, wanted: StructType) -> bool:
    return found.decl is wanted.decl and len(found.dims) > len(wanted.dims)


def dim_atoms(value: typed.Expr) -> list[DimVar]:
    return [a for d in dims_of_value(value) for a in d.atoms()]


# ---------------------------------------------------------------- arguments of function type


def _function(body: Body, p: Parameter, node: ast.Expr, binds: Bound, bindable: frozenset[DimVar]) -> Outline:
    """A function passed for a parameter: `fn(a, b) => f(a, b)` with the parameter's types."""
    assert isinstance(p.type, FunctionType)
    fn = function_of(body, node)
    if fn is None:
        found = body.expr(node).type  # a name that is unknown is reported as that
        raise fail("E0402", f"`{p.name}` must be a function `{p.type}`", node.span, f"this is `{found}`")
    type = substitute_known(p.type, binds)
    locals = [
        Local(f"a{k}", t, dim=Dim.var(DimVar(f"a{k}", node.span)) if t == I64 else None, span=node.span) for k, t in enumerate(type.params)
    ]
    sig = fn.signature(body)
    if len(sig.params) < len(locals) or any(q.default is None for q in sig.params[len(locals) :]):
        raise fail("E0402", f"`{p.name}` must be a function `{p.type}`, this one takes {count(len(sig.params))}", node.span)
    values: list[typed.Expr] = [read(i, node.span) for i in locals]
    values += [default(body, fn, q) for q in sig.params[len(locals) :]]
    with body.no_escape(pure=False):
        result = apply(body, fn, values, {}, node.span)
    try:
        match(type.result, result.type, binds, bindable)
    except Mismatch as m:
        message = f"`{p.name}` must give `{type.result}`, this function gives `{result.type}`"
        raise fail("E0402", message, node.span, help=m.help, notes=(m.reason,) if m.reason else ()) from None
    return Outline(tuple(locals), result, "fn")


def substitute_known(type: FunctionType, binds: Bound) -> FunctionType:
    """The parameter types with what the other arguments bound; the result may still have variables."""
    params = tuple(substitute(p, binds) for p in type.params)
    return FunctionType(params, type.result)
