from numba import njit

LIMIT = 300_000


def prepare():
    return ()


@njit
def steps(start):
    n = start
    count = 1
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


@njit
def run():
    best = 0
    most = 0
    for i in range(1, LIMIT):
        count = steps(i)
        if count > most:
            most = count
            best = i
    return best * 1000 + most
