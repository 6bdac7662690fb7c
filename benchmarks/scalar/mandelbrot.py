from numba import njit

SIZE, LIMIT = 512, 100


def prepare():
    return ()


@njit
def escape(re, im):
    x = 0.0
    y = 0.0
    n = 0
    while n < LIMIT and x * x + y * y <= 4.0:
        x, y = x * x - y * y + re, 2.0 * x * y + im
        n += 1
    return n


@njit
def run():
    total = 0
    for row in range(SIZE):
        for column in range(SIZE):
            total += escape(2.0 * column / SIZE - 1.5, 2.0 * row / SIZE - 1.0)
    return total
