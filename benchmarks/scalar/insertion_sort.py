import numpy as np
from numba import njit

N = 12000


def prepare():
    x = np.zeros(N, np.int64)
    state = 42
    for i in range(N):
        state = (state * 1103515245 + 12345) % 2147483648
        x[i] = state // 1024
    return (x,)


@njit
def sort(values):
    a = values.copy()
    for i in range(1, len(a)):
        x = a[i]
        j = i
        while j > 0 and a[j - 1] > x:
            a[j] = a[j - 1]
            j -= 1
        a[j] = x
    return a


@njit
def run(x):
    a = sort(x)
    total = 0
    for i in range(N):
        total = (total * 31 + a[i]) % 1000003
    return total
