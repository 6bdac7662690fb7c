"""GPU kernels as Python for numba.cuda, as PTX, and on the device."""

assert __name__ == "tlc.backends.cuda"
