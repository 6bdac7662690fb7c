"""TL's random numbers in plain Python, as its language reference has them: Threefry2x32 with 20 rounds, and what is made of its words."""

from __future__ import annotations

import math

import numpy as np

Key = tuple[int, int]

ROTATIONS = [13, 15, 26, 6, 17, 29, 16, 24]
MASK = 0xFFFFFFFF


def threefry(key: Key, counter: Key) -> Key:
    """Threefry2x32-20 as its paper defines it, round by round."""
    schedule = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x, y = (counter[0] + schedule[0]) & MASK, (counter[1] + schedule[1]) & MASK
    for i in range(20):
        r = ROTATIONS[i % 8]
        x = (x + y) & MASK
        y = ((y << r | y >> (32 - r)) & MASK) ^ x
        if i % 4 == 3:
            s = i // 4 + 1
            x, y = (x + schedule[s % 3]) & MASK, (y + schedule[(s + 1) % 3] + s) & MASK
    return x, y


def make_key(seed: int) -> Key:
    return seed >> 32 & MASK, seed & MASK


def fold_in(key: Key, data: int) -> Key:
    return threefry(key, (data >> 32 & MASK, data & MASK))


def split(key: Key, n: int = 2) -> list[Key]:
    return [fold_in(key, i) for i in range(n)]


def bits63(key: Key, i: int) -> int:
    x, y = fold_in(key, i)
    return x >> 1 << 32 | y


def randint(key: Key, low: int, high: int, *shape: int) -> np.ndarray:
    return np.array([low + bits63(key, i) % (high - low) for i in range(math.prod(shape))], np.int64).reshape(shape)


def uniform(key: Key, *shape: int) -> np.ndarray:
    """Of f32: 24 bits."""
    return np.array([(fold_in(key, i)[0] >> 8) / 2**24 for i in range(math.prod(shape))]).reshape(shape)


def normal(key: Key, *shape: int) -> np.ndarray:
    """Box and Muller's cosine for f32, but computed in f64."""
    words = np.array([fold_in(key, i) for i in range(math.prod(shape))], np.float64).reshape(-1, 2)
    u = (words[:, 0] + 0.5) / 2**32
    return (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * np.floor(words[:, 1] / 256) / 2**24)).reshape(shape)


def normal64(key: Key, *shape: int) -> np.ndarray:
    """The same for f64: 53 bits for the radius, 53 from far away for the angle."""
    u, angle = (np.array([bits63(key, far + i) >> 10 for i in range(math.prod(shape))], np.float64) / 2**53 for far in (0, 2**62))
    return (np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * np.pi * angle)).reshape(shape)
