"""Parts of tensors are read and written where they lie: what is copied, what the checker refuses, and that all backends agree."""

from __future__ import annotations

import pytest
from native_run import check_ownership, ops, planned, same

from tlc.frontend.diagnostics import InternalError
from tlc.ssa.ir import walk
from tlc.tensor.graph.text import parse_graph
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import parse_kernels
from tlc.tensor.views import as_part, find_parts

KERNELS: dict[str, Kernel] = parse_kernels("""
kernel table(y: out f32[n, 3], n: i64) {
  for i in 0..n { for j in 0..3 { y[i, j] = f32(i * 3 + j) } }
}
kernel plus(y: out f32[3], x: f32[3], z: f32[m], m: i64) alias(0, 0) {
  for i in 0..3 { y[i] = x[i] + z[i % m] }
}
kernel shift(y: out f32[3], x: f32[3]) {
  for i in 0..3 { y[i] = x[(i + 1) % 3] }
}
kernel zeros(y: out f32[3]) {
  for i in 0..3 { y[i] = 0.0f32 }
}
""")


def main(body: str) -> str:
    return f"""
func @main() {{
entry:
  %n = const {{value = 4}} : i64
  %zero = const {{value = 0}} : i64
  %one = const {{value = 1}} : i64
  %two = const {{value = 2}} : i64
  %three = const {{value = 3}} : i64
  %a = const {{value = 0.5}} : f32
  %x = launch %n, %three, %n {{kernel = "table"}} : f32[_,_]
{body}
  return
}}
"""


def show(*names: str) -> str:
    return "\n".join(f'  %t{n} = format %{n} {{template = (("hole", "", "leaf"),)}} : str\n  print %t{n}' for n in names)


def planned_ops(text: str) -> list[str]:
    return ops(planned(text, KERNELS).functions["main"])


def test_a_part_and_a_slice_are_read_where_they_lie() -> None:
    text = main(f"""
  %r = view %x, %two, %three : f32[_]
  %s = view %x, %one, %two, %three : f32[_,_]
  %q = view %s, %one, %three : f32[_]
  %y = launch %three, %r, %q, %three {{kernel = "plus"}} : f32[_]
{show("r", "s", "y")}""")
    assert "copy" not in planned_ops(text)
    assert planned_ops(text).count("alloc") == 2
    same(text, KERNELS)


def test_a_view_keeps_what_it_looks_at_alive() -> None:
    text = main(f"""
  %r = view %x, %two, %three : f32[_]
  %z = launch %three {{kernel = "zeros"}} : f32[_]
  %y = launch %three, %z, %r, %three {{kernel = "plus"}} : f32[_]
{show("y")}""")
    found = planned_ops(text)
    assert found.index("free") > len(found) - 1 - found[::-1].index("run"), "`%x` is freed behind the last kernel"
    same(text, KERNELS)


def test_a_view_is_copied_where_the_other_changes_and_not_the_other() -> None:
    text = main(f"""
  %r = view %x, %two, %three : f32[_]
  %w = update %x, %two, %zero, %a : f32[_,_]
{show("r", "w")}""")
    copies = [i for i in walk(planned(text, KERNELS).functions["main"].body) if i.op == "copy"]
    assert [c.result.type.rank for c in copies] == [1]
    same(text, KERNELS)


def test_who_takes_a_view_gets_a_copy() -> None:
    text = main(f"""
  %r = view %x, %two, %three : f32[_]
  %w = update %r, %zero, %a : f32[_]
{show("w", "x")}""")
    assert planned_ops(text).count("copy") == 1
    same(text, KERNELS)


def test_a_part_becomes_another_part_of_the_same_tensor() -> None:
    text = main(f"""
  %r = view %x, %two, %three : f32[_]
  %w = update %x, %one, %r : f32[_,_]
{show("w")}""")
    assert planned_ops(text).count("copy") == 1
    same(text, KERNELS)


ACCUMULATE = f"""
  %d = view %x, %two, %three : f32[_]
  %y = launch %three, %d, %d, %three {{kernel = "plus"}} : f32[_]
  %w = update %x, %two, %y : f32[_,_]
{show("w")}"""


def test_a_result_is_written_over_the_part_that_it_replaces() -> None:
    text = main(ACCUMULATE.replace("%d, %d", "%d, %q").replace("%y =", '%q = launch %three {kernel = "zeros"} : f32[_]\n  %y ='))
    found = planned_ops(text)
    assert "copy" not in found
    assert "update" not in found
    assert found.count("split") == found.count("join") == 1
    assert found.count("alloc") == 2, "`%x` and what is added"
    same(text, KERNELS)


def test_a_kernel_that_reads_the_part_otherwise_gets_a_buffer() -> None:
    for text in (
        main(ACCUMULATE),  # once element by element, once not
        main(ACCUMULATE.replace('%d, %d, %three {kernel = "plus"}', '%d {kernel = "shift"}')),
        main(ACCUMULATE.replace("view %x, %two", "view %x, %one")),  # another part: the kernel must not read what it has not written
    ):
        assert "split" not in planned_ops(text)
        same(text, KERNELS)


