"""Random programs in which NaNs and infinities arise at many places, and some hide them, for `--trap-nan`."""

from __future__ import annotations

from random import Random

HEAD = """
fn center(v: f32[n]) -> f32[n] = (v - mean(v)) / sqrt(mean(v * v) + 1e-5)
fn soft(v: f32[n], w: f32[n, n]) -> f32[n] = softmax(for[i] sum[k] v[k] * w[k, i] / sqrt(2.0)) * v
"""

# Of matrices a and b, rows r, a scalar s, a size n, numbers i < n and k < n * n.
MATRICES = (
    *("{a} + {b}", "{a} * {b}", "{a} - {b}", "{a} / {b}", "tanh({a})", "exp({a})", "log({a} + 3.0)", "sqrt({a} + 2.0)", "1.0 / {a}"),
    *("softmax({a})", "{a} @ {b}", "{a}.T * 0.5", "{a} * {s}", "{a} * 1e25", "center({a})", "soft({a}, {b})"),
    "for[i < {n}, j < {n}] if j <= i {{ {a}[i, j] }} else {{ -inf }}",
    "where({a} > 0.0, {a}, 0.1 * {b})",
    "for[i < {n}, j < {n}] {a}[{n} - 1 - i, j] * 2.0",
    "for[i < {n}, j < {n}] {a}[{i}, j] * {b}[i, {i}]",
    "for[i < {n}, j < {n}] {a}[i, j] / f32(i * {n} + j - {k})",
    "for[i < {n}, j < {n}] log(f32(i * {n} + j - {k}) + {a}[i, j])",
    "for[i < {n}, j < {n}] if i > j {{ sum[k < {n}] {a}[i, k] * {b}[j, k] / sqrt({n}.0) }} else {{ 0.5 }}",
    "for[i < {n}, j < {n}] max({a}[i, j], 0.0)",
    "for[i < {n}, j < {n}] sum[k < {n}] ({a}[i, k] - {b}[k, j]) * {b}[k, j]",
    "{a} * 0.5 * (1.0 + tanh({a} * 0.8))",
    "for[i < {n}, j < {n}] sum[k < j] {a}[i, k] * {a}[i, k]",
    "for[i < {n}, j < {n}] {a}[i, j] - {r}[i]",
    "for[i < {n}, j < {n}] {a}[i, j] / {r}[i]",
)
ROWS = (
    *("for[i < {n}] sum({a}[i])", "for[i < {n}] max({a}[i])", "for[i < {n}] {a}[i, i] * {s}", "for[i < {n}] 1.0 / sum({a}[i])"),
    "for[i < {n}] prod({a}[i])",
)
SCALARS = ("sum({a})", "mean({a})", "{a}[{i}, 1] * {s}", "log({s} * {s})", "max({a}) / 2.0", "{s} / {a}[0, {i}]")


def trap_program(seed: int) -> str:
    """A program of a few such statements; every third is a gradient."""
    random = Random(seed)
    n = random.choice((3, 4, 17))
    known = {"m": ["x", "w"], "r": ["r"], "s": ["s"]}
    lines = []
    for k in range(random.randrange(3, 9)):
        parts = {"a": random.choice(known["m"][-4:]), "b": random.choice(known["m"][-4:]), "r": random.choice(known["r"])}
        numbers = {"s": random.choice(known["s"]), "n": n, "i": random.randrange(n), "k": random.randrange(n * n)}
        kind, forms = random.choices((("m", MATRICES), ("r", ROWS), ("s", SCALARS)), (7, 2, 1))[0]
        known[kind].append(f"{kind}{k}")
        lines.append(f"  let {kind}{k} = {random.choice(forms).format(**parts, **numbers)}")
        if seed % 3 != 2 and random.random() < 0.1:
            lines.append(f'  print("at {k}")')
    scale, shift, other = random.choice(("1.0", "1e12", "3.0")), random.choice(("0.0", "0.1")), random.choice(("1.0", "0.0", "1e5"))
    start = f"  let x = for[i < {n}, j < {n}] sin(f32({n} * i + j)) * {scale} + {shift}\n"
    start += f"  let w = for[i < {n}, j < {n}] cos(f32({n} * i + j)) * {other}\n"
    body, last = "\n".join(["  let s = x[1, 2]", f"  let r = for[i < {n}] x[i, 1]", *lines]), known["m"][-1]
    if seed % 3 != 2:
        return f"{HEAD}\nfn main() {{\n{start}{body}\n  print({last}, {known['s'][-1]})\n}}\n"
    loss = f"fn loss(x: f32[{n}, {n}], w: f32[{n}, {n}]) -> f32 {{\n{body}\n  sum({last})\n}}\n"
    return f"{HEAD}\n{loss}\nfn main() {{\n{start}  print(grad(loss)(x, w))\n}}\n"
