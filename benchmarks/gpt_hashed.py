"""The parameters of `gpt_hashed.tl`, in NumPy: hashes of their places."""

from __future__ import annotations

from collections.abc import Callable
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

    def norm() -> Model:
        return {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}

    def linear(array: int, inputs: int, outputs: int) -> Model:
        return {"w": matrix(array, inputs, outputs), "b": np.zeros(outputs, np.float32)}

    def block(first: int) -> Model:
        return {
            "norm1": norm(), "qkv": linear(first, width, 3 * width), "proj": linear(first + 1, width, width),
            "norm2": norm(), "up": linear(first + 2, width, 4 * width), "down": linear(first + 3, 4 * width, width),
        }  # fmt: skip

    blocks = [block(4 * layer + 2) for layer in range(layers)]
    return {"wte": matrix(0, LETTERS, width), "wpe": matrix(1, context, width), "blocks": blocks, "norm": norm()}


def mapped(node: Any, do: Callable[[Array], Any]) -> Any:
    """The same tree, of what `do` makes of the arrays."""
    if isinstance(node, dict):
        return {name: mapped(value, do) for name, value in node.items()}
    return [mapped(value, do) for value in node] if isinstance(node, list) else do(node)


def turned_model(layers: int, width: int, context: int) -> Model:
    """Parameters as PyTorch keeps them, each matrix of a layer as outputs by inputs."""
    found = model(layers, width, context)
    for block in found["blocks"]:
        for name in ("qkv", "proj", "up", "down"):
            block[name]["w"] = np.ascontiguousarray(block[name]["w"].T)
    return found
