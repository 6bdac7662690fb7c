import numpy as np
from numba import njit

N, M = 3000, 2500


def letters(n, seed):
    x = np.zeros(n, np.uint8)
    state = seed
    for i in range(n):
        state = (state * 1103515245 + 12345) % 2147483648
        x[i] = state // 65536 % 4
    return x


def prepare():
    return letters(N, 1), letters(M, 2)


@njit
def distance(a, b):
    n = len(a)
    m = len(b)
    row = np.empty(m + 1, np.int64)
    for j in range(m + 1):
        row[j] = j
    for i in range(n):
        corner = row[0]
        row[0] = i + 1
        for j in range(m):
            replaced = corner if a[i] == b[j] else corner + 1
            corner = row[j + 1]
            row[j + 1] = min(replaced, min(corner, row[j]) + 1)
    return row[m]


@njit
def run(a, b):
    return distance(a, b)
