"""Python's generator of random numbers, compiled: the same choices from the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensortide.replays.remat.fast.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIZE = 624


@compiled
def below(words: NDArray[np.uint32], count: int) -> int:
    """A number below ``count``, as ``random.Random.choice`` draws it."""
    bits = 0
    while count >> bits:
        bits += 1
    while True:
        drawn = _word(words) >> np.uint32(32 - bits)
        if drawn < count:
            return int(drawn)


@compiled
def _word(words: NDArray[np.uint32]) -> int:
    """The next 32 bits of the Mersenne Twister (Matsumoto and Nishimura 1998)."""
    place = int(words[_SIZE])
    if place >= _SIZE:
        _twist(words)
        place = 0
    words[_SIZE] = np.uint32(place + 1)
    word = words[place]
    word ^= word >> np.uint32(11)
    word ^= (word << np.uint32(7)) & np.uint32(0x9D2C5680)
    word ^= (word << np.uint32(15)) & np.uint32(0xEFC60000)
    word ^= word >> np.uint32(18)
    return word


@compiled
def _twist(words: NDArray[np.uint32]) -> None:
    for i in range(_SIZE):
        both = (words[i] & np.uint32(0x80000000)) | (words[(i + 1) % _SIZE] & np.uint32(0x7FFFFFFF))
        mixed = words[(i + 397) % _SIZE] ^ (both >> np.uint32(1))
        if both & np.uint32(1):
            mixed ^= np.uint32(0x9908B0DF)
        words[i] = mixed
