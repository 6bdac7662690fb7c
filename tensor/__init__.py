"""Tensor code: derivatives, flattening, the tensor graph, fusion, schedules, memory."""

assert __name__ == "tlc.tensor"
