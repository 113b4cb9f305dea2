"""Searches that report their progress and end on Ctrl-C or SIGTERM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tensortide.cli.interrupt import counted
from tensortide.cli.source import progress

PREPARING = "preparing the search; the first time on a machine its functions are compiled, in up to a minute"


class Searching(NamedTuple):
    """A running search: ``say`` shows a line of progress, ``stopped`` returns whether it is to end."""

    say: Callable[[str], None]
    stopped: Callable[[], bool]

    def preparing(self) -> None:
        """Say why it may be long until the first result."""
        self.say(PREPARING)

    def known(self, text: str) -> None:
        """Show the best known so far, and how to end the search with it."""
        self.say(f"{text}; Ctrl-C to stop here")


@contextmanager
def searching(quiet: bool) -> Iterator[Searching]:
    """Yield a search that Ctrl-C or SIGTERM ends; what it found is shown (``interrupt.counted``)."""
    with progress(quiet) as say, counted() as requests:
        yield Searching(say, lambda: bool(requests))
