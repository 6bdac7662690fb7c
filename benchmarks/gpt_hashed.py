"""The parameters of `gpt_hashed.tl`, in NumPy: hashes of their places."""

from __future__ import annotations

from typing import Any

import numpy as np

LETTERS = 65

Array = np.ndarray[Any, Any]
Model = dict[str, Any]  # `wte wpe norm` and `blocks`, a list of dictionaries of layers, which are dictionaries of arrays


def hashed(array: int, *shape: int) -> Array:
    """The hashes of the places of an array, as the program has them."""
    place = np.arange(int(np.prod(shape)), dtype=np.uint32)
    x = np.uint32((array << 24) & 0xFFFFFFFF) + place
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return (x ^ (x >> 16)).reshape(shape)


def matrix(array: int, *shape: int) -> Array:
    return ((hashed(array, *shape) >> 8).astype(np.float32) * np.float32(1.1920929e-7) - np.float32(1)) * np.float32(0.1)


def model(layers: int, width: int, context: int) -> Model:
    """Parameters, each matrix as inputs by outputs."""
    norm = {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}

    def linear(array: int, inputs: int, outputs: int) -> Model:
        return {"w": matrix(array, inputs, outputs), "b": np.zeros(outputs, np.float32)}

    def block(first: int) -> Model:
        return {
            "norm1": dict(norm), "qkv": linear(first, width, 3 * width), "proj": linear(first + 1, width, width),
            "norm2": dict(norm), "up": linear(first + 2, width, 4 * width), "down": linear(first + 3, 4 * width, width),
        }  # fmt: skip

    blocks = [block(4 * layer + 2) for layer in range(layers)]
    return {"wte": matrix(0, LETTERS, width), "wpe": matrix(1, context, width), "blocks": blocks, "norm": dict(norm)}
