"""What `tensor/waits.py` and its parts make of the host's code where kernels run beside it, in full."""

from __future__ import annotations

from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.waits import put_waits


def waits(params: str, body: str) -> tuple[list[str], list[str]]:
    """The lines of a `main` that returns `%v`, and the kernels that were added."""
    module, kernels = parse_module(f"func @main({params}) -> f32 {{\nentry:\n{body}  return %v\n}}\n"), dict[str, Kernel]()
    put_waits(module, kernels)
    verify(module, "host")
    return print_module(module).strip().splitlines()[2:-2], list(kernels)


def test_numbers_are_read_together() -> None:
    """Where one is needed; what only makes numbers of them is put off too."""
    before = """
  %a = alloc : f32
  %s = run %a, %x {kernel = "sum_0"} : f32
  %b = alloc : f32
  %t = run %b, %x {kernel = "sum_1"} : f32
  %u = add %s, %t : f32
  %c = alloc %n : f32[_]
  %y = run %c, %u {kernel = "map_2"} : f32[_]
  %d = alloc : f32
  %v = run %d, %y {kernel = "sum_3"} : f32
  free %y
"""
    after = """
  %0 = const {value = 0} : i64
  %1 = const {value = 1} : i64
  %s = alloc %1 : f32[_]
  %s.1 = run %s, %x {kernel = "sum_0"} : f32[_]
  %t = alloc %1 : f32[_]
  %t.1 = run %t, %x {kernel = "sum_1"} : f32[_]
  %c = alloc %n : f32[_]
  %s.2, %t.2 = extern %s.1, %0, %t.1, %0 {name = "device.load"} : f32, f32
  free %s.1
  free %t.1
  %u = add %s.2, %t.2 : f32
  %y = run %c, %u {kernel = "map_2"} : f32[_]
  %v = alloc %1 : f32[_]
  %v.1 = run %v, %y {kernel = "sum_3"} : f32[_]
  free %y
  %v.2 = extern %v.1, %0 {name = "device.load"} : f32
  free %v.1
"""
    lines, kernels = waits("%x: f32[_,_], %n: i64", before)
    assert lines == after.strip("\n").splitlines() and not kernels


def test_copies_and_single_elements() -> None:
    """A copy is a kernel, an element is read alone, and for what is written the host waits."""
    before = """
  %a = alloc %n, %m : f32[_,_]
  %y = run %a, %x {kernel = "map_0"} : f32[_,_]
  %z = copy %y : f32[_,_]
  %w = store %y, %n, %r : f32[_,_]
  %v = load %z, %m : f32
  free %w
  free %z
"""
    after = """
  %a = alloc %n, %m : f32[_,_]
  %y = run %a, %x {kernel = "map_0"} : f32[_,_]
  %0 = dim %y {axis = 0} : i64
  %1 = dim %y {axis = 1} : i64
  %2 = mul %0, %1 : i64
  %3 = alloc %0, %1 : f32[_,_]
  %z = run %3, %y, %2 {kernel = "copy_4"} : f32[_,_]
  extern {name = "device.wait"}
  %w = store %y, %n, %r : f32[_,_]
  %v = extern %z, %m {name = "device.load"} : f32
  free %w
  free %z
"""
    lines, kernels = waits("%x: f32[_,_], %n: i64, %m: i64, %r: f32", before)
    assert lines == after.strip("\n").splitlines() and kernels == ["copy_4"]


def test_loops_of_the_host_alone() -> None:
    """They have one wait, before them, and read by themselves."""
    before = """
  %a = alloc %n : f32[_]
  %y = run %a {kernel = "map_0"} : f32[_]
  %z = const {value = 0} : i64
  %one = const {value = 1} : i64
  jump head(%z, %r)
head(%k: i64, %s: f32):
  %more = lt %k, %n : bool
  branch %more, body, exit
body:
  %e = load %y, %k : f32
  %t = add %s, %e : f32
  %k1 = add %k, %one : i64
  jump head(%k1, %t)
exit:
  %c = copy %y : f32[_]
  free %y
  %v = load %c, %z : f32
  free %c
"""
    lines, _ = waits("%n: i64, %r: f32", before)
    text = "\n".join(lines)
    assert text.count("device.wait") == 1 and text.index("device.wait") < text.index("head(%k")
    assert "%e = load %y, %k" in text and "%v = extern %c, %z" in text


def test_a_long_loop_ends_its_turns_with_a_mark() -> None:
    kernels = "".join(f'  %b{k} = run %b{k - 1 if k else ""} {{kernel = "map_{k}"}} : f32[_]\n' for k in range(8))
    before = f"""
  %a = alloc %n : f32[_]
  %z = const {{value = 0}} : i64
  %one = const {{value = 1}} : i64
  jump head(%z, %a)
head(%k: i64, %b: f32[_]):
  %more = lt %k, %n : bool
  branch %more, body, exit
body:
{kernels}  %k1 = add %k, %one : i64
  jump head(%k1, %b7)
exit:
  %v = load %b, %z : f32
  free %b
"""
    text = "\n".join(waits("%n: i64", before)[0])
    assert '  extern {name = "device.mark"}\n  jump head(%k1, %b7)' in text
    text = "\n".join(waits("%n: i64", before.replace('  %b7 = run %b6 {kernel = "map_7"} : f32[_]\n', "").replace("%b7", "%b6"))[0])
    assert "device.mark" not in text
