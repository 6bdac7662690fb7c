from math import sqrt

import numpy as np
from numba import njit

N = 700


def prepare():
    return ()


@njit
def a(i, j):
    return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)


@njit
def times(v):
    n = len(v)
    out = np.zeros(n)
    for i in range(n):
        s = 0.0
        for j in range(n):
            s += a(i, j) * v[j]
        out[i] = s
    return out


@njit
def transposed_times(v):
    n = len(v)
    out = np.zeros(n)
    for i in range(n):
        s = 0.0
        for j in range(n):
            s += a(j, i) * v[j]
        out[i] = s
    return out


@njit
def run():
    u = np.ones(N)
    v = np.zeros(N)
    for _ in range(10):
        v = transposed_times(times(u))
        u = transposed_times(times(v))
    uv = 0.0
    vv = 0.0
    for i in range(N):
        uv += u[i] * v[i]
        vv += v[i] * v[i]
    return sqrt(uv / vv)
