import numpy as np
from numba import njit

N = 8_000_000


@njit
def bytes(n):
    x = np.zeros(n, np.uint8)
    state = 7
    for i in range(n):
        state = (state * 1103515245 + 12345) % 2147483648
        x[i] = state // 65536 % 256
    return x


def prepare():
    return (bytes(N),)


@njit
def histogram(x):
    count = np.zeros(256, np.int64)
    for i in range(len(x)):
        count[x[i]] += 1
    return count


@njit
def run(x):
    count = histogram(x)
    total = 0
    for b in range(256):
        total = (total * 31 + count[b]) % 1000003
    return total
