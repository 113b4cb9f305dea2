"""Damaged binary files: a valid one with bytes changed, cut out, doubled or put in at a few places."""

from __future__ import annotations

import random


def damaged(data: bytes, random_: random.Random) -> bytes:
    """Change bytes at one to four places; often bits alone, so that much of the file stays readable."""
    found = bytearray(data)
    kinds = random_.choice((1, 2, 5))
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(found))
        match random_.randrange(kinds):
            case 0:
                found[at] = random_.randrange(256)
            case 1:
                found[at] ^= 1 << random_.randrange(8)
            case 2:
                del found[at : at + random_.randint(1, 16)]
            case 3:
                found[at:at] = found[at : at + random_.randint(1, 64)]
            case _:
                found[at:at] = random_.choice((b"\xff" * 9, b"\x00", b"\x80\x80\x80\x80\x01"))
    return bytes(found)
