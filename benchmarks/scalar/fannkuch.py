import numpy as np
from numba import njit

N = 9


def prepare():
    return ()


@njit
def flips(pile):
    p = pile.copy()
    count = 0
    while p[0] != 0:
        low = 0
        high = p[0]
        while low < high:
            p[low], p[high] = p[high], p[low]
            low += 1
            high -= 1
        count += 1
    return count


@njit
def fannkuch(n):
    pile = np.arange(n)
    turn = np.zeros(n, np.int64)
    most = 0
    checksum = 0
    sign = 1
    while True:
        count = flips(pile)
        most = max(most, count)
        checksum += sign * count
        sign = -sign
        i = 1
        while i < n:
            top = pile[0]
            for j in range(i):
                pile[j] = pile[j + 1]
            pile[i] = top
            turn[i] += 1
            if turn[i] <= i:
                break
            turn[i] = 0
            i += 1
        if i == n:
            return checksum * 1000 + most


@njit
def run():
    return fannkuch(N)
