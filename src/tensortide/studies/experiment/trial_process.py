"""The process of a trial: ``python -m tensortide.studies.experiment.trial_process``.

Its standard input has trials as lines of JSON, and stays open as long as the process that started it lives. Its
messages are lines of JSON on what was its standard output; what the workload prints goes to standard error. It takes
another trial as long as it has run no code of the user's: starting takes longer than most simulations.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from tensortide.errors import ExitStatus, TensortideError, status_of
from tensortide.python_object import names_object
from tensortide.studies.experiment.captures import made
from tensortide.studies.experiment.results import Repetition
from tensortide.studies.experiment.ways import Asked, Ended, simulated


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the process. ``ready``: it has imported what it needs; ``repetition``: one has ended, without a result
    if it does not count; ``end``: the trial has ended, with a ``reason`` and a status if it failed, and ``again`` if
    the process takes another one."""

    kind: Literal["ready", "repetition", "end"]
    repetition: Repetition | None = None
    reason: str = ""
    status: int = 0
    batch: int | None = None
    step: str = ""
    again: bool = False


def main() -> None:
    """Run the trials that are asked for, one after the other, and tell what comes of each."""
    control, channel = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    lines = queue.SimpleQueue[bytes]()
    receiving = threading.Thread(target=_receive, args=(control, lines), daemon=True)
    receiving.start()
    own, again = os.getpid(), True

    def tell(message: Message) -> None:
        if os.getpid() != own:  # a fork of the workload that came back
            os._exit(0)
        channel.write(msgspec.json.encode(message) + b"\n")
        channel.flush()

    while again:
        asked = msgspec.json.decode(lines.get(), type=Asked)
        _print_to(asked.printed)
        tell(Message("ready"))
        try:
            ended = _perform(asked, tell)
            again = _ran_nothing_of_users(asked)
            tell(Message("end", batch=ended.batch, step=ended.step, again=again))
        except (TensortideError, MemoryError) as error:
            _print(error)
            again = isinstance(error, TensortideError) and _ran_nothing_of_users(asked)
            reason = str(error) or "out of memory"
            tell(Message("end", reason=reason, status=int(status_of(error) or ExitStatus.WRONG), again=again))
    _flush()
    receiving.join()  # its parent reads how much memory it has taken


def _ran_nothing_of_users(asked: Asked) -> bool:
    """True after a simulation of a step that was read: what the next trial sees does not depend on it."""
    trial = asked.trial
    return not made and trial.mode == "simulated" and trial.rival is None and not names_object(trial.policy)


def _print_to(path: str) -> None:
    """Have all that is printed appended to the file, and count the most memory from here on."""
    _flush()
    if path:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for stream in (1, 2):
            os.dup2(file, stream)
        os.close(file)
    with contextlib.suppress(OSError):  # Linux alone has it
        Path("/proc/self/clear_refs").write_text("5")


def _print(error: BaseException) -> None:
    """Print the traceback; where the disk is full, the error is told without it."""
    _flush()
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "backslashreplace"))  # no buffer keeps it for the log of another trial


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()


def _perform(asked: Asked, tell: Callable[[Message], None]) -> Ended:
    if asked.trial.mode == "simulated":
        return simulated(asked, lambda found: tell(Message("repetition", found)))
    from tensortide.studies.experiment.live import live

    return live(asked, lambda found: tell(Message("repetition", found)), lambda: tell(Message("repetition")))


def _receive(control: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    """Put what the parent asks for into ``lines``. End the process at the end of its input: its parent has read all, or
    has ended, however it ended."""
    for line in control:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
