"""Numbers of protobuf messages, for importers that recognize a message by its first fields."""

from __future__ import annotations


def varint(data: bytes, at: int, most: int = 10) -> tuple[int, int]:
    """Decode the number at ``at``, of at most ``most`` bytes. Returns it and where it ends; 0 and ``at`` for none."""
    number = 0
    for place, byte in enumerate(data[at : at + most]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    return 0, at
