"""What the programs print, worked out without the compiler: a function a program, with the parameters of its `main`.

Plain Python and NumPy that share no code with `tlc`. Reals that a program prints are rounded to fewer digits than the
order of a sum can change.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from reference_random import Key, make_key, normal, normal64, randint, split, uniform


def nbody(steps: int) -> str:
    """The n-body program of the Computer Language Benchmarks Game, statement by statement."""
    mass_of_sun, days = 4 * math.pi**2, 365.24
    planets = [  # position, speed a day, share of the mass of the Sun
        (4.84143144246472090, -1.16032004402742839, -1.03622044471123109e-1,
         1.66007664274403694e-3, 7.69901118419740425e-3, -6.90460016972063023e-5, 9.54791938424326609e-4),
        (8.34336671824457987, 4.12479856412430479, -4.03523417114321381e-1,
         -2.76742510726411410e-3, 4.99852801234917238e-3, 2.30417297573763929e-5, 2.85885980666130812e-4),
        (1.28943695621391310e1, -1.51111514016986312e1, -2.23307578892655734e-1,
         2.96460137564761618e-3, 2.37847173959480950e-3, -2.96589568540237556e-5, 4.36624404335156298e-5),
        (1.53796971148509165e1, -2.59193146099879641e1, 1.79258772950371181e-1,
         2.68067772490389322e-3, 1.62824170038242295e-3, -9.51592254519715870e-5, 5.15138902046611451e-5),
    ]  # fmt: skip
    bodies = [[0.0] * 6 + [mass_of_sun]] + [[*p[:3], *(v * days for v in p[3:6]), p[6] * mass_of_sun] for p in planets]
    for axis in range(3, 6):
        bodies[0][axis] = -sum(b[axis] * b[6] for b in bodies) / mass_of_sun

    def energy() -> float:
        e = 0.0
        for i, a in enumerate(bodies):
            e += 0.5 * a[6] * (a[3] ** 2 + a[4] ** 2 + a[5] ** 2)
            for b in bodies[i + 1 :]:
                e -= a[6] * b[6] / math.dist(a[:3], b[:3])
        return e

    lines = [f"{energy():.9f}"]
    for _ in range(steps):
        for i, a in enumerate(bodies):
            for b in bodies[i + 1 :]:
                d = [a[k] - b[k] for k in range(3)]
                square = sum(x * x for x in d)
                pull = 0.01 / (square * math.sqrt(square))
                for k in range(3):
                    a[3 + k] -= d[k] * b[6] * pull
                    b[3 + k] += d[k] * a[6] * pull
        for b in bodies:
            for k in range(3):
                b[k] += 0.01 * b[3 + k]
    return "\n".join([*lines, f"{energy():.9f}"]) + "\n"


def sieve(n: int) -> str:
    """By trial division."""
    primes = [p for p in range(2, n) if all(p % d for d in range(2, math.isqrt(p) + 1))]
    return f"{len(primes)} primes below {n}\n" + (f"the largest is {primes[-1]}\n" if primes else "")


def mandelbrot(width: int, height: int, limit: int) -> str:
    """One point after the other; Python's floats are f64 and every operation rounds as written, so the counts are exact."""
    inside = total = 0
    text = ""
    for row in range(height):
        for column in range(width):
            re, im = (column + 0.5) / width * 3.0 - 2.25, (row + 0.5) / height * 2.5 - 1.25
            x = y = 0.0
            n = 0
            while n < limit and x * x + y * y <= 4.0:
                x, y = x * x - y * y + re, 2.0 * x * y + im
                n += 1
            inside += n == limit
            total += n
            text += "#" if n >= limit else "+" if n >= 12 else "-" if n >= 6 else "." if n >= 4 else " "
        text += "\n"
    return text + f"{inside} of {width * height} points inside, {total} steps\n"


