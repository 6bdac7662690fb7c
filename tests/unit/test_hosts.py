"""Host functions as native code, by every backend that makes it, against the interpreter; and what only native code has: the stop flag,
the stack, memory.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from native_run import HOW, native, natively, planned, same
from ssa_services import Recorder

from tlc.backends.llvm.host import emit_llvm
from tlc.driver.options import Options
from tlc.ssa.interp import Stop
from tlc.ssa.ir import walk
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import parse_kernels

every_host = pytest.mark.parametrize("how", HOW, ids=lambda how: f"{how.host} {how.registers}")

SHOW = '{template = (("hole", "", "leaf"),)}'

KERNELS: dict[str, Kernel] = parse_kernels("""
kernel ones(y: out bool[n], n: i64) {
  for i in 0..n { y[i] = true }
}
kernel zeros(y: out i64[n], n: i64) {
  for i in 0..n { y[i] = 0 }
}
kernel iota(y: out f32[n, m], n: i64, m: i64) {
  for i in 0..n { for j in 0..m { y[i, j] = f32(i * m + j) } }
}
kernel total(y: out f32[], x: f32[n, m], n: i64, m: i64) {
  y[] = 0.0f32
  for i in 0..n { for j in 0..m { y[] = y[] + x[i, j] } }
}
kernel double(y: out f32[n, m], x: f32[n, m], n: i64, m: i64) alias(0, 0) {
  for i in 0..n { for j0 in 0..m by 8 { vector<8> j in j0..min(j0 + 8, m) { y[i, j] = x[i, j] * 2.0f32 } } }
}
""")

SIEVE = """
func @main() {
entry:
  %n = const {value = 1000} : i64
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %two = const {value = 2} : i64
  %no = const {value = False} : bool
  %a = launch %n, %n {kernel = "ones"} : bool[_]
  jump outer(%a, %two, %zero)
outer(%s: bool[_], %p: i64, %count: i64):
  %size = dim %s {axis = 0} : i64
  %more = lt %p, %size : bool
  branch %more, look, done
look:
  %prime = index %s, %p : bool
  %count1 = add %count, %one : i64
  %q = mul %p, %p : i64
  branch %prime, inner(%s, %q), next(%s, %count)
inner(%t: bool[_], %j: i64):
  %size2 = dim %t {axis = 0} : i64
  %more2 = lt %j, %size2 : bool
  branch %more2, cross, found
cross:
  %t1 = update %t, %j, %no : bool[_]
  %j1 = add %j, %p : i64
  jump inner(%t1, %j1)
found:
  jump next(%t, %count1)
next(%s1: bool[_], %count2: i64):
  %p1 = add %p, %one : i64
  jump outer(%s1, %p1, %count2)
done:
  %text = format %count {template = ("primes: ", ("hole", "", "leaf"))} : str
  print %text
  return
}
"""


def test_the_sieve_counts_in_place() -> None:
    module = planned(SIEVE, KERNELS)
    ops = [i.op for i in walk(module.functions["main"].body)]
    assert "copy" not in ops and ops.count("alloc") == 1 and ops.count("free") == 1
    programs = same(SIEVE, KERNELS)
    assert [p.context.mallocs for p in programs] == [1] * len(HOW)
    assert all(dict(p.calls) == {"format": 1, "print": 1} for p in programs)


FIB = f"""
func @fib(%n: i64) -> i64 {{
entry:
  %one = const {{value = 1}} : i64
  %two = const {{value = 2}} : i64
  %small = lt %n, %two : bool
  branch %small, base, step
base:
  return %n
step:
  %a = sub %n, %one : i64
  %b = sub %n, %two : i64
  %x = call %a {{callee = "fib"}} : i64
  %y = call %b {{callee = "fib"}} : i64
  %z = add %x, %y : i64
  return %z
}}
func @main() {{
entry:
  %n = const {{value = 18}} : i64
  %f = call %n {{callee = "fib"}} : i64
  %t = format %f {SHOW} : str
  print %t
  return
}}
"""


def test_recursion() -> None:
    same(FIB)


def deep(depth: int) -> str:
    return f"""
