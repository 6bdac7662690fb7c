"""The memory plan: what is copied and freed in small cases, and random programs that mean the same after it, natively too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_run import check_ownership, interpreted, ops, planned, same

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.ir import I64, Module, Type, Value
from tlc.ssa.tape import on_tape
from tlc.ssa.text import print_module
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import parse_kernels

F32, VECTOR, MATRIX = Type(Elem.F32), Type(Elem.F32, 1), Type(Elem.F32, 2)

KERNELS: dict[str, Kernel] = parse_kernels("""
kernel iota(y: out f32[n], a: f32, n: i64) {
  for i in 0..n { y[i] = f32(i) * a }
}
kernel plus(y: out f32[n], x: f32[n], z: f32[m], n: i64, m: i64) alias(0, 0) {
  for i in 0..n { y[i] = x[i] + z[i % m] }
}
kernel zeros(y: out f32[n], n: i64) {
  for i in 0..n { y[i] = 0.0f32 }
}
kernel table(y: out f32[n, m], a: f32, n: i64, m: i64) {
  for i in 0..n { for j in 0..m { y[i, j] = f32(m * i + j) * a } }
}
kernel total(y: out f32[], x: f32[n], n: i64) {
  y[] = 0.0f32
  for i in 0..n { y[] = y[] * 0.5f32 + x[i] }
}
""")


def main(body: str, more: str = "") -> str:
    return f"""{more}
func @main() {{
entry:
  %n = const {{value = 5}} : i64
  %zero = const {{value = 0}} : i64
  %one = const {{value = 1}} : i64
  %a = const {{value = 0.5}} : f32
  %yes = const {{value = True}} : bool
  %x = launch %n, %a, %n {{kernel = "iota"}} : f32[_]
{body}
  return
}}
"""


SHOW = '{template = (("hole", "", "leaf"),)}'


def test_a_tensor_that_is_read_later_is_copied_before_an_update() -> None:
    text = main(f"""
  %y = update %x, %zero, %a : f32[_]
  %z = update %y, %one, %a : f32[_]
  %t = format %x {SHOW} : str
  print %t
  %u = format %z {SHOW} : str
  print %u""")
    assert ops(planned(text, KERNELS).functions["main"]).count("copy") == 1
    same(text, KERNELS)


def test_the_extent_of_a_tensor_outlives_it() -> None:
    text = main("""
  %y = update %x, %zero, %a : f32[_]
  %k = dim %x {axis = 0} : i64
  %t = format %y, %k {template = (("hole", "", ("tuple", ("leaf", "leaf"))),)} : str
  print %t""")
    assert "copy" not in ops(planned(text, KERNELS).functions["main"])
    same(text, KERNELS)


def test_a_kernel_writes_over_an_input_that_dies() -> None:
    text = main(f"""
  %z = launch %n, %a, %n {{kernel = "iota"}} : f32[_]
  %y = launch %n, %x, %z, %n, %n {{kernel = "plus"}} : f32[_]
  %w = launch %n, %y, %y, %n, %n {{kernel = "plus"}} : f32[_]
  %t = format %w {SHOW} : str
  print %t""")
    assert ops(planned(text, KERNELS).functions["main"]).count("alloc") == 3, "not over `%y`, which is read twice"
    same(text, KERNELS)


def test_a_branch_frees_on_the_side_that_does_not_read() -> None:
    text = main(f"""
  branch %yes, left(%x), right
left(%y: f32[_]):
  %t = format %y {SHOW} : str
  print %t
  jump end
right:
  jump end
