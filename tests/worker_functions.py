"""Functions that tests give to workers, which import this module alone: those of tests import pytest."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def square(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number


def dies_once(folder: Path, number: int) -> int:
    """Square, but the first worker that gets item 3 is killed."""
    if number == 3:
        try:
            (folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            return square(number)
        os.kill(os.getpid(), signal.SIGKILL)
    return square(number)


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fails_after(seconds: float) -> float:
    time.sleep(seconds)
    raise ValueError(f"after {seconds} s")


def always_dies(number: int) -> int:
    os._exit(number)


def both_written(bound: NDArray[np.float64], item: NDArray[np.float64]) -> bool:
    return bound.flags.writeable and item.flags.writeable


class NotCopied(Exception):
    """Cannot be made of its text alone."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def not_copied(number: int) -> int:
    raise NotCopied(number, number)


class Heavy:
    """Counts in a file how often it arrives somewhere."""

    def __init__(self, arrivals: Path) -> None:
        self.arrivals = arrivals

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        with self.arrivals.open("a") as file:
            file.write("x")

    def square(self, number: int) -> int:
        return square(number)


def process(number: int) -> int:
    time.sleep(0.02)
    return os.getpid()