def test_a_tensor_that_is_needed_meanwhile_is_not_split() -> None:
    text = main(f"""
  %y = launch %three {{kernel = "zeros"}} : f32[_]
{show("x")}
  %w = update %x, %two, %y : f32[_,_]
{show("w")}""")
    assert "split" not in planned_ops(text)
    same(text, KERNELS)


def test_rows_of_a_loop_are_made_in_their_places() -> None:
    text = main(f"""
  jump head(%zero, %x)
head(%i: i64, %y: f32[_,_]):
  %go = lt %i, %n : bool
  branch %go, body, done
body:
  %r = view %y, %i, %three : f32[_]
  %z = launch %three, %r {{kernel = "shift"}} : f32[_]
  %s = launch %three, %r, %z, %three {{kernel = "plus"}} : f32[_]
  %v = update %y, %i, %s : f32[_,_]
  %j = add %i, %one : i64
  jump head(%j, %v)
done:
{show("y")}""")
    assert {"copy", "update"}.isdisjoint(planned_ops(text))
    assert all(p.context.mallocs == 2 for p in same(text, KERNELS)), "`%x` and, again and again, `%z`"


def test_a_constant_tensor_is_filled_again_and_not_copied() -> None:
    text = main(f"""
  %z = launch %three {{kernel = "zeros"}} : f32[_]
  jump head(%zero, %x)
head(%i: i64, %y: f32[_,_]):
  %go = lt %i, %n : bool
  branch %go, body, done
body:
  %u = store %z, %i, %a : f32[_]
  %v = update %y, %i, %u : f32[_,_]
  %j = add %i, %one : i64
  jump head(%j, %v)
done:
{show("y")}""").replace("store %z, %i", "store %z, %one")
    assert "copy" not in planned_ops(text)
    assert all(p.context.mallocs == 2 for p in same(text, KERNELS))


SPLIT = """
func @main() {
entry:
  %n = const {value = 4} : i64
  %two = const {value = 2} : i64
  %three = const {value = 3} : i64
  %b = alloc %n, %three : f32[_,_]
  %x = run %b, %n {kernel = "table"} : f32[_,_]
  %r = view %x, %two, %three : f32[_]
  %c = alloc %three : f32[_]
  %s = run %c, %r {kernel = "shift"} : f32[_]
  %rest, %p = split %x, %two : f32[_,_], f32[_]
  %y = run %p, %p, %s, %three {kernel = "plus"} : f32[_]
  %w = join %rest, %y : f32[_,_]
  free %s
  free %w
  return
}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("%p, %p, %s", "%p, %p, %r", "read but not alive"),
        ("  free %s\n", "  free %s\n  free %r\n", "not alive"),
        ("  %w = join %rest, %y : f32[_,_]\n  free %s\n  free %w", "  free %s\n  free %y\n  free %rest", "while it is split"),
        ("%w = join %rest, %y", "%v = join %rest, %s", "not split"),
        ("run %p, %p, %s", "run %s, %p, %s", "used otherwise"),
    ],
)
def test_the_checker_sees_what_is_wrong(right: str, wrong: str, message: str) -> None:
    check_ownership(SPLIT, KERNELS)
    with pytest.raises(InternalError, match=message):
        check_ownership(SPLIT.replace(right, wrong).replace("free %w", "free %v" if "%v" in wrong else "free %w"), KERNELS)


GRAPH = """
graph g {
  scalar n: i64 extent
  scalar row: i64
  input m: f32[8, n, 4]
  node y: f32[n] = for i0 < n {
    sum chain i1 < 4 of m[row, i0, i1], m[row, i0, i1]
    yield acc0 + m[row + 1, i0, 0] + m[2, i0, 0] + m[row, i0, 1 if i0 < 2]
  }
  node part: f32[n, 4] = for i0 < n, i1 < 4 { yield m[row, i0, i1] }
  node slice: f32[2, n, 4] = for i0 < 2, i1 < n, i2 < 4 { yield m[i0 + row, i1, i2] }
  node turned: f32[4, n] = for i0 < 4, i1 < n { yield m[row, i1, i0] }
  keep y
  keep part
  keep slice
  keep turned
}
"""


def test_parts_in_a_graph() -> None:
    graph, parts = find_parts(parse_graph(GRAPH))
    y, part, slice, turned = graph.nodes
    assert [(p.base.name, len(p.start), len(p.shape)) for p in parts.values()] == [("m", 1, 2)] * 2, "at `row` and `row + 1`"
    assert sorted(t.name for t in y.sources) == ["m", "m.part", "m.part2"], "a constant index and a guarded load stay"
    found = [as_part(n) for n in (y, part, slice, turned)]
    assert [p and (p.base in parts, len(p.start)) for p in found] == [None, (True, 0), (False, 1), None]