def linear_regression(points: int, steps: int, lr: float = 0.1, noise: float = 0.1, seed: int = 0) -> str:
    """In f64, with the gradient by hand."""
    kx, ky = split(make_key(seed))
    x = normal(kx, points, 4)
    y = x @ np.array([1.5, -2.0, 0.5, 3.0]) + 0.25 + noise * normal(ky, points)
    w, b = np.zeros(4), 0.0
    lines = []
    for step in range(steps):
        error = x @ w + b - y
        if step % 50 == 0:
            lines.append(f"step {step:3d}  loss {np.mean(error**2):.4f}")
        w, b = w - lr * 2 * x.T @ error / points, b - lr * 2 * np.mean(error)
    loss = np.mean((x @ w + b - y) ** 2)
    return "\n".join([*lines, f"w [{' '.join(f'{v:.2f}' for v in w)}]  b {b:.2f}  loss {loss:.4f}"]) + "\n"


def spectral_norm(n: int) -> str:
    """The same ten steps, with the matrix stored."""
    i, j = np.indices((n, n))
    a = 1 / ((i + j) * (i + j + 1) // 2 + i + 1)
    u = np.ones(n)
    for _ in range(10):
        v = a.T @ a @ u
        u = a.T @ a @ v
    return f"{math.sqrt(u @ v / (v @ v)):.9f}\n"


def fannkuch(n: int) -> str:
    """The order of the piles follows from its definition: a pile's place in it, digit by digit, says how its beginnings are rotated."""
    most = checksum = 0
    for place, turns in enumerate(itertools.product(*(range(size) for size in range(n, 1, -1)))):
        pile = list(range(n))
        for size, turn in zip(range(n, 1, -1), turns, strict=True):
            pile[:size] = pile[turn:size] + pile[:turn]
        flips = 0
        while pile[0]:
            pile[: pile[0] + 1] = pile[pile[0] :: -1]
            flips += 1
        most = max(most, flips)
        checksum += -flips if place % 2 else flips
    return f"{checksum}\nPfannkuchen({n}) = {most}\n"


def kmeans(points: int, spread: float = 1.0, steps: int = 100, seed: int = 0) -> str:
    """In f64, centre after centre."""
    homes, strewn = split(make_key(seed))
    corner = np.array([[-2, -2], [-2, 2], [2, -2], [2, 2]])
    point = corner[randint(homes, 0, 4, points)] + spread * normal(strewn, points, 2)

    def nearest() -> np.ndarray:
        return ((point[:, None] - centre) ** 2).sum(-1).argmin(-1)

    centre = point[:4].copy()
    choice, moved, step = nearest(), points, 0
    while moved and step < steps:
        for j in set(choice):
            centre[j] = point[choice == j].mean(0)
        before, choice = choice, nearest()
        moved = (before != choice).sum()
        step += 1
    distance = ((centre[choice] - point) ** 2).sum(-1).mean()
    lines = [f"{step} steps, {moved} moved in the last; mean square distance {distance:.4f}"]
    lines += [f"centre {j} at [{x:.3f} {y:.3f}] has {(choice == j).sum()} points" for j, (x, y) in enumerate(centre)]
    return "\n".join(lines) + "\n"


def game_of_life(width: int, height: int, generations: int, soup: float = 0.0, seed: int = 0) -> str:
    """By the set of living cells and how often each is a neighbour."""
    alive = {(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)}
    if soup:
        alive = {(int(y), int(x)) for y, x in np.argwhere(uniform(make_key(seed), height, width) < np.float32(soup))}
    steps = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
    for _ in range(generations):
        count: dict[tuple[int, int], int] = {}
        for y, x in alive:
            for dy, dx in steps:
                cell = (y + dy) % height, (x + dx) % width
                count[cell] = count.get(cell, 0) + 1
        alive = {cell for cell, n in count.items() if n == 3 or (n == 2 and cell in alive)}
    rows = ["".join("#" if (y, x) in alive else "." for x in range(width)) for y in range(height)]
    return "\n".join([*rows, f"generation {generations}: {len(alive)} cells live"]) + "\n"


def levenshtein(n: int, m: int, alphabet: int = 4, seed: int = 0) -> str:
    """The whole table, from its definition."""

    def distance(a: list[int], b: list[int]) -> int:
        table = np.zeros((len(a) + 1, len(b) + 1), int)
        table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
        for i, j in np.ndindex(len(a), len(b)):
            table[i + 1, j + 1] = min(table[i, j] + (a[i] != b[j]), table[i, j + 1] + 1, table[i + 1, j] + 1)
        return int(table[-1, -1])

    first, second = (list(randint(k, 0, alphabet, size)) for k, size in zip(split(make_key(seed)), (n, m), strict=True))
    return (
        f"kitten, sitting: {distance([*b'kitten'], [*b'sitting'])}\n"
        f"random texts of {n} and {m} letters: {distance(first, second)}\n"
    )  # fmt: skip


def quicksort(n: int, seed: int = 0) -> str:
    """NumPy sorts, and prints as TL does."""
    a = randint(make_key(seed), 0, 1_000_000, n)
    return f"before {a}\nafter  {np.sort(a)}\n"


def heat(size: int, steps: int, rate: float = 0.2) -> str:
    """In NumPy, by slices."""
    wave = np.sin(np.pi * np.arange(size) / (size - 1))
    u = np.outer(wave, wave)
    for _ in range(steps):
        u[1:-1, 1:-1] += rate * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    exact = (1 - 4 * rate * (1 - math.cos(math.pi / (size - 1)))) ** steps * wave[size // 2] ** 2
    return f"middle {u[size // 2, size // 2]:.6f}  exact {exact:.6f}  mean {u.mean():.6f}\n"


def pca(examples: int, noise: float = 0.1, seed: int = 0) -> str:
    """By NumPy's eigenvectors."""
    causes, sensors = split(make_key(seed))
    mixing = np.array([[0.5, 0.5, 0.5, 0.5, 0, 0], [0.5, -0.5, 0, 0, 0.5, -0.5]])
    x = normal64(causes, examples, 2) * [3, 2] @ mixing + noise * normal64(sensors, examples, 6)
    values, vectors = np.linalg.eigh(np.cov(x.T))
    lines = []
    for c in range(2):
        v = vectors[:, -1 - c] * np.sign(vectors[0, -1 - c])
        lines.append(f"component {c} has {values[-1 - c] / values.sum():.2%} of the variance, along [{' '.join(f'{e:.3f}' for e in v)}]\n")
    return "".join(lines)


def spiral(points: int, steps: int, lr: float = 3e-3, seed: int = 0) -> str:
    """In f64, with the gradient by hand."""
    width, depth = 32, 3

    def linear(key: Key, inputs: int, outputs: int) -> np.ndarray:
        return (uniform(key, inputs, outputs) * 2 - 1) * math.sqrt(6 / inputs)

    label = np.where(np.arange(points) % 2 == 0, -1.0, 1.0)
    turn = 0.5 + 9 * np.arange(points) / points
    x = (label * turn / 5 * [np.sin(turn), np.cos(turn)]).T
    k_first, k_layers, k_last = split(make_key(seed), 3)
    inner = np.array([linear(k, width, width) for k in split(k_layers, depth)])
    square = np.zeros((depth, width))
    net = [linear(k_first, 2, width), np.zeros(width), square + 1, square, inner, square, linear(k_last, width, 1), np.zeros(1)]

    def forward() -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
        w0, b0, scale, shift, w, b, w1, b1 = net
        h, tape = x @ w0 + b0, []
        for l in range(depth):
            centred = h - h.mean(-1, keepdims=True)
            spread = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
            y = centred / spread * scale[l] + shift[l]
            z = y @ w[l] + b[l]
            tape.append((centred / spread, spread, y, z))
            h = h + np.maximum(z, 0)
        return (h @ w1 + b1)[:, 0], [*tape, (h,)]

    def backward(score: np.ndarray, tape: list[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
        _, _, scale, _, w, _, w1, _ = net
        g = [np.zeros_like(leaf) for leaf in net]
        d_score = (-label / (1 + np.exp(label * score)) / points)[:, None]
        g[6], g[7] = tape[-1][0].T @ d_score, d_score.sum(0)
        d = d_score @ w1.T
        for l in reversed(range(depth)):
            normed, spread, y, z = tape[l]
            dz = d * (z > 0)
            g[4][l], g[5][l] = y.T @ dz, dz.sum(0)
            dy = dz @ w[l].T
            g[2][l], g[3][l] = (dy * normed).sum(0), dy.sum(0)
            dn = dy * scale[l]
            d = d + (dn - dn.mean(-1, keepdims=True) - normed * (dn * normed).mean(-1, keepdims=True)) / spread
        g[0], g[1] = x.T @ d, d.sum(0)
        return g

    lines = [f"{sum(leaf.size for leaf in net)} parameters"]
    mean, variance = ([np.zeros_like(leaf) for leaf in net] for _ in range(2))
    for step in range(steps):
        score, tape = forward()
        if step % 50 == 0:
            lines.append(f"step {step:3d}  loss {np.log1p(np.exp(-label * score)).mean():.4f}")
        gradient = backward(score, tape)
        size = math.sqrt(sum((g**2).sum() for g in gradient))
        for i, g in enumerate(gradient):
            clipped = g / max(size, 1)
            mean[i] = 0.9 * mean[i] + 0.1 * clipped
            variance[i] = 0.999 * variance[i] + 0.001 * clipped**2
            net[i] = net[i] - lr * (mean[i] / (1 - 0.9 ** (step + 1))) / (np.sqrt(variance[i] / (1 - 0.999 ** (step + 1))) + 1e-8)
    return "\n".join([*lines, f"accuracy {np.mean((forward()[0] > 0) == (label > 0)):.1%}"]) + "\n"


def newton(n: int = 4, start: float = -1.2, tolerance: float = 1e-5) -> str:
    """With the derivatives by hand."""

    def valley(x: np.ndarray) -> float:
        return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())

    def gradient(x: np.ndarray) -> np.ndarray:
        g, bend = np.zeros(n), x[1:] - x[:-1] ** 2
        g[:-1] -= 400 * x[:-1] * bend + 2 * (1 - x[:-1])
        g[1:] += 200 * bend
        return g

    def hessian(x: np.ndarray) -> np.ndarray:
        h = np.diag(-400 * x[:-1], 1) + np.diag(-400 * x[:-1], -1)
        h[range(n - 1), range(n - 1)] += 1200 * x[:-1] ** 2 - 400 * x[1:] + 2
        h[range(1, n), range(1, n)] += 200
        return h

    x, moved, step = np.full(n, start), math.inf, 0
    lines = [f"step {0:2d}  value {valley(x):.1e}"]
    while moved > tolerance and step < 100:
        slope = gradient(x)
        way = np.linalg.solve(hessian(x), -slope)
        way = way if way @ slope < 0 else -slope
        while valley(x + way) > valley(x):
            way = way / 2
        x, moved, step = x + way, float(np.linalg.norm(way)), step + 1
        lines.append(f"step {step:2d}  value {valley(x):.1e}  moved {moved:.1e}")
    return "\n".join([*lines, f"least at [{' '.join(f'{e:.6f}' for e in x)}]"]) + "\n"


def lqr(horizon: int = 50, tolerance: float = 1e-9) -> str:
    """The cost as a quadratic form of the plan, and its least value by solving the linear equations."""
    a, b, q, r = np.array([[1, 0.1], [0, 1]]), np.array([0.005, 0.1]), np.diag([1, 0.1]), 0.1
    constant, half, curve = 0.0, np.zeros(horizon), r * np.eye(horizon)  # cost(u) = constant + 2 half @ u + u @ curve @ u
    x, push = np.array([1, 0.5]), np.zeros((2, horizon))  # the state at a time is x + push @ u
    for t in range(horizon + 1):
        constant, half, curve = constant + x @ q @ x, half + push.T @ q @ x, curve + push.T @ q @ push
        if t < horizon:
            x, push = a @ x, a @ push
            push[:, t] += b
    best = np.linalg.solve(curve, -half)
    plan, left, step, lines = np.zeros(horizon), -2 * half, 0, []
    way = left

    def cost(u: np.ndarray) -> float:
        return float(constant + 2 * half @ u + u @ curve @ u)

    while np.linalg.norm(left) > tolerance:
        if step % 5 == 0:
            lines.append(f"step {step:2d}  cost {cost(plan):.6f}")
        bent = 2 * curve @ way
        far = left @ left / (way @ bent)
        rest = left - far * bent
        plan, way, left, step = plan + far * way, rest + rest @ rest / (left @ left) * way, rest, step + 1
    lines.append(f"conjugate gradients: cost {cost(plan):.6f} after {step} steps")
    return "\n".join([*lines, f"Riccati's recursion: cost {cost(best):.6f}, first push {best[0]:.6f}", "the plans agree"]) + "\n"
