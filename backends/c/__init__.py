"""Kernels as C that people read, and that any C compiler makes the same bits of."""

assert __name__ == "tlc.backends.c"
