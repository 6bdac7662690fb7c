import numpy as np
from numba import njit

N = 300


def prepare():
    i = np.arange(N * N).reshape(N, N)
    return i % 7 * 0.5, i % 5 * 0.25


@njit
def product(a, b):
    n, m = a.shape
    p = b.shape[1]
    c = np.zeros((n, p))
    for i in range(n):
        for j in range(p):
            s = 0.0
            for k in range(m):
                s += a[i, k] * b[k, j]
            c[i, j] = s
    return c


@njit
def run(a, b):
    c = product(a, b)
    total = 0.0
    for i in range(N):
        for j in range(N):
            total += c[i, j]
    return total
