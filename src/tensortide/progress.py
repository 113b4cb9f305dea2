"""Progress: a line now and then of what long work is at, details of it, and whether a search is to end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

_LOG = logging.getLogger("tensortide")
Say = Callable[[str], None]
"""Shows a line of progress."""
PREPARING = "preparing the search; the first time on a machine its functions are compiled, before its time begins"


def silent(message: str) -> None:
    """Show nothing, and nothing of what a script prints either."""
    del message


def detail(kind: Literal["assumed", "skipped"], what: object) -> None:
    """Tell those who ask for more (``--verbose``) of something that was assumed, or skipped with its reason."""
    _LOG.debug("%s: %s", kind, what)


def _goes_on() -> bool:
    return False


class Search(NamedTuple):
    """A running search: ``say`` shows a line of progress, ``stopped`` returns whether it is to end."""

    say: Say = silent
    stopped: Callable[[], bool] = _goes_on

    def preparing(self) -> None:
        """Say why it may be long until the first result."""
        self.say(PREPARING)

    def known(self, text: str) -> None:
        """Show the best known so far, and how to end the search with it."""
        self.stopped()  # from here on it can be ended so
        self.say(f"{text}; Ctrl-C to stop here")


UNWATCHED = Search()
"""A search that nobody watches or ends."""