func @down(%n: i64) -> i64 {{
entry:
  %zero = const {{value = 0}} : i64
  %one = const {{value = 1}} : i64
  %end = le %n, %zero : bool
  branch %end, stop, more
stop:
  return %zero
more:
  %m = sub %n, %one : i64
  %r = call %m {{callee = "down"}} : i64
  %a = mul %r, %r : i64
  %b = add %a, %one : i64
  %c = floordiv %b, %n : i64
  return %c
}}
func @main() {{
entry:
  %n = const {{value = {depth}}} : i64
  %r = call %n {{callee = "down"}} : i64
  %t = format %r {SHOW} : str
  print %t
  return
}}
"""


def test_deep_recursion_runs_and_endless_recursion_stops() -> None:
    same(deep(20000))
    (lines, message), _ = natively(deep(10**12), {})
    assert lines == [] and message == "the recursion of `down` is too deep"


CHECKED = """
func @main() {{
entry:
  %i = const {{value = {i}}} : i64
  %n = const {{value = 10}} : i64
  %x = const {{value = 0.1}} : f32
  %who = const {{value = "it"}} : str
  %b = const {{value = True}} : bool
  %small = const {{value = -7}} : i8
  %ok = lt %i, %n : bool
  check %ok, %i, %n, %x, %who, %b, %small {{kind = "index", message = "{{0}} of {{1}}, {{2}} {{3}} {{4}} {{5}}"}}
  print %who
  return
}}
"""


def test_a_check_stops_with_its_values() -> None:
    same(CHECKED.format(i=3))
    same(CHECKED.format(i=12))
    (lines, message), _ = natively(CHECKED.format(i=12), {})
    assert lines == [] and message == "12 of 10, 0.1 it true -7"


TENSORS = f"""
func @twice(%x: f32[_,_], %i: i64) -> f32[_,_] {{
entry:
  %zero = const {{value = 0}} : i64
  %five = const {{value = 5.0}} : f32
  %y = update %x, %i, %zero, %five : f32[_,_]
  return %y
}}
func @peek(%x: f32[_,_]) -> f32 {{
entry:
  %zero = const {{value = 0}} : i64
  %v = index %x, %zero, %zero : f32
  return %v
}}
func @main() {{
entry:
  %zero = const {{value = 0}} : i64
  %one = const {{value = 1}} : i64
  %n = const {{value = 3}} : i64
  %m = const {{value = 4}} : i64
  %w = const {{value = 12}} : i64
  %x = launch %n, %m, %n, %m {{kernel = "iota"}} : f32[_,_]
  %s = launch %x, %n, %m {{kernel = "total"}} : f32
  %d = launch %n, %m, %x, %n, %m {{kernel = "double"}} : f32[_,_]
  %d2 = launch %n, %m, %d, %n, %m {{kernel = "double"}} : f32[_,_]
  %row = index %x, %one : f32[_]
  %d3 = update %d2, %zero, %row : f32[_,_]
  %d4 = call %d3, %one {{callee = "twice"}} : f32[_,_]
  %d5 = call %d4, %one {{callee = "twice"}} : f32[_,_]
  %p = call %d5 {{callee = "peek"}} : f32
  %flat = reshape %d5, %w : f32[_]
  push %flat {{tape = 0}}
  push %x {{tape = 0}}
  push %p {{tape = 0}}
  %p1 = pop {{tape = 0}} : f32
  %x1 = pop {{tape = 0}} : f32[_,_]
  %flat1 = pop {{tape = 0}} : f32[_]
  %t = format %x1, %s, %d, %d4, %p1, %flat1 {{template = (("hole", "", ("tuple", {("leaf",) * 6})),)}} : str
  print %t
  %same = eq %t, %t : bool
  %u = format %same {SHOW} : str
  print %u
  return
}}
"""


def test_tensors_are_borrowed_moved_and_copied() -> None:
    same(TENSORS, KERNELS)
    module = planned(TENSORS, KERNELS)
    assert [i.op for i in walk(module.functions["twice"].body)].count("copy") == 0, "the caller gives the tensor up"
    runs = [i for i in walk(module.functions["main"].body) if i.op == "run" and i.attrs["kernel"] == "double"]
    assert len(runs) == 2, "`%x` and `%d` are printed later, so neither is written over"


STEPS = f"""
func @main() {{
entry:
  %zero = const {{value = 0}} : i64
  %one = const {{value = 1}} : i64
  %n = const {{value = 4}} : i64
  %m = const {{value = 13}} : i64
  %steps = const {{value = 50}} : i64
  %label = const {{value = "steps"}} : str
  %x = launch %n, %m, %n, %m {{kernel = "iota"}} : f32[_,_]
  %bar = progress_begin %label, %steps : i64
  jump loop(%x, %zero)
loop(%y: f32[_,_], %i: i64):
  %more = lt %i, %steps : bool
  branch %more, body, done
body:
  %t = launch %n, %m, %n, %m {{kernel = "iota"}} : f32[_,_]
  %a = launch %n, %m, %t, %n, %m {{kernel = "double"}} : f32[_,_]
  %s = launch %y, %n, %m {{kernel = "total"}} : f32
  %b = update %a, %zero, %zero, %s : f32[_,_]
  progress_tick %bar, %i
  %j = add %i, %one : i64
  jump loop(%b, %j)
done:
  progress_end %bar
  %r = launch %y, %n, %m {{kernel = "total"}} : f32
  %text = format %r {SHOW} : str
  print %text
  return
}}
"""


def test_a_step_asks_for_no_memory_and_seldom_calls_python() -> None:
    for program in same(STEPS, KERNELS):
        assert program.context.mallocs == 2
        assert program.calls["progress_tick"] <= 2
        assert isinstance(program.services, Recorder) and program.services.progress[0] == ("begin", "steps", 50)


ENDLESS = """
func @main() {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  jump loop(%zero)
loop(%i: i64):
  %j = add %i, %one : i64
  %more = ge %j, %zero : bool
  branch %more, loop(%j), done
done:
  return
}
"""


@every_host
def test_the_stop_flag_ends_a_loop(how: Options) -> None:
    program = native(planned(ENDLESS, {}), {}, Recorder(), how)
    threading.Timer(0.05, lambda: setattr(program.context, "stop", 1)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        program.run()
    assert time.monotonic() - began < 5


@every_host
def test_ctrl_c_ends_a_run(how: Options) -> None:
    program = f"""
