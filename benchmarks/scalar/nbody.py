from math import sqrt

import numpy as np
from numba import njit

N, STEPS = 5, 500_000
SOLAR_MASS = 39.47841760435743
DAYS = 365.24


def prepare():
    x = np.array([
        [0.0, 0.0, 0.0],
        [4.84143144246472090, -1.16032004402742839, -0.103622044471123109],
        [8.34336671824457987, 4.12479856412430479, -0.403523417114321381],
        [12.8943695621391310, -15.1111514016986312, -0.223307578892655734],
        [15.3796971148509165, -25.9193146099879641, 0.179258772950371181],
    ])  # fmt: skip
    per_day = np.array([
        [0.0, 0.0, 0.0],
        [0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023],
        [-0.00276742510726411410, 0.00499852801234917238, 0.0000230417297573763929],
        [0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556],
        [0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870],
    ])  # fmt: skip
    share = [1.0, 0.000954791938424326609, 0.000285885980666130812, 0.0000436624404335156298, 0.0000515138902046611451]
    mass = np.array(share) * SOLAR_MASS
    v = per_day * DAYS
    for c in range(3):
        p = 0.0
        for i in range(N):
            p += v[i, c] * mass[i]
        v[0, c] = -p / SOLAR_MASS
    return x, v, mass


@njit
def energy(x, v, mass):
    e = 0.0
    for i in range(N):
        speed = 0.0
        for c in range(3):
            speed += v[i, c] * v[i, c]
        e += 0.5 * mass[i] * speed
        for j in range(i + 1, N):
            square = 0.0
            for c in range(3):
                d = x[i, c] - x[j, c]
                square += d * d
            e -= mass[i] * mass[j] / sqrt(square)
    return e


@njit
def advance(x, v, mass, dt):
    for i in range(N):
        for j in range(i + 1, N):
            dx = x[i, 0] - x[j, 0]
            dy = x[i, 1] - x[j, 1]
            dz = x[i, 2] - x[j, 2]
            square = dx * dx + dy * dy + dz * dz
            pull = dt / (square * sqrt(square))
            a = mass[j] * pull
            b = mass[i] * pull
            v[i, 0] -= dx * a
            v[i, 1] -= dy * a
            v[i, 2] -= dz * a
            v[j, 0] += dx * b
            v[j, 1] += dy * b
            v[j, 2] += dz * b
    for i in range(N):
        for c in range(3):
            x[i, c] += dt * v[i, c]


@njit
def run(x, v, mass):
    for _ in range(STEPS):
        advance(x, v, mass, 0.01)
    return energy(x, v, mass)
