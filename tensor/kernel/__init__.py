"""The kernel IR: explicit loops over buffers."""

assert __name__ == "tlc.tensor.kernel"