import sys
from native_run import native
from ssa_services import Recorder
from tlc.driver.options import Options
from tlc.ssa.text import parse_module
module = parse_module({ENDLESS!r})
print("ready", flush=True)
try:
    native(module, {{}}, Recorder(), {how}).run()
except KeyboardInterrupt:
    sys.exit(130)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parent) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        try:
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        finally:
            process.kill()


EXTERN = """
func @main() {
entry:
  %two = const {value = 2} : i64
  %n = const {value = 2.5} : f64
  %s = const {value = "abc"} : str
  %x = launch %two, %two, %two, %two {kernel = "iota"} : f32[_,_]
  %name, %a, %b, %c = extern %n, %s, %x {name = "world"} : str, f64, str, f32[_,_]
  %t = format %name, %a, %b, %c {template = (("hole", "", ("tuple", ("leaf", "leaf", "leaf", "leaf"))),)} : str
  print %t
  return
}
"""


def test_an_extern_takes_and_gives_all_kinds() -> None:
    same(EXTERN, KERNELS)


@every_host
def test_a_failing_service_ends_the_run(how: Options) -> None:
    class Broken(Recorder):
        def print(self, text: str) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        native(planned(FIB, {}), {}, Broken(), how).run()


@every_host
def test_no_memory_is_a_stop(how: Options) -> None:
    text = f"""
func @main() {{
entry:
  %n = const {{value = {2**61}}} : i64
  %x = launch %n, %n {{kernel = "zeros"}} : i64[_]
  %zero = const {{value = 0}} : i64
  %v = index %x, %zero : i64
  %t = format %v {SHOW} : str
  print %t
  return
}}
"""
    with pytest.raises(Stop, match="there is no memory for a tensor of"):
        native(planned(text, KERNELS), KERNELS, Recorder(), how).run()


def test_an_unstopped_program_has_all_its_text() -> None:
    text = emit_llvm(planned(STEPS, KERNELS), KERNELS)
    assert 'define i32 @"k.double"' in text and 'define {' in text


ESCAPE = f"""
func @count(%c: f64, %most: i64) -> i64 {{
entry:
  %zero = const {{value = 0}} : i64
  %one = const {{value = 1}} : i64
  %start = const {{value = 0.0}} : f64
  %limit = const {{value = 4.0}} : f64
  jump loop(%start, %zero)
loop(%z: f64, %i: i64):
  %z2 = mul %z, %z : f64
  %z3 = add %z2, %c : f64
  %inside = lt %z3, %limit : bool
  %early = lt %i, %most : bool
  %go = and %inside, %early : bool
  branch %go, next, done
next:
  %j = add %i, %one : i64
  jump loop(%z3, %j)
done:
  return %i
}}
func @main() {{
entry:
  %n = const {{value = 21}} : i64
  %most = const {{value = 50}} : i64
  %x = launch %n, %n, %most {{kernel = "escape"}} : i64[_]
  %t = format %x {SHOW} : str
  print %t
  return
}}
"""


@every_host
def test_a_kernel_applies_a_function_of_the_host(how: Options) -> None:
    kernels = parse_kernels("""
kernel escape(y: out i64[n], n: i64, most: i64) can_fail {
  for i0 in 0..n by 8 {
    vector<8> i in i0..min(i0 + 8, n) { y[i] = @"count":i64(f64(i) * 0.125f64 - 1.0f64, most) }
  }
}
""")
    (lines, message), program = natively(ESCAPE, kernels, how)
    assert message == "" and program.context.used == 0
    expected = []
    for i in range(21):
        z, k = 0.0, 0
        while z * z + (i * 0.125 - 1.0) < 4.0 and k < 50:
            z, k = z * z + (i * 0.125 - 1.0), k + 1
        expected.append(k)
    assert [int(w) for w in lines[0].strip("[]").split()] == expected