end:""")
    assert ops(planned(text, KERNELS).functions["main"]).count("free") == 2
    same(text, KERNELS)


SORT = """
func @reverse(%x: f32[_], %i: i64, %j: i64) -> f32[_] {
entry:
  %go = lt %i, %j : bool
  branch %go, swap, done
swap:
  %one = const {value = 1} : i64
  %p = index %x, %i : f32
  %q = index %x, %j : f32
  %y = update %x, %i, %q : f32[_]
  %z = update %y, %j, %p : f32[_]
  %i1 = add %i, %one : i64
  %j1 = sub %j, %one : i64
  %r = call %z, %i1, %j1 {callee = "reverse"} : f32[_]
  return %r
done:
  return %x
}
"""


def test_recursion_over_a_tensor_copies_nothing() -> None:
    text = main(
        f"""
  %last = sub %n, %one : i64
  %y = call %x, %zero, %last {{callee = "reverse"}} : f32[_]
  %t = format %y {SHOW} : str
  print %t""",
        SORT,
    )
    module = planned(text, KERNELS)
    assert all("copy" not in ops(f) for f in module.functions.values())
    assert all(p.context.mallocs == 1 for p in same(text, KERNELS))


PLANNED = f"""
func @main() {{
entry:
  %n = const {{value = 5}} : i64
  %a = const {{value = 0.5}} : f32
  %b = alloc %n : f32[_]
  %x = run %b, %a, %n {{kernel = "iota"}} : f32[_]
  %c = alloc : f32
  %s = run %c, %x, %n {{kernel = "total"}} : f32
  free %x
  %t = format %s {SHOW} : str
  print %t
  return
}}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("  free %x\n", "", "never freed"),
        ("  free %x\n", "  free %x\n  free %x\n", "not alive"),
        ("  %s = run", "  free %x\n  %s = run", "not alive"),
        ("  free %x\n", "  free %b\n", "not alive"),
    ],
)
def test_the_checker_sees_what_is_wrong(right: str, wrong: str, message: str) -> None:
    check_ownership(PLANNED, KERNELS)
    with pytest.raises(InternalError, match=message):
        check_ownership(PLANNED.replace(right, wrong), KERNELS)


# ---------------------------------------------------------------- random programs


