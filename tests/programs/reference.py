"""What the programs print, worked out without the compiler: `python tests/programs/reference.py` prints the table's texts.

Plain Python and NumPy that share no code with `tlc`. Reals that a program prints are rounded to fewer digits than the
order of a sum can change.
"""

from __future__ import annotations

import math

import numpy as np


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


# ---------------------------------------------------------------- random numbers

ROTATIONS = [13, 15, 26, 6, 17, 29, 16, 24]


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry2x32-20 as its paper defines it, round by round."""
    mask = 0xFFFFFFFF
    schedule = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x, y = (counter[0] + schedule[0]) & mask, (counter[1] + schedule[1]) & mask
    for i in range(20):
        r = ROTATIONS[i % 8]
        x = (x + y) & mask
        y = ((y << r | y >> (32 - r)) & mask) ^ x
        if i % 4 == 3:
            s = i // 4 + 1
            x, y = (x + schedule[s % 3]) & mask, (y + schedule[(s + 1) % 3] + s) & mask
    return x, y


def fold_in(key: tuple[int, int], data: int) -> tuple[int, int]:
    return threefry(key, (data >> 32 & 0xFFFFFFFF, data & 0xFFFFFFFF))


def normal(key: tuple[int, int], *shape: int) -> np.ndarray:
    """Box and Muller's cosine, in f64."""
    words = np.array([fold_in(key, i) for i in range(math.prod(shape))], np.float64)
    u = (words[:, 0] + 0.5) * 2.0**-32
    return (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * np.floor(words[:, 1] / 256) * 2.0**-24)).reshape(shape)


def linear_regression(points: int, steps: int, lr: float = 0.1, noise: float = 0.1, seed: int = 0) -> str:
    """In f64, with the gradient by hand."""
    key = (seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF)
    x = normal(fold_in(key, 0), points, 4)
    y = x @ np.array([1.5, -2.0, 0.5, 3.0]) + 0.25 + noise * normal(fold_in(key, 1), points)
    w, b = np.zeros(4), 0.0
    lines = []
    for step in range(steps):
        error = x @ w + b - y
        if step % 50 == 0:
            lines.append(f"step {step:3d}  loss {np.mean(error**2):.4f}")
        w, b = w - lr * 2 * x.T @ error / points, b - lr * 2 * np.mean(error)
    loss = np.mean((x @ w + b - y) ** 2)
    return "\n".join([*lines, f"w [{' '.join(f'{v:.2f}' for v in w)}]  b {b:.2f}  loss {loss:.4f}"]) + "\n"


if __name__ == "__main__":
    assert threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)) == (0xC4923A9C, 0x483DF7A0), "the published vector"
    for text in (
        nbody(1000), nbody(5000), sieve(10_000), sieve(1), mandelbrot(60, 22, 50), mandelbrot(120, 40, 300), linear_regression(200, 151),
    ):  # fmt: skip
        print(text)
