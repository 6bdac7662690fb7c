"""What programs mean: checked, lowered and run by the interpreter of unoptimized SSA, against results worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from checked import function, run

CASES = {
    "arithmetic": (
        "print(2 ** 10, 2.0 ** -2, 7 // 2, -7 // 2, -7 % 3, 7.5 // 2.0, 1 << 4, 6 & 3, 6 ^ 3, ~0, 3 ** 3)\n"
        "print(i32(3.7), u8(300), f32(true), i64(-2.5), 7i32 // 2, 0xff)\n"
        "let n = 3\nprint(2 ** n, 2.0 ** n, 4.0 ** 0.5)\n",
        ["1024 0.25 3 -4 2 3.0 16 2 5 -1 27", "3 44 1.0 -2 3 255", "8 8.0 2.0"],
    ),
    "recursion": (
        "fn fact(n: i64) -> i64 = if n <= 1 { 1 } else { n * fact(n - 1) }\n"
        "fn even(n: i64) -> bool = if n == 0 { true } else { odd(n - 1) }\n"
        "fn odd(n: i64) -> bool = if n == 0 { false } else { even(n - 1) }\n"
        "print(fact(10), even(7), odd(7))\n",
        ["3628800 false true"],
    ),
    "early_return": (
        "fn find(x: f32[n], v: f32) -> i64 {\n  for i in 0..n { if x[i] == v { return i } }\n  -1\n}\n"
        "print(find([1.0, 2.0], 2.0), find([1.0], 4.0))\n",
        ["1 -1"],
    ),
    "loops": (
        "var s = 0\nfor i in 0..10 by 3 { s += i }\nfor i in 3..0 by -1 { s = s * 10 + i }\n"
        "var k = 0\nwhile true {\n  k += 1\n  if k % 2 == 0 { continue }\n  if k > 6 { break }\n}\nprint(s, k)\n"
        "for row in [[1, 2], [3, 4]] { print(sum(row)) }\nfor (a, b) in [[1, 2], [3, 4]] { print(a * b) }\n",
        ["18321 7", "3", "7", "2", "12"],
    ),
    "subscripts": (
        "let x = [[1, 2, 3], [4, 5, 6]]\n"
        "print(x[1, 2], x[0], x[:, 1], x[..., -1], x[1][0], x[0, 1..], x[:, ..2], x[[1, 0, 1], 0], x.T[2], x.shape[1], len(x))\n",
        ["6 [1 2 3] [2 5] [3 6] 4 [2 3] [[1 2]", " [4 5]] [4 1 4] [3 6] 3 2"],
    ),
    "assignments": (
        "var x = [1, 2, 3, 4, 5]\nx[1..3] = [20, 30]\nx[4] += 1\nlet y = x\nx[[0, 0, 1]] += [1, 1, 1]\nprint(x, y)\n"
        "var m = [[1.0, 2.0], [3.0, 4.0]]\nm[:, 1] = [7.0, 8.0]\nm[0, :] *= 2.0\nm[1] = 0.5 * m[0]\nprint(m)\n"
        "var (a, b) = (1, 2)\n(a, b) = (b, a)\nprint(a, b)\n",
        ["[ 3 21 30  4  6] [ 1 20 30  4  6]", "[[ 2. 14.]", " [ 1.  7.]]", "2 1"],
    ),
    "integer_tensors_in_a_subscript": (
        "var x = for[i < 4, j < 4] i * 10 + j\nprint(x[[0, 1, 2], [3, 2, 1]], x[[[0, 1], [2, 3]], [[0, 0], [1, 1]]])\n"
        "x[[0, 1], [1, 0]] = [100, 200]\nx[[0, 0], [1, 1]] += [1, 2]\nprint(x[0], x[1])\n"
        "let k = for[i < 2, j < 3, l < 3] 9 * i + 3 * j + l\nprint(k[:, [0, 1], [1, 2]], k[[0, 1], :, [1, 2]])\n",
        ["[ 3 12 21] [[ 0 10]", " [21 31]]", "[  0 103   2   3] [200  11  12  13]", "[[ 1  5]", " [10 14]] [[ 1  4  7]", " [11 14 17]]"],
    ),
    "assignments_through_slices": (
        "struct Lin { w: f32[2, 3], t: (f32, i64) }\nstruct Net(L) { blocks: Lin[L] }\n"
        "var m = Net(blocks = for[i < 4] Lin(w = zeros(2, 3), t = (0.0, 0)))\n"
        "m.blocks[2..4].w[0] = ones(2, 3)\nm.blocks[1..3].w[:, 1, 0] += 5.0\nm.blocks[[0, 3]].w[0..2, 1] = [[7.0, 7.0, 7.0], [8.0, 8.0, 8.0]]\n"
        "m.blocks[1..3].t[0] = [3.5, 4.5]\nm.blocks[0..2].t = ([1.5, 2.5], [3, 4])\n"
        "print(m.blocks.w[:, :, 0], m.blocks.t[0], m.blocks.t[1])\n"
        "var x = for[i < 4, j < 4] 10 * i + j\nx[:, 3] += 1000\nx[1..3, 0] = 7\nx[..., -2][1..] = -1\nx[[3, 2]][0] = 9\nprint(x)\n"
        "var (a, b) = (1, 2)\n((a, x[0, 0]), b) = ((b, a), 30)\nprint(a, b, x[0, 0])\n",
        ["[[0. 7.]", " [0. 5.]", " [1. 6.]", " [0. 8.]] [1.5 2.5 4.5 0. ] [3 4 0 0]", "[[   0    1    2 1003]", " [   7   11   -1 1013]",
         " [   7   21   -1 1023]", " [   9    9    9    9]]", "2 30 1"],
    ),
    "reductions": (
        "let m = [[1.0, 5.0], [3.0, 4.0]]\n"
        "print(sum(m), prod(m), max(m), min(m), mean(m), argmax(m), max(m, axis = 0), sum(m, axis = -1), argmax(m, axis = 1))\n"
        "print(any(m > 4.5), all(m > 1.5), argmin[i, j] m[i, j], sum[i, j < i] m[i, j], max(1, 2, 3), min(2.5, 1.0))\n"
        "print(sum[i < 0] 1, prod[i < 0] 1.5, any[i < 0] true, all[i < 0] false)\n",
        ["13.0 60.0 5.0 1.0 3.25 1 [3. 5.] [6. 7.] [1 1]", "true false (0, 0) 3.0 3 1.0", "0 1.0 false true"],
    ),
    "structs": (
        "struct Linear(I, O) { w: f32[I, O], b: f32[O] }\n"
        "fn linear(l: Linear(I, O), x: f32[I]) -> f32[O] = x @ l.w + l.b\n"
        "let l = Linear(b = [10.0, 20.0], w = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])\n"
        "print(linear(l, [1.0, 1.0, 1.0]), linear(l, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))\n"
        "print(l.I, l.O, l.w.shape, (l - 0.5 * l).b, sum(l), norm(Linear(w = [[3.0]], b = [4.0])))\n",
        ["[19. 32.] [[11. 22.]", " [13. 24.]]", "3 2 (3, 2) [ 5. 10.] 51.0 5.0"],
    ),
    "struct_arrays": (
        "struct Block { w: f32[2, 2], b: f32[2] }\nstruct Net(L) { blocks: Block[L], name: str }\n"
        "fn step(p: Block, x: f32[2]) -> f32[2] = relu(x @ p.w + p.b)\n"
        'var net = Net(blocks = for[i < 3] Block(w = [[f32(i), 0.0], [0.0, 1.0]], b = [0.5, -0.5]), name = "net")\n'
        "var h = [1.0, -2.0]\nfor b in net.blocks { h = step(b, h) }\nprint(h, net.blocks.w.shape, net.L)\n"
        "print(step(net.blocks, h))\nnet.blocks[1].b[0] = 9.0\nprint(net.blocks[1], net.name)\n",
        ["[2.5 0. ] (3, 2, 2) 3", "[[0.5 0. ]", " [3.  0. ]", " [5.5 0. ]]", "Block(w = [[1. 0.]", " [0. 1.]], b = [ 9.  -0.5]) net"],
    ),
    "functions_as_arguments": (
        "fn integrate(f: fn(f64) -> f64, a: f64, b: f64, n: i64 = 100) -> f64 {\n"
        "  let h = (b - a) / f64(n)\n  h * sum[i < n] f(a + (f64(i) + 0.5) * h)\n}\n"
        "fn twice(f: fn(f64) -> f64, x: f64) -> f64 = f(f(x))\n"
        "fn again(f: fn(f64) -> f64, x: f64) -> f64 = twice(f, twice(fn(y) => f(y) + 1.0, x))\n"
        'let scale = 3.0\nlet cube = fn(x) => x * x * x\nprint("{integrate(fn(x) => x * scale, 0.0, 1.0):.6f} {twice(cube, 2.0)}")\n'
        "print(again(fn(x) => 2.0 * x, 1.0))\n"
        'var v = 1.0\nlet add = fn(x) => x + v\nv = 100.0\nprint(add(1.0), "{integrate(exp, 0.0, 1.0, n = 1000):.3f}")\n',
        ["1.500000 512.0", "28.0", "2.0 1.718"],
    ),
    "generics": (
        "fn square[T: num](x: T) -> T = x * x\nstruct Pair(P: tree) { one: P, two: P, count: i64 }\n"
        "fn pair[P: tree](p: P) -> Pair(P) = Pair(one = p, two = p, count = 2)\n"
        "let p = pair(([1.0, 2.0], 3.0))\nprint(square(3), square(1.5), square([1.0f64, 2.0]), p.two[0][1] + p.one[1], p.count)\n",
        ["9 2.25 [1. 4.] 5.0 2"],
    ),
    "open_literals": (
        "const G = 9.81\nconst N = 2 * 3\nconst TABLE = [1.0, 2.0, 3.0]\n"
        "let a = zeros(2) + 1.0f64\nlet b = [1, 2.5]\nvar c = 0\nc = c + 1.5\n"
        "print(a, b, c, G * 2.0f64, N, TABLE[2], eye(2), one_hot(1, 3))\n",
        ["[1. 1.] [1.  2.5] 1.5 19.62 6 3.0 [[1 0]", " [0 1]] [0 1 0]"],
    ),
    "making": (
        "print(zeros(2), ones(2, 1), full(7, 2), concat([1, 2], [3]), stack([1, 2], [3, 4], axis = 1), "
        "reshape([1, 2, 3, 4], 2, -1), pad([1, 2], 1, 2))\n",
        ["[0. 0.] [[1.]", " [1.]] [7 7] [1 2 3] [[1 3]", " [2 4]] [[1 2]", " [3 4]] [0 1 2 0 0]"],
    ),
    "text": (
        'let (a, b) = (1, "two")\nlet x = [1.0, 2.25]\nprint("{a} {b} {{}} {x:.1f} {a:03d}", true, (1, 2.0))\nprint()\nprint("end")\n',
        ["1 two {} [1.0 2.2] 001 true (1, 2.0)", "", "end"],
    ),
    "unknown_dimensions": (
        "fn positive(x: i64[n]) -> i64[?] {\n  var out: i64[?] = zeros(0)\n  for v in x { if v > 0 { out = concat(out, [v]) } }\n  out\n}\n"
        "let y: i64[k] = positive([1, -1, 2])\nlet z = y as i64[2]\nprint(y, k, z + [1, 1])\n"
        "var w: i64[?] = y\nwhile len(w) < 5 { w = concat(w, w) }\nprint(w, sum[i] w[i] * w[i])\n",
        ["[1 2] 2 [2 3]", "[1 2 1 2 1 2 1 2] 20"],
    ),
    "foreign": (
        "extern fn labs(x: i64) -> i64\nextern fn abs(x: i32) -> i32\nextern fn powf(x: f32, y: f32) -> f32\n"
        "extern fn fmax(x: f64, y: f64) -> f64\nextern fn srand(seed: u32)\nextern fn rand() -> i32\n"
        "print(labs(-5), abs(-3i32), powf(2.0, 3.0), fmax([1.0, 4.0], 2.0))\n"
        "srand(7u32)\nlet first = rand()\nsrand(7u32)\nprint(first == rand())\n",
        ["5 3 8.0 [2. 4.]", "true"],
    ),
    "lifting": (
        "fn add(x: f32, y: f32) -> f32 = x + y\nfn momentum(p: f32, g: f32) -> (f32, f32) = (p - g, 0.5 * g)\n"
        "struct M { a: f32[2], n: i64 }\nlet m = M(a = [1.0, 2.0], n = 7)\nlet (p, v) = momentum(m, m + 1.0)\n"
        "print(add([1.0, 2.0], 3.0), add([[1.0, 2.0], [3.0, 4.0]], [10.0, 20.0]), p, v.a, v.n)\n",
        ["[4. 5.] [[11. 22.]", " [13. 24.]] M(a = [-1. -1.], n = 7) [1.  1.5] 7"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_output(name: str) -> None:
    text, expected = CASES[name]
    assert run(text) == expected


def test_a_lifted_key_is_folded() -> None:
    """Element i of a lifted call gets `fold(k, i)`; a scalar call of the folded key gives the same number."""
    text = "fn noisy(k: key, x: f32) -> f32 = x + normal(k)\n"
    text += "let k = key(3)\nprint(noisy(fold(k, 1), 0.0))\nprint(noisy(k, [0.0, 0.0])[1])\n"
    one, lifted = run(text)
    assert one == lifted


def test_random_numbers_depend_on_the_position_alone() -> None:
    text = "let k = key(5)\nlet a = normal(fold(k, 0), 2, 3)\nprint(a[1, 2])\nprint(normal(fold(k, 0), 6)[5])\n"
    first, second = run(text)
    assert first == second


def test_open_random_numbers_follow_their_use() -> None:
    """`normal` of an f64 draws other bits than that of an f32: it is not a converted f32."""
    (wide,) = run("let x = normal(key(1)) + 0.0f64\nprint(x)\n")
    assert float(wide) != float(np.float32(float(wide)))


def test_no_access_of_a_convolution_is_checked() -> None:
    text = (
        "fn conv(x: f32[c, h, w], k: f32[o, c, 3, 3]) -> f32[o, h - 2, w - 2] =\n"
        "  for[o, i < h - 2, j < w - 2] sum[c, p, q] x[c, i + p, j + q] * k[o, c, p, q]\n"
    )
    assert "?" not in function(text, "conv")


@pytest.mark.parametrize(
    "text",
    [
        "fn f(x: f32[n]) -> f32 {\n  var s = 0.0\n  for i in 1..n { s += x[i] - x[i - 1] }\n  s\n}\n",
        "fn f(x: f32[n]) -> f32 {\n  var s = 0.0\n  for i in n - 1..-1 by -1 { s += x[i] }\n  s\n}\n",
        "fn f(x: f32[n]) -> f32[n] = for[i < n] x[n - 1 - i]\n",
        "fn f(x: f32[n]) -> f32[n // 4, 4] = for[i < n // 4, j < 4] x[i * 4 + j]\n",
        "fn f(x: f32[2, n, 4]) -> f32[n, 8] = for[i < n, c < 8] x[c // 4, i, c % 4]\n",
        "fn f(x: f32[n, n]) -> f32 = sum[i < n, j < i] x[i, j]\n",
        "fn f(x: f32[n]) -> f32[n] = x[0..n]\n",
    ],
)
def test_provable_accesses_are_not_checked(text: str) -> None:
    """An index or slice that cannot be out of range needs no check at run time."""
    body = function(text, "f")
    assert "?" not in body and "check" not in body
