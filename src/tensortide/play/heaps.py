"""Heaps of numbers with keys, several in one pair of columns, for the players."""

from __future__ import annotations

from tensortide.play.tasks import Column


def push(keys: Column, items: Column, base: int, size: int, key: int, item: int) -> None:
    """Put ``item`` on the heap of ``size`` items that begins at ``base``."""
    at = size
    while at > 0 and keys[base + (at - 1) // 2] > key:
        up = (at - 1) // 2
        keys[base + at], items[base + at] = keys[base + up], items[base + up]
        at = up
    keys[base + at], items[base + at] = key, item


def pop(keys: Column, items: Column, base: int, size: int) -> None:
    """Take the first item, that at ``base``, off the heap of ``size`` items that begins there."""
    size -= 1
    key, item, at = keys[base + size], items[base + size], 0
    while 2 * at + 1 < size:
        down = 2 * at + 1
        if down + 1 < size and keys[base + down + 1] < keys[base + down]:
            down += 1
        if keys[base + down] >= key:
            break
        keys[base + at], items[base + at] = keys[base + down], items[base + down]
        at = down
    keys[base + at], items[base + at] = key, item
