from numba import njit

N = 35


def prepare():
    return ()


@njit
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@njit
def run():
    return fib(N)
