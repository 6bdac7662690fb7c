"""The language page from values to printing, rule by rule: what small programs print, where they stop, what the compiler refuses.

What other tests show already is not here again. A stop is the last line of what is printed. Expected lines are worked out by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from checked import codes
from whole_program import both, options

from tlc.driver import pipeline
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.source import Source
from tlc.ssa.ir import walk

# fmt: off
PRINTS: dict[str, tuple[str, list[str]]] = {
    # ---------------------------------------------------------------- values and mutation
    "an assignment to a part is seen by no other name": (
        "struct In { w: f32[2], t: (i64, i64) }\nstruct M { a: In[2], n: i64 }\n"
        "fn touched(m: M) -> M { var c = m\n c.a[1].w[0] = 9.0\n c.a[0].t[1] = 8\n c.n += 1\n c }\n"
        "let m = M(a = for[i < 2] In(w = zeros(2), t = (i, i)), n = 1)\nvar o = m\nlet kept = o\no.a[0].w[1] = 5.0\n"
        "print(touched(m).a.w, touched(m).a.t[1], touched(m).n)\nprint(m.a.w, kept.a.w[0], o.a.w[0], m.a.t[1], m.n)\n",
        ["[[0. 0.]", " [9. 0.]] [8 1] 2", "[[0. 0.]", " [0. 0.]] [0. 0.] [0. 5.] [0 1] 1"],
    ),
    "accumulation goes in order, other assignments take the last": (
        "var x = zeros(3)\nx[[2, 0, 2, 2]] += [1.0, 2.0, 3.0, 4.0]\nvar y = [1, 1, 1]\ny[[1, 1, 2]] *= [2, 3, 4]\n"
        "var z = [10, 10]\nz[[0, 0]] -= [1, 2]\nz[[1, 1]] = [5, 6]\n"
        "var big = [0.0, 1e8]\nbig[[1, 1]] += [1.0, -1e8]\nprint(x, y, z, big)\n",
        ["[2. 0. 8.] [1 6 4] [7 6] [0. 0.]"],
    ),
    "an old value is kept where it is read later": (
        "var x = [1, 2, 3]\nfor i in 0..3 {\n  let old = x\n  x[i] = 10 * x[i]\n  x[(i + 1) % 3] += old[i]\n  if i == 2 { print(old) }\n}\nprint(x)\n"
        "x = [x[2], x[1], x[0]]\nprint(x)\n",
        ["[10 30  6]", "[16 30 60]", "[60 30 16]"],
    ),
    "a part may be assigned from the variable itself": (
        "var x = for[i < 5] i\nx[1..5] = x[0..4]\nprint(x)\nx[0..4] = x[1..5]\nprint(x)\nx[[1, 0]] = x[[0, 1]]\nx[[0, 0, 1]] += x[..3]\nprint(x)\n"
        "var m = for[i < 2, j < 2] i * 2 + j\nm[:, 0] = m[0, :]\nprint(m)\nvar t = (1, [1, 2])\nt[1][0] = t[0] + 5\nt[0] += 1\nprint(t)\n"
        "struct S { x: i64[3], n: i64 }\nvar s = S(x = [1, 2, 3], n = 0)\nfor i in 0..3 { s.x[i] += s.x[(i + 1) % 3]\n s.n += s.x[i] }\nprint(s)\n"
        "var a = [1, 2]\nvar b = [3, 4]\nfor i in 0..3 { (a, b) = (b, a)\n a[0] += 10 }\n(a[0], a[1]) = (a[1], a[0])\nprint(a, b)\n",
        ["[0 0 1 2 3]", "[0 1 2 3 3]", "[2 2 2 3 3]", "[[0 1]", " [1 3]]", "(2, [6 2])", "S(x = [3 5 6], n = 14)", "[ 4 23] [11  2]"],
    ),
    "evaluation goes from left to right": (
        'fn say(x: i64) -> i64 { print("say {x}")\n x }\nprint(say(1) + say(2) * say(3))\nvar a = [0, 0]\na[say(1)] = say(7)\n'
        "if say(0) == 1 and say(9) == 9 { print(1) }\nprint(a)\n",
        ["say 1", "say 2", "say 3", "7", "say 1", "say 7", "say 0", "[0 7]"],
    ),
    # ---------------------------------------------------------------- statements
    "a sequence is evaluated once, the loop's variable is a copy": (
        "var x = [1, 2, 3]\nfor v in x { x = concat(x[1..], [v * 10]) as i64[3] }\nprint(x)\n"
        "var n = 3\nvar s = 0\nfor i in 0..n { n = 100\n s += i }\nprint(s, n)\n"
        "for row in [[1, 2]] { var r = row\n r[0] = 7\n print(r) }\nfor i in 5..2 { print(i) }\n",
        ["[10 20 30]", "3 100", "[7 2]"],
    ),
    "an index of a loop may be changed, which changes that round only": (
        "for i in 0..3 { var j = i\n j += 10\n print(i, j) }\n", ["0 10", "1 11", "2 12"],
    ),
    "assert and fail": (
        'fn check(x: i64) -> i64 { assert x < 3, "too great: {x}"\n x }\nvar i = 0\nwhile true { print(check(i))\n i += 1 }\n',
        ["0", "1", "2", "too great: 3"],
    ),
    "fail where it is reached": (
        'fn f(x: i64) -> i64 { if x > 1 { fail("never {x}") }\n x }\nprint(f(1))\nprint(f(2))\n', ["1", "never 2"],
    ),
    "progress gives the range's numbers": ('var s = 0\nfor i in progress(0..10 by 2, "work") { s += i }\nprint(s)\n', ["20"]),
    "a range counts down, and its step is not 0": (
        "for i in 3..0 by -2 { print(i) }\nvar s = 0\nfor i in 0..3 by s { print(i) }\n", ["3", "1", "the step of a range is 0"],
    ),
    # ---------------------------------------------------------------- precedence
    "powers bind tighter than signs, signs tighter than products": (
        "let x = [2, 3]\nlet a = 3.0\nprint(-2 ** 2, -x[0] ** 2, -a ** 2, 2 ** 3 ** 2, ~1 + 1, -7 // 2, -(7 // 2), 2.0 * -a)\n",
        ["-4 -4 -9.0 512 -1 -4 -3 -6.0"],
    ),
    "products, sums, shifts, bits": (
        "let x = 5\nprint(1 + 2 * 3 % 4, 1 << 2 + 1, 6 & 3 << 1, 1 | 6 ^ 3 & 5, 1 + x & 4, 7 - 2 - 1, 100 // 7 // 2, 7 & 3 == 3)\n",
        ["3 8 6 7 4 4 7 true"],
    ),
    "reducers and comprehensions stand at the right": (
        "let x = [1.0, 2.0, 3.0]\nlet c = 10.0\nprint(2.0 * sum[k] x[k], c + sum[k] x[k] * x[k] + c, c - sum[k] x[k] - c, 1.0 + for[i] x[i] + c)\n"
        "print(sum[k] x[k] * max[j] x[j] * 2.0, any[k] x[k] > 2.0, not any[k] x[k] > 3.0 and true, all[k] x[k] > 0.0 and false)\n"
        "print(for[i < 3] sum[j < i] (i + j), -sum[k] x[k], max[k] -x[k])\n",
        ["12.0 34.0 -6.0 [12. 13. 14.]", "36.0 true true false", "[0 1 5] -6.0 -1.0"],
    ),
    "the ends of a range are sums": (
        "var n = 3\nfor i in n - 2..n + 1 by 2 { print(i) }\nlet x = [0, 1, 2, 3, 4]\nlet k = 2\nprint(x[k - 1..k + 2], for[i in k - 1..k * 2] i, sum[j in 1..k + 2] j)\n",
        ["1", "3", "[1 2 3] [1 2 3] 6"],
    ),
    "as binds tighter than a product": ("fn f(x: f32[?]) -> f32 = sum(2.0 * x as f32[2])\nprint(f([1.0, 2.0]))\n", ["6.0"]),
    "not, and, or": ("let t = true\nprint(not t or t, not (t or t), t or t and false, not 1 == 2, not t == t)\n", ["true false true true false"]),
    # ---------------------------------------------------------------- numbers
    "integers wrap": (
        "fn f(x: i64[n], y: i64[n]) -> (i64[n], i64[n], i64[n]) = (x + y, x * y, x - y)\nlet m = 0x7fffffffffffffff\nlet low = -m - 1\n"
        "print(f([m, low], [1, -1])[2])\nprint(low // -1, low % -1, -low, abs(low))\n"
        "var a = 100i8\nvar u = 3u8\nvar w = 0u32\nvar b = -128i8\na += 100\nu -= 5\nw -= 1\nprint(a, u, w, b // -1, b % -1, -b, [b, 7i8] // [-1i8, -2i8], ~u)\n",
        ["[ 9223372036854775806 -9223372036854775807]", "-9223372036854775808 0 -9223372036854775808 -9223372036854775808",
         "-56 254 4294967295 -128 0 -128 [-128   -4] 1"],
    ),
    "floors": (
        "let x = [7, -7, 7, -7]\nlet y = [2, 2, -2, -2]\nprint(x // y, x % y, [7.5, -7.5] // 2.0, [7.5, -7.5] % 2.0, -1.5 % -1.0, 250u8 // 7, 5.0 / 0.0)\n",
        ["[ 3 -4 -4  3] [ 1  1 -1 -1] [ 3. -4.] [1.5 0.5] -0.5 35 inf"],
    ),
    "shift counts are taken modulo the width": (
        "let s = [0, 1, 63, 64, 65, -1]\nprint(1 << s, -8 >> s)\nprint(1i8 << [7i8, 8i8, 9i8], 200u8 >> [1u8, 9u8], -128i8 >> 3i8, 1u32 << 33u32)\n",
        ["[                   1                    2 -9223372036854775808", "                    1                    2 -9223372036854775808] [-8 -4 -1 -8 -4 -1]",
         "[-128    1    2] [100 100] -16 2"],
    ),
    "real to integer": (
        "let x = [2.9, -2.9, 1e30, -1e30, nan, inf, 300.5, -0.5]\nprint(i32(x), i8(x), u8(x))\nprint(u32(x), i64(x)[2..6])\nprint(i64(1e30f64), i8(nan), f32(16777217), u8(-1), i8(200))\n",
        ["[          2          -2  2147483647 -2147483648           0  2147483647", "         300           0] [   2   -2  127 -128    0  127  127    0] [  2   0 255   0   0 255 255   0]",
         "[         2          0 4294967295          0          0 4294967295", "        300          0] [ 9223372036854775807 -9223372036854775808                    0", "  9223372036854775807]",
         "9223372036854775807 0 16777216.0 255 -56"],
    ),
    "powers": (
        "let x = 3.0\nlet n = 3\nlet h = 0.5\nprint(x ** 2, x ** 0, x ** -2, x ** n, x ** -n, 9.0 ** h, 2 ** 62, 2 ** 64, (-2) ** 3, 0 ** 0, 0.0 ** 0, [1, 2] ** 2, 2 ** [1, 2])\n"
        "let y = 1.1\nprint(y ** 5 == y * ((y * y) * (y * y)), 3i8 ** 5, (-8.0) ** h)\n",
        ["9.0 1.0 0.11111111 27.0 0.037037037 3.0 4611686018427387904 0 -8 1 1.0 [1 4] [2 4]", "true -13 nan"],
    ),
    "a negative power of an integer stops": ("var n = -1\nprint(2.0 ** n)\nprint(2 ** n)\n", ["0.5", "an integer to the negative power -1 is no integer"]),
    "what is not evaluated does not fail": (
        "let z = 0\nlet x = [1, 2]\nlet t = true\nprint(t or 1 // 0 == 0, not t and x_of(z + 5) == 0, if z == 0 { -1 } else { 1 // z }, z != 0 and 5 % z == 0)\n"
        "fn f(n: i64) -> i64 = if n > 0 { x_of(n) } else { 0 }\nfn x_of(n: i64) -> i64 = [1, 2][n]\nprint(f(0), f(1))\n"
        "print(for[i < 3] if i < 2 { x[i] } else { 9 }, for[i < 3] i == 0 or 6 // i > 3, for[i < 3] if i > 0 { 6 // i } else { 0 })\n",
        ["true false -1 false", "0 2", "[1 2 9] [ true  true false] [0 6 3]"],
    ),
    "and, or of tensors": ("let a = [true, true, false]\nlet b = [true, false, false]\nprint(a and b, a or b, not a, a and true)\n",
                           ["[ true false false] [ true  true false] [false false  true] [ true  true false]"]),
    "dividing by zero stops": ("let x = [4, 2, 0]\nprint(8 // x[..2])\nprint(8 // x)\n", ["[2 4]", "division by zero"]),
    # ---------------------------------------------------------------- subscripts
    "slices": (
        "let x = for[i < 2, j < 4] 10 * i + j\nlet n = 2\nprint(x[..., -1], x[:, 1..3], x[1, n..], x[0, ..n], x[0, n..n], x[0, 4..], x[..., 0, 1..2], x.T.shape, x[-1][-4])\n"
        "let y = for[i < 2, j < 3, k < 4] i\nprint(y.T.shape, y.shape[1], len(y))\n",
        ["[ 3 13] [[ 1  2]", " [11 12]] [12 13] [0 1] [] [] [1] (4, 2) 10", "(2, 4, 3) 3 2"],
    ),
    "an index may have any integer type": (
        "let x = [5, 6, 7]\nlet i = 2u8\nlet j = [2i8, 0i8]\nprint(x[i], x[1i32], x[j], x[[0u32, 1u32]], for[t] x[j[t]])\nvar y = x\ny[i] += 1\nprint(y)\n",
        ["7 6 [7 5] [5 6] [7 5]", "[5 6 8]"],
    ),
    "only a literal counts from the end": ("let x = [1, 2, 3]\nvar k = -1\nprint(x[-1])\nprint(x[k])\n", ["3", "index -1 is out of range for a dimension of 3"]),
    "slices never clamp": ("let x = [1, 2, 3]\nvar k = 4\nprint(x[..k - 1])\nprint(x[1..k])\n", ["[1 2 3]", "slice 1..4 is out of range for a dimension of 3"]),
    "a slice does not run backwards": ("let x = [1, 2, 3]\nvar k = 1\nprint(x[k + 1..k])\n", ["slice 2..1 is out of range for a dimension of 3"]),
    # ---------------------------------------------------------------- comprehensions and reductions
    "comprehensions": (
        "struct P { a: i64, b: f32[2] }\nlet x = [[1, 2, 3], [4, 5, 6]]\nprint(for[i, j] x[i, j] + i, for[i < 2, k in 2..4] k * i, for[i] x[i])\n"
        "let p = for[i < 2] P(a = i, b = [f32(i), 0.5])\nlet (s, t) = for[i < 2] (i, [i, i])\nprint(p.b, p[1].a, s, t)\n"
        "print(for[i < 3] { var c = 0\n for k in 0..10 { if k > i { break }\n c += k }\n c }, for[i < 0] 1)\n",
        ["[[1 2 3]", " [5 6 7]] [[0 0]", " [2 3]] [[1 2 3]", " [4 5 6]]", "[[0.  0.5]", " [1.  0.5]] 1 [0 1] [[0 0]", " [1 1]]", "[0 1 3] []"],
    ),
    "a range comes only from what does not depend on the indices": (
        "let x = [[1, 2], [3, 4]]\nlet at = [1, 0, 1]\nprint(for[t, c] x[at[t], c], for[i, j < 2] x[i][j], sum[i, j < i + 1] x[i, j])\n",
        ["[[3 4]", " [1 2]", " [3 4]] [[1 2]", " [3 4]] 8"],
    ),
    "the least index that fails is reported": (
        "let x = [1, 2, 3]\nlet at = [0, 7, 9]\nprint(for[i < 3] x[at[i]])\n", ["index 7 is out of range for a dimension of 3"],
    ),
    "NaN wins, ties go to the lowest index": (
        "let x = [1.0, nan, 3.0, nan]\nlet y = [2, 5, 5, 1, 1]\nprint(max(x), min(x), argmax(x), argmin(x), max[i] x[i], argmin[i] x[i])\n"
        "print(argmax(y), argmin(y), argmax[i] y[i], argmax[i, j] f32(y[i] * y[j]), argmin[i < 2, j < 2] -y[i] * y[j], max(nan, 1.0), min(1.0, nan))\n"
        "print(max([-0.0, 0.0]), argmax([[1, 9], [9, 0]]), argmax([[1, 9], [9, 0]], axis = 0))\n",
        ["nan nan 1 1 nan 1", "1 3 1 (1, 1) (1, 1) nan nan", "0.0 1 [1 0]"],
    ),
    "empty reductions": (
        "let x = zeros(0, 2)\nlet y = x + 0.0\nprint(sum(y), prod(y), any(y > 0.0), all(y > 0.0), sum(y, axis = 0), max(y, axis = 1))\nvar n = 0\nprint(max[i < n] i)\n",
        ["0.0 1.0 false true [0. 0.] []", "`max` of nothing"],
    ),
    "the mean of nothing": ("var n = 0\nlet x = zeros(3)\nprint(sum(x[..n]))\nprint(mean(x[..n]))\n", ["0.0", "`mean` of nothing"]),
    "the place of the greatest of nothing": ("var n = 0\nlet x = zeros(3)\nprint(argmax(x[..n]))\n", ["`argmax` of nothing"]),
    "narrow reals add up in f32, narrow integers wrap": (
        "let x = for[i < 5000] f16(1.0)\nlet y = for[i < 300] u8(i)\nprint(sum(x), mean(x), sum[i] x[i] * x[i], max(y), sum(y), argmin(y))\n", ["5000.0 1.0 5000.0 255 50 0"],
    ),
    "reductions as functions": (
        "let x = [[1, 2, 3], [4, 5, 6]]\nprint(sum(x), sum(x, axis = 0), prod(x, axis = -1), min(x, axis = 0), any(x > 5, axis = 1), all(x > 0), mean(f32(x), axis = 0))\n"
        "print(max(x, 3), min(1.5, [1.0, 2.0]), max(1, 2), sum([1i8, 2i8]), mean[i] 2.0 * f32(x[0, i]), prod[i] x[0, i])\n",
        ["21 [5 7 9] [  6 120] [1 2 3] [false  true] true [2.5 3.5 4.5]", "[[3 3 3]", " [4 5 6]] [1.  1.5] 2 3 4.0 6"],
    ),
    "a full reduction of a struct covers its real leaves": (
        "struct P { a: f32[2], n: i64, t: (f32, bool) }\nlet p = P(a = [1.0, 2.0], n = 100, t = (-2.0, true))\nprint(sum(p), norm(p), sum(p * p), max(p), min(p), mean(p))\n",
        ["1.0 3.0 9.0 2.0 -2.0 0.33333334"],
    ),
    "convolution, embedding, products": (
        "let x = for[c < 1, i < 4, j < 4] f32(4 * i + j)\nlet k = [[[[1.0, 0.0], [0.0, 1.0]]]]\nprint(for[o, i < 3, j < 3] sum[c, p, q] x[c, i + p, j + q] * k[o, c, p, q])\n"
        "let a = [[1, 2], [3, 4]]\nprint(a @ a, a @ [1, 1], [1, 1] @ a, [1, 2] @ [3, 4], (stack(a, a) @ a).shape, (for[i, j] sum[k] a[i, k] * a[k, j])[1])\n",
        ["[[[ 5.  7.  9.]", "  [13. 15. 17.]", "  [21. 23. 25.]]]", "[[ 7 10]", " [15 22]] [3 7] [4 6] 11 (2, 2, 2) [15 22]"],
    ),
    # ---------------------------------------------------------------- lifting
    "extra dimensions align at the right, a missing one stretches": (
        "fn f(x: f32[n], s: f32) -> f32 = sum(x) * s\nlet x = for[b < 2, c < 3, i < 2] f32(b + c + i)\nprint(f(x, 2.0), f(x, [1.0, 0.0, 2.0]), f([1.0, 2.0], [3.0, 4.0]))\n"
        "print([[1, 2], [3, 4]] + [10, 20], [1, 2] * 2, [[1], [2]] * 3)\n",
        ["[[ 2.  6. 10.]", " [ 6. 10. 14.]] [[ 1.  0. 10.]", " [ 3.  0. 14.]] [ 9. 12.]", "[[11 22]", " [13 24]] [2 4] [[3]", " [6]]"],
    ),
    "what fits is not lifted; any and tree match whole": (
        "struct P { a: f32, b: f32[2] }\nfn whole[T: tree](x: T) -> T = x\nfn two[T: any](x: T) -> (T, T) = (x, x)\nfn one(p: P) -> f32 = p.a + sum(p.b)\nfn sq[T: num](x: T) -> T = x * x\n"
        "let p = P(a = 2.0, b = [3.0, 4.0])\nprint(one(p), whole(p), two(p)[1].a, two([1, 2])[0], sq(p), sq((2, 3.0)))\n"
        "let ps = for[i < 2] P(a = f32(i), b = zeros(2))\nprint(one(ps), sq(ps).a)\n",
        ["9.0 P(a = 2.0, b = [3. 4.]) 2.0 [1 2] P(a = 4.0, b = [ 9. 16.]) (4, 9.0)", "[0. 1.] [0. 1.]"],
    ),
    "leaves that are not real pass through from the first struct": (
        "struct P { a: f32[2], n: i64, b: bool }\nfn step(p: f32, g: f32) -> (f32, f32) = (p - g, 2.0 * g)\nlet p = P(a = [1.0, 2.0], n = 1, b = true)\nlet q = P(a = [0.5, 0.5], n = 2, b = false)\n"
        "let (r, s) = step(p, q)\nprint(r, s, p + q, 2.0 * q, exp(0.0 * q), max(p, q))\n",
        ["P(a = [0.5 1.5], n = 1, b = true) P(a = [1. 1.], n = 1, b = true) P(a = [1.5 2.5], n = 1, b = true) P(a = [1. 1.], n = 2, b = false) "
         "P(a = [1. 1.], n = 2, b = false) P(a = [1. 2.], n = 1, b = true)"],
    ),
    "operators and functions of scalars take structs and tuples": (
        "struct P { a: f32, v: f32[2] }\nlet p = P(a = 1.0, v = [2.0, 3.0])\nprint(p * p, -p, p / 2.0, 1.0 - p, clip(p, 0.0, 2.5))\nprint((p ** 2).v, (p.a, p.v) * 2.0, where(true, p, -p).v)\n",
        ["P(a = 1.0, v = [4. 9.]) P(a = -1.0, v = [-2. -3.]) P(a = 0.5, v = [1.  1.5]) P(a = 0.0, v = [-1. -2.]) P(a = 1.0, v = [2.  2.5])",
         "[4. 9.] (2.0, [4. 6.]) [2. 3.]"],
    ),
    "lifting is the loop": (
        "fn root(x: i64) -> i64 { var i = 0\n while i * i < x { i += 1 }\n i }\nfn put(x: i64[n], k: i64) -> i64[n] { var y = x\n y[k] = 100\n y }\nfn div(x: i64) -> i64 = if x == 0 { 0 } else { 10 // x }\n"
        "let x = [[1, 2], [3, 4]]\nprint(root([[1, 10], [17, 0]]), put(x, [0, 1]), put([1, 2], [0, 1]), x, div([0, 5]))\nprint(put(x, [0, 2]))\n",
        ["[[1 4]", " [5 0]] [[100   2]", " [  3 100]] [[100   2]", " [  1 100]] [[1 2]", " [3 4]] [0 2]", "index 2 is out of range for a dimension of 2"],
    ),
    "array makers take any rank": (
        "let x = [[1, 2], [3, 4]]\nprint(concat(x, x, axis = 1), stack(x, x).shape, concat(x, [[5, 6]]).shape, reshape(x, 4), reshape(x, 2, 1, -1).shape, full(2.5, 2, 1), zeros(1, 2), ones(2))\n",
        ["[[1 2 1 2]", " [3 4 3 4]] (2, 2, 2) (3, 2) [1 2 3 4] (2, 1, 2) [[2.5]", " [2.5]] [[0. 0.]] [1. 1.]"],
    ),
    "element i of a lifted call gets the key folded with i": (
        "fn noisy(k: key, x: f32) -> f32 = x + normal(k)\nlet k = key(7)\nlet a = noisy(fold(k, 0), [[0.0, 0.0], [0.0, 0.0]])\n"
        "let ks = split(fold(k, 1), 2)\nlet b = noisy(ks, [0.0, 0.0])\nlet same = split(fold(k, 1), 2)\n"
        "print(a[1, 0] == normal(fold(fold(fold(k, 0), 1), 0)), all(b == (for[i] noisy(same[i], 0.0))), a[0, 1] != a[0, 0])\n",
        ["true true true"],
    ),
    # ---------------------------------------------------------------- the prelude
    "activations": (
        "let x = [-1.0, 0.0, 2.0]\nprint(\"{relu(x):.4f} {sigmoid(x):.4f} {silu(x):.4f} {gelu(x):.4f}\")\nprint(\"{softmax(x):.4f} {log_softmax(x):.4f} {logsumexp(x):.4f}\")\nprint(\"{layernorm(x):.4f} {rmsnorm(x):.4f}\")\n",
        ["[0.0000 0.0000 2.0000] [0.2689 0.5000 0.8808] [-0.2689 0.0000 1.7616] [-0.1587 0.0000 1.9545]",
         "[0.0420 0.1142 0.8438] [-3.1698 -2.1698 -0.1698] 2.1698", "[-1.0690 -0.2673 1.3363] [-0.7746 0.0000 1.5492]"],
    ),
    "arrays of the prelude": (
        "print(zeros(2, 1).shape, ones(2), full(3, 2), eye(2), one_hot(1, 3), reshape([1, 2, 3, 4], 2, 2), concat([1], [2, 3]), stack([1, 2], [3, 4]))\n"
        "print(pad([1, 2], 1, 1), flip([1, 2, 3]), sort([3.0, nan, 1.0]), cumsum([1, 2, 3]), sort([[2, 1], [4, 3]]), one_hot([0, 2], 3))\n"
        "print(where([true, false], 1.0, 2.0), clip([-5, 5], 0, 3), norm([3.0, 4.0]), dot([1, 2], [3, 4]), len([1, 2]))\n",
        ["(2, 1) [1. 1.] [3 3] [[1 0]", " [0 1]] [0 1 0] [[1 2]", " [3 4]] [1 2 3] [[1 2]", " [3 4]]",
         "[0 1 2 0] [3 2 1] [ 1.  3. nan] [1 3 6] [[1 2]", " [3 4]] [[1 0 0]", " [0 0 1]]", "[1. 2.] [0 3] 5.0 11 2"],
    ),
    "functions of one number": (
        "let x = [0.5, -1.5]\nprint(abs(x), sign(x), sqrt([4.0, 0.0]), rsqrt(4.0), floor(x), ceil(x), round([0.5, 1.5, -2.5]), isnan([nan, 1.0]), abs(-3), sign(-2))\n"
        "print(\"{exp(0.5):.5f} {log(0.5):.5f} {log1p(0.5):.5f} {expm1(0.5):.5f} {sin(0.5):.5f} {cos(0.5):.5f} {tan(0.5):.5f} {tanh(0.5):.5f} {erf(0.5):.5f}\")\n",
        ["[0.5 1.5] [ 1. -1.] [2. 0.] 0.5 [ 0. -2.] [ 1. -1.] [ 0.  2. -2.] [ true false] 3 -1", "1.64872 -0.69315 0.40547 0.64872 0.47943 0.87758 0.54630 0.46212 0.52050"],
    ),
    "random numbers": (
        "let k = key(1)\nlet (a, b) = split(fold(k, 1))\nlet (c, d, e) = split(fold(k, 2), 3)\nlet u = uniform(a, 1000)\nlet n = normal(b, 10, 100)\nlet r = randint(c, -2, 3, 1000)\n"
        "print(all(u >= 0.0 and u < 1.0), abs(mean(u) - 0.5) < 0.05, abs(mean(n)) < 0.15, abs(mean(n * n) - 1.0) < 0.2, min(r), max(r))\n"
        "print(sort(permutation(d, 6)), abs(mean(f32(bernoulli(e, 0.25, 2000))) - 0.25) < 0.05, uniform(fold(k, \"a\")) == uniform(fold(k, \"a\")), uniform(fold(k, \"a\", 1)) == uniform(fold(k, \"a\", 2)))\n",
        ["true true true true -2 2", "[0 1 2 3 4 5] true true false"],
    ),
    "random numbers of an empty range": ("print(randint(key(1), 3, 4))\nprint(randint(key(1), 3, 3))\n", ["3", "randint needs a range that is not empty, found 3..3"]),
    "the same bits, whatever is asked for": (
        "let k = key(3)\nlet (a, b) = split(k)\nlet (c, d) = split(key(3), 2)\nprint(normal(a) == normal(c), normal(b) == normal(d), uniform(key(2), 3)[2] == uniform(key(2), 5)[2])\n",
        ["true true true"],
    ),
    "keys that are used once": (
        "fn f(k: key, t: bool) -> f32 { var j = k\n let (a, b) = split(k)\n if t { j = a } else { j = b }\n normal(j) }\n"
        "fn g(k: key) -> f32 { var j = k\n j = key(1)\n let old = j\n j = key(2)\n normal(k) + normal(j) + normal(old) }\n"
        "fn h(k: key) -> f32 { var j = k\n var s = 0.0\n for i in 0..3 { j = fold(k, i)\n for l in 0..2 { s += normal(j)\n j = fold(j, l) } }\n s }\n"
        "fn b(k: key) -> f32 { var s = 0.0\n for i in 0..3 { if i < 1 { continue }\n if i > 1 { s += normal(k)\n break } }\n s }\n"
        "fn l(k: key) -> f32 { let t = (k, split(key(9)), 1)\n normal(t[0]) + normal(t[1][0]) + normal(t[1][1]) }\n"
        "print(f(key(1), true) == normal(split(key(1))[0]), g(key(5)) == normal(key(5)) + normal(key(2)) + normal(key(1)), l(key(1)) != h(key(1)), b(key(1)) == normal(key(1)))\n",
        ["true true true true"],
    ),
    "a key that is reassigned in each round": (
        "let first = key(3)\nvar k = first\nvar now = first\nvar s = 0.0\nfor i in 0..3 { (k, now) = split(k)\n s += uniform(now) }\nstruct S { k: key, n: i64 }\nvar t = S(k = key(4), n = 0)\nfor i in 0..3 { let (next, here) = split(t.k)\n t.k = next\n s += uniform(here) }\nprint(s > 0.0 and s < 6.0)\n",
        ["true"],
    ),
    # ---------------------------------------------------------------- printing
    "tensors print as in NumPy": (
        "print(for[i < 2, j < 1, k < 2] f32(i) - 0.5, zeros(0, 3), [true], for[i < 3] (i, f64(i) / 3.0))\nprint(for[i < 1001] i)\n"
        "print([1e10, 1.0, 1e-10], [nan, 1.0, -inf], [-0.0], [1.0f16, 0.1], [0.1bf16])\nlet h = 70000.0f32\nprint(f16(h), f16(1e-8))\n",
        ["[[[-0.5 -0.5]]", "", " [[ 0.5  0.5]]] [] [true] ([0 1 2], [0.         0.33333333 0.66666667])", "[   0    1    2 ...  998  999 1000]",
         "[1.e+10 1.e+00 1.e-10] [ nan   1. -inf] [-0.] [1.  0.1] [0.1]", "inf 0.0"],
    ),
    "every type prints": (
        "struct P(n) { a: f32[n], t: (i64, str), b: bool }\n"
        "print(1i8, 2u8, 3i32, 4u32, 5, 1.5f32, 0.1f64, 1e20, 1e-7, true, \"s\", inf, -inf, nan, -0.0)\nprint(f16(0.1), bf16(0.1), [0.1f16, 1.0f16], f32(0.1f64), f64(0.1f32))\n"
        "print(P(a = [1.0], t = (2, \"x\"), b = false), (1,), ((1, 2.0), [true, false]), [1u8, 200u8])\n"
        'let x = [1.0, -2.345]\nprint("{x:.1f} {(1.0, x):.2f} {P(a = x, t = (2, "y"), b = true).a:6.1f} {7:>4}{7:<4}|{1.5:e} {255:x} {12345:,} {0.25:.0%}")\n',
        ["1 2 3 4 5 1.5 0.1 1e+20 1e-07 true s inf -inf nan -0.0", "0.1 0.1 [0.1 1. ] 0.1 0.10000000149011612",
         "P(a = [1.], t = (2, x), b = false) (1,) ((1, 2.0), [ true false]) [  1 200]", "[1.0 -2.3] (1.00, [1.00 -2.35]) [   1.0   -2.3]    77   |1.500000e+00 ff 12,345 25%"],
    ),
}

REFUSED: dict[str, tuple[str, str]] = {
    "let binds once": ("let x = 1\nx = 2\n", "E0501"),
    "a part of a let": ("let x = [1]\nx[0] = 2\n", "E0501"),
    "comparisons do not chain": ("let x = 1\nprint(0 < x < 2)\n", "E0109"),
    "the condition is a scalar": ("if [true] { print(1) }\n", "E0312"),
    "an expression's value is not dropped": ("fn f() -> i64 { 1 + 2\n 3 }\n", "E0502"),
    "if without else has no value": ("let x = if true { 1 }\n", "E0503"),
    "ranges are no values": ("let r = 0..3\n", "E0101"),
    "ranges that differ": ("fn f(x: f32[3], y: f32[4]) -> f32[3] = for[i] x[i] + y[i]\n", "E0308"),
    "no range at all": ("fn f(x: f32[3]) -> f32[3] = for[i] x[i + 1]\n", "E0309"),
    "no range from what depends on an index": ("fn f(x: f32[2, 3]) -> f32[2, 3] = for[i, j] x[i][j]\n", "E0309"),
    "return in a comprehension": ("fn f() -> i64[3] = for[i < 3] { if i > 1 { return [1, 2, 3] }\n i }\n", "E0505"),
    "an assignment outwards": ("fn f() -> i64[3] { var s = 0\n for[i < 3] { s += i\n s } }\n", "E0506"),
    "print in a comprehension": ("fn f() -> i64[3] = for[i < 3] { print(i)\n i }\n", "E0507"),
    "the mean of integers": ("print(mean([1i64, 2]))\n", "E0304"),
    "a dimension of 1 does not stretch": ("fn f(x: f32[n], y: f32[n, 1]) -> f32[n, n] = x - y\n", "E0302"),
    "a parameter in a dimension is not lifted": ("fn f(n: i64) -> f32[n] = zeros(n)\nprint(f([1, 2]))\n", "E0404"),
    "a result of unknown size is not lifted": ("fn f(x: f32) -> f32[?] = zeros(i64(x))\nprint(f([1.0, 2.0]))\n", "E0404"),
    "functions do not lift": ("fn f(g: fn(f32) -> f32, x: f32) -> f32 = g(x)\nfn h(x: f32[n]) -> f32[n] = x\nprint(f(h, 1.0))\n", "E0402"),
    "beside structs, others fit exactly": ("struct P { a: f32[2] }\nfn f(x: f32, y: f32) -> f32 = x + y\nprint(f(P(a = [1.0, 2.0]), [1.0, 2.0]))\n", "E0404"),
    "structs of two types": ("struct P { a: f32 }\nstruct Q { a: f32 }\nprint(P(a = 1.0) + Q(a = 1.0))\n", "E0404"),
    "the result keeps the leaf's type": ("struct P { a: f32 }\nfn f(x: f32) -> i64 = i64(x)\nprint(f(P(a = 1.0)))\n", "E0404"),
    "types do not mix": ("let n = len([1])\nprint(n + 1.0)\n", "E0303"),
    "the slash is for reals": ("print(1 / 2i64)\n", "E0304"),
    "a literal index out of range": ("print([1, 2][2])\n", "E0307"),
    "a constant slice out of range": ("print([1, 2][1..3])\n", "E0307"),
    "an alias is the key": ("fn f(k: key) -> f32 { let j = k\n normal(k) + normal(j) }\n", "E0702"),
    "a variable's first value is the key": ("fn f(k: key) -> f32 { var j = k\n normal(k) + normal(j) }\n", "E0702"),
    "an assigned key is the key": ("fn f(k: key) -> f32 { var j = key(1)\n j = k\n normal(k) + normal(j) }\n", "E0702"),
    "a tuple holds the key": ("fn f(k: key) -> f32 { let t = (k, 1)\n normal(k) + normal(t[0]) }\n", "E0702"),
    "a struct holds the key": ("struct S { k: key, n: i64 }\nfn f(k: key) -> f32 { let s = S(k = k, n = 1)\n normal(k) + normal(s.k) }\n", "E0702"),
    "a destructured tuple holds the key": ("fn f(k: key) -> f32 { let (j, n) = (k, 1)\n normal(k) + normal(j) }\n", "E0702"),
    "an outer key in a comprehension": ("fn f(k: key) -> f32[3] = for[i < 3] normal(k)\n", "E0703"),
    "an outer key in a loop": ("fn f(k: key) -> f32 { var s = 0.0\n for i in 0..3 { s += normal(k) }\n s }\n", "E0703"),
    "a copy made in the loop": ("fn f(k: key) -> f32 { var s = 0.0\n for i in 0..3 { var j = k\n s += normal(j) }\n s }\n", "E0703"),
    "a copy's source after the loop": ("fn f(k: key) -> f32 { var j = k\n var s = 0.0\n for i in 0..3 { let (a, b) = split(j)\n j = a\n s += normal(b) }\n s + normal(k) }\n", "E0702"),
    "a key used where a round ends early": ("fn f(k: key) -> f32 { var j = k\n var s = 0.0\n for i in 0..3 { let (a, b) = split(j)\n if i > 1 { continue }\n j = a\n s += normal(b) }\n s }\n", "E0703"),
    "a key used where a loop is left": ("fn f(k: key) -> f32 { var s = 0.0\n for i in 0..3 { if i > 1 { s += normal(k)\n break } }\n s + normal(k) }\n", "E0702"),
    "a copy on one path": ("fn f(k: key, t: bool) -> f32 { var j = key(1)\n if t { j = k }\n normal(j) + normal(k) }\n", "E0702"),
    "a key made in a round, used twice": ("fn f(k: key) -> f32 { var j = k\n var s = 0.0\n for i in 0..3 { j = fold(k, i)\n s += normal(j) + normal(j) }\n s }\n", "E0702"),
    "a key made in an outer round only": ("fn f(k: key) -> f32 { var j = k\n var s = 0.0\n for i in 0..3 { j = fold(k, i)\n for l in 0..2 { s += normal(j) } }\n s }\n", "E0703"),
    "a key reassigned on some paths": ("fn f(k: key, t: bool) -> f32 { var j = k\n var s = 0.0\n for i in 0..3 { s += normal(j)\n if t { j = key(i) } }\n s }\n", "E0703"),
}

COPIES: dict[str, tuple[str, int]] = {  # how many copies the memory plan has
    "the old value is needed": ("fn main(n: i64 = 9) { var a = for[i < n] f32(i)\n var b = a\n for i in 0..n { a[i] = f32(i)\n b[i] += a[i] }\n print(a, b) }\n", 1),
    "the old value is constant": ("fn main(n: i64 = 9) { var a = zeros(n)\n var b = a\n for i in 0..n { a[i] = f32(i)\n b[i] += a[i] }\n print(a, b) }\n", 0),
    "a struct through a call": (
        "struct S { x: f32[4, 4], n: i64 }\nfn step(s: S, i: i64) -> S { var t = s\n t.x[i % 4, 0] += 1.0\n t.n += 1\n t }\n"
        "fn main(n: i64 = 9) { var s = S(x = zeros(4, 4), n = 0)\n for i in 0..n { s = step(s, i) }\n print(s) }\n", 0,
    ),
    "a struct through recursion": (
        "struct S { x: i64[8], n: i64 }\nfn rec(s: S, d: i64) -> S { if d == 0 { return s }\n var t = s\n t.x[d % 8] += 1\n t = rec(t, d - 1)\n t.n += 1\n rec(t, d - 1) }\n"
        "fn main(n: i64 = 5) { print(rec(S(x = zeros(8), n = 0), n)) }\n", 0,
    ),
    "two at once": (
        "fn two(a: i64[n], b: i64[n], i: i64) -> (i64[n], i64[n]) { var x = a\n var y = b\n x[i] = y[0]\n y[i] += 1\n (x, y) }\n"
        "fn main(n: i64 = 9) { var a: i64[n] = zeros(n)\n var b: i64[n] = ones(n)\n for i in 0..n { (a, b) = two(a, b, i) }\n print(a, b) }\n", 0,
    ),
    "duplicates": ("fn main(n: i64 = 9) { var x: i64[5] = zeros(5)\n let at = for[i < n] i % 5\n for t in 0..n { x[at] += 1 }\n print(x) }\n", 0),
    "two that change places": (
        "fn main(n: i64 = 9) { var a = zeros(n)\n var b = ones(n)\n for t in 0..n { for i in 1..n - 1 { b[i] = a[i - 1] + a[i + 1] + 1.0 }\n (a, b) = (b, a) }\n print(a) }\n", 0,
    ),
}
# fmt: on


@pytest.mark.parametrize("rule", PRINTS)
def test_prints(rule: str) -> None:
    text, expected = PRINTS[rule]
    assert both(text) == expected


@pytest.mark.parametrize("rule", REFUSED)
def test_refused(rule: str) -> None:
    text, code = REFUSED[rule]
    try:
        found = codes(text)
    except CompileError as error:  # of the parser
        found = [d.code for d in error.diagnostics]
    assert found == [code]


@pytest.mark.parametrize("rule", COPIES)
def test_copies(rule: str) -> None:
    """Values cost nothing in a loop."""
    text, expected = COPIES[rule]
    assert copies(text) == expected


def test_quicksort_copies_nothing() -> None:
    assert copies((Path(__file__).parents[2] / "programs" / "quicksort.tl").read_text(encoding="utf-8")) == 0


def copies(text: str) -> int:
    program = pipeline.front(Source("test.tl", text))
    stages = {name: value for name, _, value in pipeline.middle(program, options(program, None))}
    return sum(i.op == "copy" for f in stages["memory"].module.functions.values() for i in walk(f.body))