class _Code:
    """Random straight and structured code over vectors of floats, all of 3 elements, and matrices with 3 rows of them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def pick(self, values: list[Value]) -> Value:
        return self.draw(st.sampled_from([v for v in values if v.type == VECTOR][-5:]))

    def scalar(self, b: Builder, values: list[Value]) -> Value:
        found = [v for v in values if v.type == F32]
        return self.draw(st.sampled_from(found[-4:])) if found else b.const(0.5, F32)

    def launch(self, b: Builder, kernel: str, operands: list[Value], type: Type) -> Value:
        return b.emit("launch", operands, [type], {"kernel": kernel}).result

    def step(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        kinds = [self.iota, self.zeros, self.plus, self.total, self.update, self.call, self.tape, self.row, self.look, self.put]
        return self.draw(st.sampled_from(kinds + [self.diamond, self.loop] * (depth > 0)))(b, values, depth)

    def extend(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        values = list(values)
        for _ in range(self.draw(st.integers(0, 4))):
            values += self.step(b, values, depth)
        return values

    def iota(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        n = b.i64(3)
        return [self.launch(b, "iota", [n, self.scalar(b, values), n], VECTOR)]

    def zeros(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        n = b.i64(3)
        return [self.launch(b, "zeros", [n, n], VECTOR)]

    def matrix(self, b: Builder, values: list[Value]) -> tuple[Value, list[Value]]:
        """A matrix, and whether it is new."""
        found = [v for v in values if v.type == MATRIX]
        if found and self.draw(st.integers(0, 3)):
            return self.draw(st.sampled_from(found[-3:])), []
        n = b.i64(3)
        made = self.launch(b, "table", [n, n, self.scalar(b, values), n, n], MATRIX)
        return made, [made]

    def row(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        """A view of a row."""
        m, new = self.matrix(b, values)
        return [*new, b.emit("view", [m, b.i64(self.draw(st.integers(0, 2))), b.i64(3)], [VECTOR]).result]

    def look(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        """A view of a whole vector."""
        return [b.emit("view", [self.pick(values), b.i64(0), b.i64(3)], [VECTOR]).result]

    def put(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        """A row of a matrix replaced, by what a kernel may make of the old one, or by any vector."""
        m, new = self.matrix(b, values)
        at, n = b.i64(self.draw(st.integers(0, 2))), b.i64(3)
        by = self.pick(values)
        if self.draw(st.booleans()):
            old = b.emit("view", [m, at, n], [VECTOR]).result
            pair = [old, by] if self.draw(st.integers(0, 3)) else [by, old]
            by = self.launch(b, "plus", [n, *pair, n, n], VECTOR)
        return [*new, b.update(m, [at], by)]

    def plus(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        x, z = self.pick(values), self.pick(values)
        n, m = b.dim(x, 0), b.dim(z, 0)
        return [self.launch(b, "plus", [n, x, z, n, m], VECTOR)]

    def total(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.pick(values)
        return [self.launch(b, "total", [x, b.dim(x, 0)], F32)]

    def update(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.pick(values)
        at = self.draw(st.integers(0, 2))
        if at == 2:
            return [b.update(x, [], self.pick(values))]
        return [b.update(x, [b.i64(at)], self.scalar(b, values)), b.index(x, b.i64(at))]

    def call(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        module = b.module
        assert module is not None
        callees = [name for name in module.functions if name != b.block.region.parent.name]  # type: ignore[union-attr]
        if not callees:
            return []
        return list(b.call(self.draw(st.sampled_from(callees)), [self.pick(values), self.pick(values), self.scalar(b, values)]))

    def tape(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        b.emit("push", [self.pick(values)], attrs=on_tape(0))
        b.emit("push", [self.scalar(b, values)], attrs=on_tape(0))
        inner = self.extend(b, values, 0)
        s = b.emit("pop", (), [F32], on_tape(0)).result
        return [*inner[len(values) :], s, b.emit("pop", (), [VECTOR], on_tape(0)).result]

    def diamond(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        end = b.new_block("end", [VECTOR, VECTOR, F32])
        sides = [b.new_block("then"), b.new_block("else")] if self.draw(st.booleans()) else [b.new_block("then"), end]
        cond = b.op("lt", self.scalar(b, values), b.const(1.0, F32))
        direct = [self.pick(values), self.pick(values), self.scalar(b, values)]
        b.branch(cond, sides[0], sides[1], (), direct if sides[1] is end else ())
        for side in sides:
            if side is not end:
                b.move_to(side)
                inner = self.extend(b, values, depth - 1)
                b.jump(end, self.pick(inner), self.pick(inner), self.scalar(b, inner))
        b.move_to(end)
        return list(end.params)

    def loop(self, b: Builder, values: list[Value], depth: int) -> list[Value]:
        head, body, done = b.new_block("loop", [I64, VECTOR, VECTOR]), b.new_block("body"), b.new_block("done")
        b.jump(head, b.i64(0), self.pick(values), self.pick(values))
        b.move_to(head)
        k, x, y = head.params
        b.branch(b.op("lt", k, b.i64(3)), body, done)
        b.move_to(body)
        inner = self.extend(b, [*values, x, y], depth - 1)
        b.jump(head, b.op("add", k, b.i64(1)), self.pick(inner), self.pick(inner))
        b.move_to(done)
        return [x, y]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The text of a module whose `main` prints everything that it has made."""
    module, code = Module(), _Code(draw)
    for name in ("f", "g"):
        _, b = new_function(name, [("x", VECTOR), ("y", VECTOR), ("a", F32)], [VECTOR, F32], module)
        values = code.extend(b, b.block.params, 1)
        b.ret(code.pick(values), code.scalar(b, values))
    _, b = new_function("main", [], [], module)
    values = code.extend(b, [*code.iota(b, [], 0), *code.iota(b, [], 0)], 2)
    shown = values if draw(st.booleans()) else values[-2:]
    b.print(b.format(tuple(("hole", "", "leaf") for _ in shown), shown))
    b.ret()
    return print_module(module)


@settings(max_examples=120, deadline=None)
@given(programs())
def test_random_programs_mean_the_same_after_the_plan(text: str) -> None:
    assert interpreted(text, KERNELS, plan=True) == interpreted(text, KERNELS)


@settings(max_examples=12, deadline=None)
@given(programs())
def test_random_programs_run_natively(text: str) -> None:
    same(text, KERNELS)
