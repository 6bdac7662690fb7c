"""The instructions that are not scalar ops, one row each. Scalar ops (`add`, `exp`, ...) are rows of `frontend/ops.py` and
take and give rank 0 only.

`effect`: `none` may be removed when unused, moved and shared; `check` may stop the program and nothing else;
`io` acts on the world or on a tape and stays in order.

Operands and results, by op. `x: T[r]` is a tensor of rank r; all counts come from the types.

const            -> v                              attr value; any scalar type
tabulate  n1..nr -> y1 .. yk                       region (i1..ir: i64) yields values of rank s; y has rank r + s.
                                                   Extents are >= 0
reduce    n1..nr -> y (argmax, argmin: i1..ir)     region (i1..ir: i64) yields a scalar; attrs op, order (see ssa/ir.py).
                                                   An extent may be computed in a region around. Of an empty range: sum 0,
                                                   prod 1, any false, all true, max the least
                                                   value and min the greatest; the others are guarded by a `check`
scatter   x n1..nr -> y                            region (i1..ir) yields indices of an element of x, then v; y is x with v added there,
                                                   in row-major order of i. attr op (add)
index     x i1..ik -> y                            k <= rank x leading indices, in range; y has the rest of the rank
index_if  c x i1..ir -> v                          the scalar of x at the indices where c holds, which must be in range there;
                                                   0 (false) where it does not, and then nothing is read
update    x i1..ik v -> y                          x with the part at the leading indices replaced by v
dim       x -> n                                   attr axis
reshape   x n1..nr -> y                            row-major; equal numbers of elements
call      a.. -> r..                               attr callee (a function of the module)
grad      a.. -> r..                               attrs callee, wrt (positions of leaf operands), value: the value first
                                                   if asked, then a gradient for each position of wrt
jvp       a.. t.. -> r.. u..                       attrs callee, wrt (positions of the a that the t are tangents of); u are the tangents
                                                   of the real r
call_vjp  a.. -> r..                               attrs callee, rule, again: a `call` that stays one until derivatives are made. The
                                                   gradients of the real a come of `rule`: a function that gives them for
                                                   (a.. r.. d..), where d is the gradient of r, or r itself where that is not real;
                                                   if `again`, a scalar to differentiate, for (a.. d.. s..): see `ssa/rules.py`.
                                                   shapes: for each result what each extent is: (number), (k, axis of the k-th
                                                   operand), (k, -1) for that operand itself, or () for what is not known; () at first
stop_grad x -> y                                   the value itself, a constant to derivatives
barrier   x -> y                                   the value itself; what is computed from it is not shared with what is from x
extern    a.. -> r..                               attr name: a service that is given and returns scalars and tensors
foreign   a.. -> r                                 attr symbol: a function of the C library; scalars, and at most one result
check     c v.. ->                                 attrs kind, message: stops unless c; `{0}` in the message is the first v
trap      c w.. v.. ->                             attrs recipe (`ssa/recipe.py`), watched: how many w there are. Unless c holds and
                                                   all w, or their elements, are finite or true, the recipe runs with the v, and may stop
format    v.. -> s                                 attr template: literals and ("hole", spec, layout); layout is "leaf",
                                                   ("tuple", layouts) or ("struct", name, field names, layouts)
print     s ->                                     one line
progress_begin label n -> p;  progress_tick p i -> ;  progress_end p ->
progress_due p -> bool;  progress_note p i text ->      a tick that says more: where one is due, the text is made and shown
push      v -> ;  pop -> v                         a tape of reverse mode; attr tape: its number, see ssa/tape.py
get -> v;  set v ->                                attr var: variables before SSA construction only
launch    n.. a.. -> y..                           attr kernel: first the extents of each result in order, then the kernel's inputs
load      x off -> v                               x has rank 1 or more; the scalar at row-major position off of x, in range
store     x off v -> y                             x with the scalar at row-major position off replaced by v
view      x i1..ik n1..nr -> y                     the elements of x from the one at the k leading indices on, row-major, in this shape;
                                                   where that is not inside x, nobody reads them. Memory plan: y borrows the buffer of x
alloc     n1..nr -> y                              memory plan: an undefined buffer
run       y.. a.. -> y'..                          memory plan: `launch` into given buffers; y' are those buffers
copy      x -> y;  free x ->                       memory plan
split     x i1..ik -> x' y;  join x' y -> x        memory plan: y is the part of x at the leading indices, a tensor until the two are joined
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass


@dataclass(frozen=True)
class Row:
    name: str
    effect: str = "none"
    attrs: tuple[str, ...] = ()
    regions: int = 0
    stage: str = "ssa"  # where it may stand: `cfg` before construction, `ssa`, `host` after the tensor stage


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("const", attrs=("value",)),
        Row("tabulate", regions=1),
        Row("reduce", attrs=("op", "order"), regions=1),
        Row("scatter", attrs=("op",), regions=1),
        Row("index"),
        Row("index_if"),
        Row("update"),
        Row("dim", attrs=("axis",)),
        Row("reshape"),
        Row("call", effect="io", attrs=("callee",)),
        Row("grad", effect="io", attrs=("callee", "value", "wrt")),
        Row("jvp", effect="io", attrs=("callee", "wrt")),
        Row("call_vjp", effect="io", attrs=("again", "callee", "rule", "shapes")),
        Row("stop_grad"),
        Row("barrier"),
        Row("extern", effect="io", attrs=("name",)),
        Row("foreign", effect="io", attrs=("symbol",)),
        Row("check", effect="check", attrs=("kind", "message")),
        Row("trap", effect="check", attrs=("recipe", "watched")),
        Row("format", attrs=("template",)),
        Row("print", effect="io"),
        Row("progress_begin", effect="io"),
        Row("progress_tick", effect="io"),
        Row("progress_due", effect="io"),
        Row("progress_note", effect="io"),
        Row("progress_end", effect="io"),
        Row("push", effect="io", attrs=("tape",)),
        Row("pop", effect="io", attrs=("tape",)),
        Row("get", attrs=("var",), stage="cfg"),
        Row("set", effect="io", attrs=("var",), stage="cfg"),
        Row("launch", effect="check", attrs=("kernel",), stage="host"),
        Row("load", stage="host"),
        Row("store", stage="host"),
        Row("view", stage="host"),
        Row("alloc", effect="io", stage="host"),
        Row("run", effect="io", attrs=("kernel",), stage="host"),
        Row("copy", stage="host"),
        Row("free", effect="io", stage="host"),
        Row("split", effect="io", stage="host"),
        Row("join", effect="io", stage="host"),
    )
}

TERMINATORS = ("jump", "branch", "return", "yield", "unreachable")

assert not set(ROWS) & set(SCALAR_OPS), "an op is declared twice"


def effect(op: str) -> str:
    """The effect of any op, scalar or not."""
    return "none" if op in SCALAR_OPS else ROWS[op].effect
