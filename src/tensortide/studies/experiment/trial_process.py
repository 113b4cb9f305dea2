"""The process of a trial: ``python -m tensortide.studies.experiment.trial_process``.

Its standard input has the trial as a line of JSON, and stays open as long as the process that started it lives. Its
messages are lines of JSON on what was its standard output; what the workload prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import BinaryIO, Literal

import msgspec

from tensortide.errors import ExitStatus, TensortideError, status_of
from tensortide.studies.experiment.results import Repetition
from tensortide.studies.experiment.ways import Asked, simulated


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the process. ``ready``: it has imported what it needs; ``repetition``: one has ended, without a result
    if it does not count; ``end``: the trial has ended, with a ``reason`` and a status if it failed."""

    kind: Literal["ready", "repetition", "end"]
    repetition: Repetition | None = None
    reason: str = ""
    status: int = 0
    batch: int | None = None


def main() -> None:
    """Run the trial that is asked for, and tell what comes of it."""
    control, channel = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    asked = msgspec.json.decode(control.readline(), type=Asked)
    watch = threading.Thread(target=_end_with_parent, args=(control,), daemon=True)
    watch.start()

    own = os.getpid()

    def tell(message: Message) -> None:
        if os.getpid() != own:  # a fork of the workload that came back
            os._exit(0)
        channel.write(msgspec.json.encode(message) + b"\n")
        channel.flush()

    tell(Message("ready"))
    try:
        batch = _perform(asked, tell)
        tell(Message("end", batch=batch))
    except (TensortideError, MemoryError) as error:
        traceback.print_exception(error)
        reason = str(error) or "out of memory"
        tell(Message("end", reason=reason, status=int(status_of(error) or ExitStatus.WRONG)))
    sys.stderr.flush()
    watch.join()  # its parent reads how much memory it has taken


def _perform(asked: Asked, tell: Callable[[Message], None]) -> int | None:
    if asked.trial.mode == "simulated":
        return simulated(asked, lambda found: tell(Message("repetition", found)))
    from tensortide.studies.experiment.live import live

    return live(asked, lambda found: tell(Message("repetition", found)), lambda: tell(Message("repetition")))


def _end_with_parent(control: BinaryIO) -> None:
    """End the process at the end of its input: its parent has read all, or has ended, however it ended."""
    control.read()
    os._exit(0)


if __name__ == "__main__":
    main()
