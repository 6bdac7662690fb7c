import numpy as np
from numba import njit

N = 10_000_000


def prepare():
    return ()


@njit
def sieve(n):
    prime = np.empty(n, np.bool_)
    for i in range(n):
        prime[i] = i >= 2
    p = 2
    while p * p < n:
        if prime[p]:
            for multiple in range(p * p, n, p):
                prime[multiple] = False
        p += 1
    count = 0
    for i in range(n):
        if prime[i]:
            count += 1
    return count


@njit
def run():
    return sieve(N)
